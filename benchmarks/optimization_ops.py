"""The pieces inside the optimizations, one against another, without a model around them.

    python benchmarks/optimization_ops.py [--rounds 30] [--threads 1]

Each group is timed in randomised, interleaved rounds in one process. A line gives the speedup over
the group's first entry, `t_first / t_this - 1`, with its 95 % interval, and the median time. CPU
times show the work that is done, not what a GPU would save by not waiting.
"""

from __future__ import annotations

import argparse
import itertools
import time
from typing import TYPE_CHECKING, Any

import torch
from transformers import GptOssConfig, Qwen3MoeConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

from harness.bench.schedule import block_orders
from harness.record.records import Sample
from harness.stats import compare
from optimizations.document_metadata import mask_by_blocks, mask_by_comparison, mask_from_device
from optimizations.moe_routing import (
    argsort_experts,
    device_offsets_experts,
    where_loop_experts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Work = Callable[[], object]

CPU = torch.device("cpu")
NUM_TOKENS = 512


def mask_groups() -> Iterator[tuple[str, dict[str, Work]]]:
    """One mask: the baseline's loop with reads, against two ways from host integers."""
    for num_tokens, num_documents, window in itertools.product((512, 2048), (4, 32), (None, 128)):
        lengths = [num_tokens // num_documents] * num_documents
        on_device = torch.tensor(lengths, dtype=torch.int32)
        yield (
            f"mask, T={num_tokens}, {num_documents} documents, window {window}",
            {
                "loop over documents": lambda on_device=on_device, window=window: mask_from_device(
                    on_device, torch.float32, window
                ),
                "comparison": lambda lengths=lengths, window=window: mask_by_comparison(
                    lengths, torch.float32, CPU, window
                ),
                "blocks": lambda lengths=lengths, window=window: mask_by_blocks(
                    lengths, torch.float32, CPU, window
                ),
            },
        )


def choose_experts(num_experts: int, top_k: int, *, skewed: bool) -> torch.Tensor:
    """`int64[T, top_k]`: drawn uniformly, or by the harmonic weights 1, 1/2, 1/3, ..."""
    weights = torch.ones(num_experts)
    if skewed:
        weights = 1.0 / torch.arange(1, num_experts + 1)
    return torch.multinomial(weights.expand(NUM_TOKENS, -1), top_k)


def make_experts(layout: str, num_experts: int, top_k: int) -> Any:
    """Frozen experts, as under LoRA, of hidden size 64."""
    config: Any
    if layout == "gpt-oss":
        config = GptOssConfig(
            hidden_size=64,
            intermediate_size=64,
            num_local_experts=num_experts,
            num_experts_per_tok=top_k,
        )
        experts: Any = GptOssExperts(config)
    else:
        config = Qwen3MoeConfig(
            hidden_size=64,
            moe_intermediate_size=64,
            num_experts=num_experts,
            num_experts_per_tok=top_k,
        )
        experts = Qwen3MoeExperts(config)
    for parameter in experts.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return experts.requires_grad_(False)


def routing_groups() -> Iterator[tuple[str, dict[str, Work]]]:
    """Forward and backward of one experts module."""
    sizes = ((8, 2), (32, 4), (128, 8))
    for layout, (num_experts, top_k), skewed in itertools.product(
        ("qwen3-moe", "gpt-oss"), sizes, (False, True)
    ):
        experts = make_experts(layout, num_experts, top_k)
        chosen = choose_experts(num_experts, top_k, skewed=skewed)
        states = torch.randn(NUM_TOKENS, 64, requires_grad=True)
        weights = torch.rand(NUM_TOKENS, top_k, requires_grad=True)
        pull = torch.randn(NUM_TOKENS, 64)

        def step(
            function: Callable[..., torch.Tensor],
            experts: Any = experts,
            inputs: tuple[torch.Tensor, ...] = (states, chosen, weights),
            pull: torch.Tensor = pull,
        ) -> None:
            function(experts, *inputs).backward(pull)

        draw = "skewed" if skewed else "uniform"
        yield (
            f"routing, {layout}, E={num_experts}, top-{top_k}, {draw}",
            {
                "where-loop": lambda step=step: step(where_loop_experts),
                "argsort": lambda step=step: step(argsort_experts),
                "device-offsets": lambda step=step: step(device_offsets_experts),
            },
        )


def offset_groups() -> Iterator[tuple[str, dict[str, Work]]]:
    """Where each expert's rows end, from choices that are sorted already."""
    for num_experts, top_k in ((8, 2), (32, 4), (128, 8)):
        rows = choose_experts(num_experts, top_k, skewed=False).reshape(-1).sort().values
        ones = torch.ones_like(rows)
        highest = num_experts - 1

        def bincount(rows: torch.Tensor = rows, num: int = num_experts) -> torch.Tensor:
            return torch.bincount(rows, minlength=num).cumsum(0, dtype=torch.int32)

        def histc(
            rows: torch.Tensor = rows, num: int = num_experts, highest: int = highest
        ) -> torch.Tensor:
            return torch.histc(rows.float(), num, 0, highest).cumsum(0, dtype=torch.int32)

        def scatter(
            rows: torch.Tensor = rows, ones: torch.Tensor = ones, num: int = num_experts
        ) -> torch.Tensor:
            counts = torch.zeros(num, dtype=torch.int64).scatter_add_(0, rows, ones)
            return counts.cumsum(0, dtype=torch.int32)

        def search(rows: torch.Tensor = rows, num: int = num_experts) -> torch.Tensor:
            return torch.searchsorted(rows, torch.arange(num), right=True, out_int32=True)

        assert bincount().equal(histc())
        assert bincount().equal(scatter())
        assert bincount().equal(search())
        yield (
            f"offsets, E={num_experts}, {rows.numel()} rows",
            {"bincount": bincount, "histc": histc, "scatter_add_": scatter, "searchsorted": search},
        )


def measure(works: Mapping[str, Work], num_rounds: int) -> list[Sample]:
    """Time each entry once a round, in a random order; two rounds of warm-up are left out."""
    orders = block_orders(list(works), seed=0)
    samples = []
    for block in range(-2, num_rounds):
        for name in next(orders):
            start = time.perf_counter_ns()
            works[name]()
            elapsed_ms = (time.perf_counter_ns() - start) / 1e6
            if block >= 0:
                samples.append(
                    Sample(
                        order=len(samples),
                        block=block,
                        arm=name,
                        phase="batch",
                        duration_ms=elapsed_ms,
                    )
                )
    return samples


def main() -> None:
    """Print every group."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    for title, works in itertools.chain(mask_groups(), routing_groups(), offset_groups()):
        print(title)
        samples = measure(works, options.rounds)
        baseline = next(iter(works))
        for name in works:
            found = compare(samples, arm=name, baseline=baseline, phase="batch", source="measured")
            assert found is not None, "every entry is timed in every round"
            figures = f"{found.speedup:+8.1%}  [{found.low:+.1%}, {found.high:+.1%}]"
            if name == baseline:
                figures = "baseline"
            print(f"  {name:20} {found.arm_median_ms:9.3f} ms  {figures}")


if __name__ == "__main__":
    main()
