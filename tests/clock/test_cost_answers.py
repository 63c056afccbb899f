"""Costs by hand: a GPU of round numbers, for which each figure can be worked out on paper."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.clock.costs import Costs, HostTimes, catalogue_costs, interpolate
from harness.clock.gpus import GpuSpec, find_gpu
from harness.clock.op_work import Matrix, Work

GPU = GpuSpec(
    key="ROUND",
    name="Round numbers",
    vendor="made-up",
    architecture="round",
    capability=(9, 0),
    memory_bytes=1 << 30,
    num_multiprocessors=100,
    memory_gb_per_s=1000.0,
    vector_tflops=10.0,
    tflops={"bfloat16": 100.0},
    link="a link",
    link_gb_per_s=50.0,
    source="made up",
)
SHARES = {
    "gemm": 0.5,
    "elementwise": 0.8,
    "attention_forward": 0.4,
    "reduction": 0.25,
    "misaligned_inner": 0.1,
    "misaligned_columns": 0.2,
    "kernel_us": 2.0,
}
COSTS = Costs(GPU, SHARES)
PER_UNIT = 100.0 * 0.5 * 1e3 / 100
"""FLOPs per nanosecond of one multiprocessor in a bfloat16 product."""


def product_ns(rows: int, columns: int, inner: int, *, batch: int = 1, dtype: str = "bfloat16"):
    matrix = Matrix(batch, rows, columns, inner)
    flops = 2 * batch * rows * columns * inner
    return COSTS.kernel_ns(Work("aten::mm", "gemm", flops, 1, dtype, matrix))


@pytest.mark.parametrize(
    ("kind", "num_bytes", "expected_ns"),
    [
        ("elementwise", 800_000, 1_000 + 2_000),  # 1,000 GB/s, 80 % of it
        ("reduction", 800_000, 3_200 + 2_000),
        ("elementwise", 0, 0),
        ("view", 800_000, 0),
    ],
)
def test_bytes_take_their_share_of_the_bandwidth_after_the_shortest_kernel(
    kind: str, num_bytes: int, expected_ns: int
) -> None:
    assert COSTS.kernel_ns(Work("aten::x", kind, 0, num_bytes)) == expected_ns


def test_each_further_kernel_of_an_op_costs_another_shortest_kernel() -> None:
    assert COSTS.kernel_ns(Work("aten::x", "elementwise", 0, 800_000, num_kernels=3)) == 7_000


def test_the_longer_of_bytes_and_flops_counts() -> None:
    # 40 TFLOP/s in bfloat16; bytes of a class bound by FLOPs go at the rate of elementwise ops.
    attention = Work("aten::sdpa", "attention_forward", 40_000_000, 800, "bfloat16")
    assert COSTS.kernel_ns(attention) == 1_000 + 2_000
    assert COSTS.kernel_ns(attention._replace(num_bytes=8_000_000)) == 10_000 + 2_000
    # A dtype without matrix units goes at the vector rate.
    assert COSTS.kernel_ns(attention._replace(dtype="float64")) == 10_000 + 2_000


@pytest.mark.parametrize(
    ("rows", "columns", "inner", "batch", "waves", "tile", "steps"),
    [
        (128 * 10, 128 * 10, 1024, 1, 1, 128 * 128, 1024 + 192),  # 100 tiles on 100 units
        (128 * 10, 128 * 11, 1024, 1, 2, 128 * 128, 1024 + 192),  # 110 tiles: a second wave
        (128 * 11, 128 * 10, 1024, 1, 2, 128 * 128, 1024 + 192),
        (128 * 20, 128 * 20, 1024, 1, 4.5, 128 * 128, 1024 + 192),  # from 4 on, half a wave more
        (128 * 20, 128 * 19, 1024, 1, 4, 128 * 128, 1024 + 192),  # 3.8 waves
        (128 * 5, 128 * 5, 1024, 4, 1, 128 * 128, 1024 + 192),  # a batch makes tiles, too
        (128 * 5, 128 * 5, 1024, 1, 1, 128 * 128, 512 + 192),  # 25 tiles: split in two
        (128 * 5, 128 * 5, 1023, 1, 1, 128 * 128, (1023 + 192)),  # too short to be split
        (128 * 5, 128 * 5, 4096, 1, 1, 128 * 128, 1024 + 192),  # four for each tile, not eight
        (1, 128 * 100, 1024, 1, 1, 64 * 128, 1024 + 192),  # one row: a tile of 16, worth 64
        (33, 128 * 100, 1024, 1, 1, 64 * 128, 1024 + 192),
        (65, 128 * 100, 1024, 1, 1, 128 * 128, 1024 + 192),
        (128 * 100, 64, 1024, 1, 1, 128 * 64, 1024 + 192),
    ],
)
def test_a_product_pays_for_whole_waves_of_tiles(
    rows: int, columns: int, inner: int, batch: int, waves: float, tile: int, steps: int
) -> None:
    aligned = inner % 8 == 0
    expected = waves * 2 * tile * steps / PER_UNIT / (1 if aligned else SHARES["misaligned_inner"])
    assert product_ns(rows, columns, inner, batch=batch) == pytest.approx(2_000 + expected, abs=1)


@pytest.mark.parametrize("length", [1, 16, 17, 32, 33, 64, 65, 128, 129])
def test_a_short_side_takes_the_narrowest_tile_that_holds_it(length: int) -> None:
    # 64 tiles along the other side: what counts is how many tiles, and how wide (64 at least).
    tile = next((t for t in (16, 32, 64) if length <= t), 128)
    tiles = 64 * -(-length // tile)
    waves = -(-tiles // 100)
    expected = waves * 2 * max(tile, 64) * 128 * (256 + 192) / PER_UNIT
    assert product_ns(length, 128 * 64, 256) == pytest.approx(2_000 + expected, abs=1)


def test_a_product_in_float32_has_no_rows_at_odd_places() -> None:
    slow = 100.0 / 10.0
    aligned = product_ns(1280, 1280, 1024) - 2_000
    assert product_ns(1280, 1279, 1024, dtype="float32") == pytest.approx(
        2_000 + slow * aligned, abs=10
    )
    assert product_ns(1280, 1279, 1024) == pytest.approx(2_000 + 5 * aligned, abs=5)
    assert product_ns(1280, 1280, 1023) == pytest.approx(
        2_000 + 10 * aligned * (1023 + 192) / (1024 + 192), abs=10
    )


@pytest.mark.parametrize(
    ("direction", "pinned", "unified", "rate"),
    [
        ("h2d", True, False, 50.0),
        ("d2h", True, False, 50.0),
        ("h2d", False, False, 11.0),
        ("h2d", None, False, 11.0),
        ("h2d", False, True, 50.0),
        ("d2d", None, False, 400.0),  # read and written, at the rate of elementwise ops
    ],
)
def test_a_copy_takes_its_latency_and_its_bytes(
    direction: str, pinned: bool | None, unified: bool, rate: float
) -> None:
    costs = replace(COSTS, gpu=replace(GPU, unified_memory=unified))
    assert costs.copy_ns(direction, 1_100_000, pinned) == 1_800 + round(1_100_000 / rate)


def test_pageable_memory_is_no_faster_than_the_link_and_is_staged_by_the_host() -> None:
    slow = replace(COSTS, gpu=replace(GPU, link_gb_per_s=5.0))
    assert slow.copy_ns("h2d", 1_000_000, False) == 1_800 + 200_000
    assert COSTS.staging_ns(1_100_000) == 100_000


def test_host_times_by_who_calls_what() -> None:
    host = HostTimes()
    add = Work("aten::add", "elementwise", 0, 1)
    view = Work("aten::view", "view")
    custom = Work("mylib::op", "elementwise", 0, 1)
    assert (host.op_ns(add, False), host.op_ns(add, True)) == (8_000, 4_500)
    assert (host.op_ns(view, False), host.op_ns(view, True)) == (1_800, 1_000)
    assert (host.op_ns(custom, False), host.op_ns(custom, True)) == (14_000, 4_500)
    assert host.op_ns(add._replace(num_kernels=3), False) == 8_000 + 2 * 2_000


def test_between_measured_points_the_line_is_straight_on_logarithmic_axes() -> None:
    curve = ((1e2, 50.0), (1e4, 5_000.0), (1e6, 20_000.0))
    assert interpolate(curve, 1.0) == 50.0
    assert interpolate(curve, 1e2) == 50.0
    assert interpolate(curve, 1e3) == pytest.approx(500.0)
    assert interpolate(curve, 1e4) == pytest.approx(5_000.0)
    assert interpolate(curve, 1e5) == pytest.approx(10_000.0)
    assert interpolate(curve, 1e6) == 20_000.0
    assert interpolate(curve, 4e6) == 80_000.0


def test_a_measured_curve_goes_by_flops_where_an_op_has_some() -> None:
    curve = ((1e2, 100.0), (1e6, 1_000_000.0))
    costs = replace(COSTS, curves={"gemm": curve, "elementwise": curve})
    matrix = Matrix(1, 10, 10, 50)
    assert costs.kernel_ns(Work("aten::mm", "gemm", 10_000, 700, "bfloat16", matrix)) == 10_000
    assert costs.kernel_ns(Work("aten::add", "elementwise", 0, 1_000)) == 1_000
    assert costs.kernel_ns(Work("aten::add", "elementwise", 0, 0)) == 0
    assert costs.kernel_ns(Work("aten::mm", "gemm", 0, 700, "bfloat16", matrix)) == 0


def test_the_catalogue_s_shares_go_from_the_general_to_the_one_gpu() -> None:
    hopper, blackwell = (catalogue_costs(find_gpu(name)).efficiency for name in ("H100", "B200"))
    ada = catalogue_costs(find_gpu("RTX4090")).efficiency
    assert (hopper["kernel_us"], blackwell["kernel_us"], ada["kernel_us"]) == (1.4, 2.6, 2.0)
    assert hopper["gemm"] == blackwell["gemm"] == ada["gemm"]
    assert "source" not in hopper
    mi300x = catalogue_costs(find_gpu("MI300X")).efficiency
    assert (mi300x["elementwise"], mi300x["softmax"]) == (0.71, ada["softmax"])
