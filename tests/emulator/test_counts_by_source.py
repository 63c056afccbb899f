"""How often calls wait, where CUDA's sources say it depends on the arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from harness.audit.emulated.emulated_audit import EmulatedAudit

if TYPE_CHECKING:
    from collections.abc import Callable

MODES = pytest.mark.parametrize("mode", ["values", "shapes"])


def counted(call: Callable[..., Any], make: Callable[[], Any], mode: Any, gpu: str = "H100") -> Any:
    with EmulatedAudit(mode=mode, gpu=gpu) as audit:
        audit.record(False)
        arguments = make()
        audit.record(True)
        call(*arguments)
    return audit.report


def floats() -> Any:
    return (torch.randn(64, 64, device="cuda"),)


def rows() -> Any:
    return (torch.randint(0, 3, (10, 2), device="cuda"),)


def slices(length: int, dtype: torch.dtype = torch.int64) -> Callable[[], Any]:
    return lambda: (torch.zeros(3, length, dtype=dtype, device="cuda"),)


CASES: tuple[tuple[str, Callable[..., Any], Callable[[], Any], float], ...] = (
    ("svd", torch.linalg.svd, floats, 2),
    ("svdvals", torch.linalg.svdvals, floats, 2),
    ("svd by gesvd", lambda x: torch.linalg.svd(x, driver="gesvd"), floats, 1),
    ("svd of nothing", torch.linalg.svd, lambda: (torch.ones(0, 4, device="cuda"),), 0),
    ("pinv", torch.linalg.pinv, floats, 2),
    ("hermitian pinv", lambda x: torch.linalg.pinv(x @ x.T, hermitian=True), floats, 1),
    ("2-norm", lambda x: torch.linalg.matrix_norm(x, 2), floats, 2),
    ("nuclear norm", lambda x: torch.linalg.matrix_norm(x, "nuc"), floats, 2),
    ("Frobenius norm", torch.linalg.matrix_norm, floats, 0),
    ("mode of short slices", torch.mode, slices(2048), 0),
    ("mode of long slices", torch.mode, slices(2049), 27),
    ("mode of long flags", torch.mode, slices(2049, torch.bool), 9),
    ("nanmedian", torch.nanmedian, floats, 1),
    ("nanmedian along", lambda x: torch.nanmedian(x, dim=0), floats, 0),
    ("median", torch.median, floats, 0),
    ("equal to itself", lambda x: torch.equal(x, x), floats, 0),
    ("equal to its view", lambda x: torch.equal(x, x.view(64, 64)), floats, 0),
    ("equal to its transpose", lambda x: torch.equal(x, x.t()), floats, 1),
    ("equal of other shapes", lambda x: torch.equal(x, x[1:]), floats, 0),
    ("equal of nothing", lambda x: torch.equal(x[:0], x[1:1]), floats, 0),
    ("equal", lambda x: torch.equal(x, x + 1), floats, 1),
    ("unique", torch.unique, rows, 1),
    ("unique rows", lambda x: torch.unique(x, dim=0), rows, 2),
    ("unique with all", lambda x: torch.unique(x, True, True, True, dim=0), rows, 6),
    ("unique runs", torch.unique_consecutive, rows, 1),
    ("unique runs of rows", lambda x: torch.unique_consecutive(x, True, dim=0), rows, 4),
    ("multinomial", lambda x: torch.multinomial(x.abs(), 2), floats, 0),
    ("multinomial again", lambda x: torch.multinomial(x.abs(), 2, True), floats, 0),
)


@MODES
@pytest.mark.parametrize(("name", "call", "make", "syncs"), CASES, ids=[c[0] for c in CASES])
def test_calls_wait_as_often_as_the_sources_say(
    name: str, call: Any, make: Any, syncs: float, mode: str
) -> None:
    assert counted(call, make, mode).syncs_per_step == syncs


@pytest.mark.parametrize(
    ("call", "make", "doubt"),
    [
        (torch.mode, slices(2049), "How often mode waits is in doubt: 7 to 9 times for each slice"),
        (torch.nanmedian, floats, "How often nanmedian waits is in doubt: 0 or 1 times a call"),
        (
            lambda x: torch.unique(x, dim=0),
            rows,
            "How often unique_dim waits is in doubt: 1 to 6 times a call",
        ),
    ],
)
def test_doubt_is_said_where_it_matters_and_nowhere_else(call: Any, make: Any, doubt: str) -> None:
    assert any(note.startswith(doubt) for note in counted(call, make, "values").notes)
    assert not any("in doubt" in n for n in counted(torch.linalg.svd, floats, "values").notes)


@MODES
@pytest.mark.parametrize(
    ("gpu", "dtype", "syncs"),
    [
        ("H100", torch.bfloat16, 0), ("B200", torch.bfloat16, 0), ("B300", torch.bfloat16, 0),
        ("H100", torch.float16, 3), ("H100", torch.float32, 3), ("A100", torch.bfloat16, 3),
        ("RTX5090", torch.bfloat16, 3), ("GB10", torch.bfloat16, 3),
        ("MI300X", torch.bfloat16, 3), ("T4", torch.float16, 3),
    ],
)  # fmt: skip
def test_grouped_products_read_their_offsets_where_no_kernel_takes_them(
    gpu: str, dtype: torch.dtype, syncs: int, mode: str
) -> None:
    def make() -> Any:
        tokens = torch.randn(8, 16, device="cuda", dtype=dtype, requires_grad=True)
        weights = torch.randn(2, 16, 16, device="cuda", dtype=dtype, requires_grad=True)
        return tokens, weights, torch.tensor([3, 8], dtype=torch.int32, device="cuda")

    def call(tokens: Any, weights: Any, offsets: Any) -> None:
        torch._grouped_mm(tokens, weights, offs=offsets).square().sum().backward()

    assert counted(call, make, mode, gpu).syncs_per_step == syncs


def host(pinned: bool) -> Callable[[], Any]:
    def make() -> Any:
        tensor = torch.ones(8, 8)
        return tensor.pin_memory() if pinned else tensor, torch.ones(8, 8, device="cuda")

    return make


COPIES: tuple[tuple[str, Callable[..., Any], bool, list[tuple[str, float]]], ...] = (
    ("up, cast, pinned", lambda h, d: h.to("cuda", torch.half, non_blocking=True), True, []),
    (
        "up, cast, pinned, transposed",
        lambda h, d: h.t().to("cuda", torch.half, non_blocking=True),
        True,
        [("pageable_non_blocking", 0)],
    ),
    ("up, pinned, transposed", lambda h, d: h.t().to("cuda", non_blocking=True), True, []),
    (
        "up, cast, pinned, blocking",
        lambda h, d: h.to("cuda", torch.half),
        True,
        [("pageable_h2d", 1)],
    ),
    (
        "up, pageable",
        lambda h, d: h.to("cuda", non_blocking=True),
        False,
        [("pageable_non_blocking", 0)],
    ),
    ("down, pageable", lambda h, d: h.copy_(d, non_blocking=True), False, [("d2h_copy", 1)]),
    ("down, pinned", lambda h, d: h.copy_(d, non_blocking=True), True, []),
    ("down, pinned, blocking", lambda h, d: h.copy_(d), True, [("d2h_copy", 1)]),
    ("down, new", lambda h, d: d.to("cpu", non_blocking=True), False, []),
)


@MODES
@pytest.mark.parametrize(("name", "call", "pinned", "sites"), COPIES, ids=[c[0] for c in COPIES])
def test_copies_wait_by_their_memory_and_dtype(
    name: str, call: Any, pinned: bool, sites: list[tuple[str, float]], mode: str
) -> None:
    report = counted(call, host(pinned), mode)
    assert [(site.kind, site.syncs_per_call) for site in report.sites] == sites
