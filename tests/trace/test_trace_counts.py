"""Synchronise and blocking-copy calls of real traces, counted by API name."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from harness.audit.trace.load import load_trace
from harness.audit.trace.runtime_apis import ApiRole, api_role

if TYPE_CHECKING:
    from pathlib import Path

API_CALLS = {
    "hta_alexnet_a100_cuda_sync_events": {
        "cudaStreamSynchronize": 16,
        "cudaDeviceSynchronize": 5,
    },
    "hta_df_index_v100_rank1of2_216k": {"cudaDeviceSynchronize": 1},
    "hta_event_sync_a100": {
        "cudaStreamSynchronize": 1,
        "cudaEventSynchronize": 1,
        "cudaDeviceSynchronize": 1,
    },
    "hta_mi250_minitoy_train_rocm62": {"hipMemcpyWithStream": 2, "hipDeviceSynchronize": 1},
    "hta_nccl_a100_rank0of2_eventsync24": {
        "cudaEventSynchronize": 24,
        "cudaDeviceSynchronize": 1,
    },
    "hta_tracediff_control_a100_rank3of8": {
        "cudaStreamSynchronize": 60,
        "cudaDeviceSynchronize": 1,
    },
    "kineto_h100_after_fix_2026": {},
    "kineto_tb_resnet50_v100_nw4_2021": {
        "cudaStreamSynchronize": 12,
        "cudaDeviceSynchronize": 1,
    },
    "param_dlrm_v100_rank0of8": {"cudaStreamSynchronize": 10, "cudaDeviceSynchronize": 1},
    "tracelens_b200_eager_pystack": {},
    "tracelens_b300_moe_large_capacity": {"cudaDeviceSynchronize": 4},
    "tracelens_h100_owlv2_pystack": {"cudaStreamSynchronize": 80, "cudaDeviceSynchronize": 2},
    "tracelens_mi300_owlv2_pystack": {"hipMemcpyWithStream": 80, "hipDeviceSynchronize": 2},
    "tracelens_mi300_vllm_prefilldecode_piecewise": {"hipEventSynchronize": 1},
}


@pytest.mark.parametrize(
    ("shared_trace", "expected"), API_CALLS.items(), indirect=["shared_trace"], ids=API_CALLS
)
def test_every_blocking_call_of_a_real_trace_is_counted(
    shared_trace: Path, expected: dict[str, int]
) -> None:
    trace = load_trace(shared_trace)
    counts = Counter(
        trace.names[name]
        for name, role in zip(trace.calls.name, trace.calls.role, strict=True)
        if ApiRole(role).blocks
    )
    assert dict(counts) == expected
    assert trace.notes == ()


@pytest.mark.parametrize(
    ("api", "role"),
    [
        ("cudaStreamSynchronize", ApiRole.SYNCHRONIZE),
        ("cudaStreamSynchronize_ptsz", ApiRole.SYNCHRONIZE),
        ("hipEventSynchronize", ApiRole.SYNCHRONIZE),
        ("cuCtxSynchronize", ApiRole.SYNCHRONIZE),
        ("cuStreamSynchronize", ApiRole.SYNCHRONIZE),
        ("hipMemcpyWithStream", ApiRole.BLOCKING_COPY),
        ("cudaMemcpy", ApiRole.BLOCKING_COPY),
        ("cudaMemcpy2D", ApiRole.BLOCKING_COPY),
        ("cuMemcpyDtoH_v2", ApiRole.BLOCKING_COPY),
        ("hipMemcpyDtoH", ApiRole.BLOCKING_COPY),
        ("cudaMemcpyAsync", ApiRole.ASYNC_COPY),
        ("cuMemcpyDtoHAsync_v2", ApiRole.ASYNC_COPY),
        ("hipMemcpyAsync", ApiRole.ASYNC_COPY),
        ("cudaLaunchKernelExC", ApiRole.LAUNCH),
        ("cuLaunchKernelEx", ApiRole.LAUNCH),
        ("hipExtModuleLaunchKernel", ApiRole.LAUNCH),
        ("cudaGraphLaunch", ApiRole.LAUNCH),
        ("cudaMemsetAsync", ApiRole.MEMSET),
        ("cudaFree", ApiRole.ALLOCATOR),
        ("cudaEventQuery", ApiRole.OTHER),
        ("cudaStreamWaitEvent", ApiRole.EVENT),
        ("cudaEventRecordWithFlags", ApiRole.EVENT),
        ("aten::synchronize", ApiRole.OTHER),
        ("customSynchronize", ApiRole.OTHER),
        ("", ApiRole.OTHER),
    ],
)
def test_the_role_of_a_call_follows_from_its_name(api: str, role: ApiRole) -> None:
    assert api_role(api) == role
