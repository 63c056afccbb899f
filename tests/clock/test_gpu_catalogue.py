"""The catalogue and the cost model: figures that hold for every GPU, and a few worked by hand."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from importlib import resources

import pytest
import torch

from harness.clock.costs import Costs, catalogue_costs, interpolate
from harness.clock.gpus import find_gpu, gpu_names
from harness.clock.op_work import Matrix, Work, work_of
from harness.clock.queue_timeline import QueueTimes
from harness.errors import UsageError

aten = torch.ops.aten
GPUS = gpu_names()


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def costs(gpu: str = "H100") -> Costs:
    return catalogue_costs(find_gpu(gpu))


@pytest.mark.parametrize("name", GPUS)
def test_every_gpu_has_a_source_and_a_cost_for_each_class(name: str) -> None:
    gpu = find_gpu(name)
    assert gpu.source
    assert gpu.link_gb_per_s < gpu.memory_gb_per_s
    assert all(rate > 0 for rate in gpu.tflops.values())
    priced = costs(name)
    for share in ("gemm", "attention_backward", "elementwise", "sort", "dequantize", "optimizer"):
        assert 0 < priced.efficiency[share] <= 1


@pytest.mark.parametrize(
    "wanted",
    ["RTX4090", "RTX5090", "RTX5090-Laptop", "A100", "A100-40GB", "L40S", "H100", "H100-PCIe",
     "H200", "B200", "B300", "GB10", "MI300X"],
)  # fmt: skip
def test_the_catalogue_has_the_gpus_people_ask_for(wanted: str) -> None:
    assert find_gpu(wanted.lower()).key == wanted


def test_an_unknown_gpu_is_named_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"'H900'.*H100"):
        find_gpu("H900")


def test_only_the_unified_device_has_no_link_of_its_own() -> None:
    assert [name for name in GPUS if find_gpu(name).unified_memory] == ["GB10"]


def test_flops_and_bytes_of_a_product() -> None:
    a, b = meta(64, 128), meta(128, 32)
    work = work_of(aten.mm.default, (a, b), {}, meta(64, 32))
    assert work.flops == 2 * 64 * 128 * 32
    assert work.num_bytes == 2 * (64 * 128 + 128 * 32 + 64 * 32)
    assert work.matrix == Matrix(1, 64, 32, 128)
    assert (work.kind, work.dtype) == ("gemm", "bfloat16")


def test_an_expanded_tensor_is_read_once() -> None:
    bias = meta(1, 1024).expand(512, 1024)
    x = meta(512, 1024)
    work = work_of(aten.add.Tensor, (x, bias), {}, x)
    assert work.num_bytes == 2 * (2 * 512 * 1024 + 1024)


def test_views_and_empty_memory_run_nothing() -> None:
    x = meta(4, 8)
    for op, args in (
        (aten.view.default, (x, [32])),
        (aten.t.default, (x,)),
        (aten.slice.Tensor, (x, 0, 0, 2)),
        (aten.empty_like.default, (x,)),
    ):
        assert work_of(op, args, {}, x).kind == "view"


def test_causal_packed_attention_counts_each_document_by_itself() -> None:
    from torch.nn.attention import varlen  # registers the op

    del varlen
    heads, size, lengths = 4, 64, [100, 28]
    q = meta(128, heads, size)
    boundaries = torch.tensor([0, 100, 128], dtype=torch.int32)
    op = torch.ops.torch_attn._varlen_attn.default
    work = work_of(op, (q, q, q, boundaries, boundaries, 100, 100, True), {}, q)
    assert work.flops == sum(4 * heads * size * n * n for n in lengths) // 2
    assert work.depends_on_data


def test_no_elements_take_no_time() -> None:
    empty = work_of(aten.mm.default, (meta(0, 8), meta(8, 8)), {}, meta(0, 8))
    assert costs().kernel_ns(empty) == 0


def test_more_work_never_takes_less_time() -> None:
    priced = costs("B200")
    times = [
        priced.kernel_ns(Work("aten::mm", "gemm", 2 * 4096 * n * 4096, 1, "bfloat16",
                              Matrix(1, 4096, n, 4096)))
        for n in (16, 64, 128, 512, 2048, 8192, 32_768)
    ]  # fmt: skip
    assert times == sorted(times)


def test_a_measured_curve_takes_the_place_of_the_rates() -> None:
    curve = ((1e3, 100.0), (1e5, 10_000.0))
    priced = replace(costs(), curves={"elementwise": curve}, queue=QueueTimes())
    assert priced.kernel_ns(Work("aten::add", "elementwise", 0, 10_000)) == 1000
    assert interpolate(curve, 10.0) == 100.0
    assert interpolate(curve, 1e6) == pytest.approx(100_000.0)


def test_shares_go_by_vendor_and_architecture_not_by_a_number() -> None:
    # AMD's gfx94x reports a major version of 9, which is NVIDIA's Hopper.
    known = find_gpu("MI300X")
    newer = replace(known, key="MI325X", memory_gb_per_s=6000, memory_bytes=274_877_906_944)
    assert newer.capability[0] == find_gpu("H100").capability[0]
    assert catalogue_costs(newer).efficiency == catalogue_costs(known).efficiency
    assert catalogue_costs(newer).efficiency["kernel_us"] == 4.2
    work = work_of(aten.add.Tensor, (meta(1 << 24), meta(1 << 24)), {}, meta(1 << 24))
    times = [catalogue_costs(gpu).kernel_ns(work) - 4200 for gpu in (known, newer)]
    assert times[0] / times[1] == pytest.approx(6000 / 5300, rel=1e-3)


@pytest.mark.parametrize(
    "other", [{"architecture": "rubin"}, {"vendor": "intel"}, {"vendor": "amd"}]
)
def test_an_architecture_without_a_table_is_refused(other: dict[str, str]) -> None:
    gpu = replace(find_gpu("H100"), key="X1", **other)
    named = f"{gpu.vendor}.{gpu.architecture}"
    with pytest.raises(UsageError, match=rf"X1, of the architecture {named}, .*\[{named}\]"):
        catalogue_costs(gpu)


def test_a_gpu_may_bring_all_its_shares_or_some() -> None:
    shares = dict(costs("MI300X").efficiency)
    alone = replace(find_gpu("H100"), key="X1", vendor="new", architecture="one", efficiency=shares)
    assert catalogue_costs(alone).efficiency == shares
    some = replace(find_gpu("H100"), efficiency={"sort": 0.1})
    assert catalogue_costs(some).efficiency == costs("H100").efficiency | {"sort": 0.1}
    with pytest.raises(UsageError, match="for attention_backward,"):
        catalogue_costs(replace(alone, efficiency={"sort": 0.1}))


def test_every_table_of_shares_says_where_it_comes_from() -> None:
    text = resources.files("harness.clock").joinpath("efficiency.toml").read_text()
    for vendor in tomllib.loads(text).values():
        tables = [table for table in vendor.values() if isinstance(table, dict)]
        assert tables
        assert all(table["source"] for table in tables)


def test_rows_that_start_at_odd_places_slow_16_bit_products_only() -> None:
    priced = costs("H100")
    shares = priced.efficiency

    def product_ns(columns: int, inner: int, dtype: str) -> int:
        matrix = Matrix(1, 4096, columns, inner)
        flops = 2 * 4096 * columns * inner
        launch = priced.kernel_ns(Work("aten::add", "elementwise", 0, 1))
        return priced.kernel_ns(Work("aten::mm", "gemm", flops, 1, dtype, matrix)) - launch

    # 4,088 and 4,096 columns fill equally many tiles, and so do 4,089 and 4,095.
    even = product_ns(4096, 4096, "bfloat16")
    assert product_ns(4088, 4096, "bfloat16") == even
    for dtype in ("bfloat16", "float16"):
        assert product_ns(4095, 4096, dtype) * shares["misaligned_columns"] == pytest.approx(
            even, rel=0.01
        )
        assert product_ns(4096, 4095, dtype) * shares["misaligned_inner"] == pytest.approx(
            even, rel=0.01
        )
        # The rows of both sides at odd places cost no more than the worse of the two.
        assert product_ns(4095, 4095, dtype) == product_ns(4096, 4095, dtype)
    assert product_ns(4095, 4096, "float32") == product_ns(4096, 4096, "float32")
