"""What a modelled step is made of, beside the same by hand; and steps that were published.

Run through docs/model_validation.py (`--account`, `--floor`), which keeps the results in
docs/model-validation.json.
"""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from gapless import factory
from gapless.arms import parse_arms
from gapless.bench_run import variants_of
from gapless.modelled import model_scenario, phase_ms
from harness.clock.calibration import FOLDER_VARIABLE, Profile, costs_for, save_profile
from harness.clock.costs import HostTimes
from harness.clock.gpus import find_gpu
from harness.emulator.device import EmulatedDevice
from harness.emulator.device_clock import DeviceClock
from harness.emulator.tensors.capacity import ValuesLimit
from scenarios.build import LORA_RANK
from scenarios.build_options import BuildOptions
from scenarios.published_setups import SETUPS
from scenarios.scenario_catalogue import get

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.emulator.device_clock import Action
    from harness.record.records import ScenarioRecord

GPU = "B200"
LLAMA = "llama3.2-1b-packed-sft"
QWEN = "qwen3-8b-packed-sft"

FLOOR = (
    (512, 6_803, 6_993),
    (768, 9_889, 9_963),
    (1_024, 13_151, 13_092),
    (2_048, 26_662, 25_094),
    (4_096, 51_599, 50_410),
)
"""Tokens in a batch of two, tokens/s with offloaded and with plain checkpointing: Llama-3.2-1B on a
B200, unslothai/unsloth #3867."""


def accounts() -> list[dict[str, Any]]:
    """Parts of two modelled baseline steps, each beside a calculation by hand."""
    return [*_reload_account(), *_mask_account()]


def _reload_account() -> list[dict[str, Any]]:
    options = SETUPS["checkpoint-reload", QWEN][0].options
    arm = {"packed-metadata": "collator", "checkpoint-reload": "single-buffer"}
    tape, scenario = _one_step(QWEN, options, arm)
    works = [call.arguments[0] for call in tape if call.method == "op"]
    costs = costs_for(find_gpu(GPU))
    clock_ms: dict[str, float] = defaultdict(float)
    flops: dict[str, int] = defaultdict(int)
    moved: dict[str, int] = defaultdict(int)
    for work in works:
        clock_ms[work.kind] += costs.kernel_ns(work) / 1e6
        flops[work.kind] += work.flops
        moved[work.kind] += work.num_bytes
    uploads = [c.arguments[0] for c in tape if c.method == "copy" and _is_upload(c)]
    upload_ms = sum(costs.copy_ns("h2d", copy.num_bytes, copy.pinned) for copy in uploads) / 1e6
    row = "Qwen3-8B, single-buffer"
    tokens, config = _tokens(scenario), scenario.config
    assert all(isinstance(config[name], int) for name in _SIZES)
    sizes = {name: int(str(config[name])) for name in _SIZES}
    products = _product_flops(sizes, tokens)
    share = costs.efficiency["gemm"]
    rate = costs.gpu.tflops["bfloat16"] * share
    each_ms = tokens * sizes["hidden_size"] * 2 / costs.gpu.link_gb_per_s / 1e6
    bandwidth = costs.gpu.memory_gb_per_s * costs.efficiency["elementwise"]
    return [
        _part(
            row, "FLOPs of matrix products", f"{flops['gemm'] / 1e12:,.0f} TFLOP",
            f"{products / 1e12:,.0f} TFLOP",
            "2 x weights x tokens, three times (forward, recompute, gradient of the input), head "
            "and adapters included",
        ),
        _part(
            row, "time of matrix products", f"{clock_ms['gemm']:,.0f} ms",
            f"{products / rate / 1e9:,.0f} ms",
            f"at {share:.0%} of {costs.gpu.tflops['bfloat16']:,.0f} TFLOP/s; the clock adds tiles "
            "and the narrow products of the adapters",
        ),
        _part(
            row, "elementwise kernels", f"{clock_ms['elementwise']:,.0f} ms",
            f"{moved['elementwise'] / bandwidth / 1e6:,.0f} ms",
            f"{moved['elementwise'] / 1e12:.1f} TB at {bandwidth / 1e3:.1f} TB/s: norms, rotary "
            "embedding, activations and adapters, each a kernel of its own",
        ),
        _part(
            row, "reloads", f"{upload_ms:,.0f} ms in {len(uploads)} copies",
            f"{(sizes['num_layers'] - 1) * each_ms:,.0f} ms",
            f"{sizes['num_layers'] - 1} x {tokens:,} x {sizes['hidden_size']:,} x 2 bytes at "
            f"{costs.gpu.link_gb_per_s} GB/s",
        ),
    ]  # fmt: skip


_SIZES = ("num_layers", "hidden_size", "intermediate_size", "num_heads", "num_kv_heads",
          "head_dim", "vocab_size")  # fmt: skip


def _product_flops(sizes: Mapping[str, int], tokens: int) -> int:
    hidden, wide = sizes["hidden_size"], sizes["intermediate_size"]
    heads, pairs = (sizes[name] * sizes["head_dim"] for name in ("num_heads", "num_kv_heads"))
    # Query, key, value, output, gate, up, down.
    linears = (
        (hidden, heads), (hidden, pairs), (hidden, pairs), (heads, hidden),
        (hidden, wide), (hidden, wide), (wide, hidden),
    )  # fmt: skip
    weights = sizes["num_layers"] * sum(inputs * outputs for inputs, outputs in linears)
    adapters = sizes["num_layers"] * sum(
        LORA_RANK * (inputs + outputs) for inputs, outputs in linears
    )
    head = hidden * sizes["vocab_size"]
    # An adapter's weights have a gradient as well: a fourth product.
    return 2 * tokens * (3 * (weights + head) + 4 * adapters)


def _mask_account() -> list[dict[str, Any]]:
    # No recompute: one build a layer, or one in all.
    options = {**SETUPS["packed-metadata", LLAMA][1].options, "num_batches": 1}
    host = HostTimes()
    calls_ms: dict[str, float] = {}
    for variant in ("per-layer", "cached"):
        tape, scenario = _one_step(LLAMA, options, {"packed-metadata": variant})
        ops = [call.arguments for call in tape if call.method == "op"]
        calls_ms[variant] = sum(host.op_ns(work, engine) for work, _, engine in ops) / 1e6
    assert scenario.input is not None
    documents = round(scenario.input.num_documents_mean)
    layers = int(str(scenario.config["num_layers"]))
    builds = layers - 1
    a_document_us = (6 * host.eager_ns + 2 * host.view_ns) / 1e3
    return [
        _part(
            "Llama-3.2-1B, mask in each layer", f"host time of {builds} mask builds",
            f"{calls_ms['per-layer'] - calls_ms['cached']:.1f} ms",
            f"{builds * documents * a_document_us / 1e3:.1f} ms",
            f"{documents} documents x {a_document_us} us: six launches of "
            f"{host.eager_ns / 1e3:.0f} us and two views of {host.view_ns / 1e3} us",
        )
    ]  # fmt: skip


def _part(row: str, what: str, clock: str, by_hand: str, how: str) -> dict[str, Any]:
    return {"row": row, "what": what, "clock": clock, "by_hand": by_hand, "how": how}


def _is_upload(call: Action) -> bool:
    # The batch's own tensors are a few bytes a token.
    copy = call.arguments[0]
    return bool(copy.direction == "h2d" and copy.num_bytes > 2**20)


def _tokens(scenario: ScenarioRecord) -> int:
    assert scenario.input is not None
    return scenario.input.num_tokens


def _one_step(
    name: str, options: Mapping[str, Any], arm: Mapping[str, str]
) -> tuple[Sequence[Action], ScenarioRecord]:
    """What one warm step of an arm asks of the device."""
    clock = DeviceClock(costs_for(find_gpu(GPU)))
    with EmulatedDevice(GPU, values_limit=ValuesLimit.for_mode("auto"), clock=clock):
        built = BuildOptions.from_mapping({**options, "device": "cuda"})
        workload, made = factory.build(factory.make_spec(get(name), built, tuple(arm)))
        for optimization, variant in arm.items():
            made[optimization].attach(workload.model).select(variant)
        for _ in range(3):
            clock.start_recording(keep_tape=True)
            workload.forward()
            workload.backward()
            workload.optimizer_step()
            tape = clock.tape or []
            clock.stop_recording()
        return tape, workload.describe()


def check_floor() -> dict[str, Any]:
    """Steps of unsloth #3867 modelled, and the review row at the host time that they show."""
    rows = [
        {"tokens": tokens, "offload_ms": 1e3 * tokens / offload, "plain_ms": 1e3 * tokens / plain,
         **_modelled_steps(tokens)}
        for tokens, offload, plain in FLOOR
    ]  # fmt: skip
    factor = rows[0]["offload_ms"] / rows[0]["modelled_offload_ms"]
    host_ns = {f.name: round(factor * getattr(HostTimes(), f.name)) for f in fields(HostTimes)}
    before = os.environ.get(FOLDER_VARIABLE)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER_VARIABLE] = folder
        try:
            save_profile(
                Profile(
                    key=GPU, device=GPU, created_utc="", torch="", num_threads=1, host_ns=host_ns,
                    curves={},
                )
            )  # fmt: skip
            slow = [{"tokens": tokens, **_modelled_steps(tokens)} for tokens in (512, 2_048)]
        finally:
            if before is None:
                del os.environ[FOLDER_VARIABLE]
            else:
                os.environ[FOLDER_VARIABLE] = before
    return {"rows": rows, "host_factor": factor, "slow_host": slow}


def _modelled_steps(tokens: int) -> dict[str, float]:
    arms = parse_arms(
        ["checkpoint-reload=double-buffer", "checkpoint-reload=plain"],
        variants_of(),
        settings={"packed-metadata": "collator", "checkpoint-reload": "single-buffer"},
    )
    options = {**SETUPS["checkpoint-reload", LLAMA][0].options, "tokens": tokens}
    record = model_scenario(get(LLAMA), arms, GPU, options, store=None)
    names = {"offload": "baseline", "double": arms[1].name, "plain": arms[2].name}
    steps = {f"modelled_{key}_ms": phase_ms(record, arm, "batch") for key, arm in names.items()}
    return {key: step for key, step in steps.items() if step is not None}
