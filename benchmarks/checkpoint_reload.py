"""Variants of checkpoint reload, one against another, on a Qwen3 of 36 layers and narrow width.

    python benchmarks/checkpoint_reload.py [--rounds 24] [--threads 1] [--link-gb-per-s 0.05]

Forward and backward of one model are timed in randomised, interleaved rounds in one process. A line
gives the speedup over `single-buffer`, `t_single / t_this - 1`, with its 95 % interval, the median
time, and the device memory of the reload buffers. With a CUDA device the model is wider and CUDA
events are the clock.

On a CPU a copy takes some per mille of a step, so there is little to hide. `--link-gb-per-s` makes
the CPU engine's copies last as long as over a link of that speed; the figures are then those of the
schedule over a slowed link, not of this machine, and the table says so.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from harness.bench.schedule import block_orders
from harness.record.records import Sample
from harness.stats import compare
from optimizations.checkpoint_reload import CheckpointReload
from optimizations.copy_engine import CopyEngine, ThreadCopyEngine, open_copy_engine

if TYPE_CHECKING:
    from optimizations.checkpoint_reload import CheckpointReloadAttachment

BASELINE = "single-buffer"
NUM_WARMUPS = 2


class SlowLinkEngine(ThreadCopyEngine):
    """Copies that last as long as their bytes take over a link."""

    def __init__(self, bytes_per_s: float, *, shared_lane: bool) -> None:
        super().__init__(shared_lane=shared_lane)
        self._bytes_per_s = bytes_per_s

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        end = time.perf_counter() + source.numel() * source.element_size() / self._bytes_per_s
        super().copy(source, target)
        time.sleep(max(0.0, end - time.perf_counter()))


@dataclass(frozen=True)
class Widths:
    """What the device can time in a second or so."""

    num_tokens: int
    hidden_size: int
    dtype: torch.dtype


def widths_for(device: torch.device) -> Widths:
    if device.type == "cuda":
        return Widths(num_tokens=16_384, hidden_size=2048, dtype=torch.bfloat16)
    return Widths(num_tokens=128, hidden_size=256, dtype=torch.float32)


def build(device: torch.device, widths: Widths) -> tuple[Any, torch.Tensor]:
    """The model in training mode and one row of tokens."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=256,
        hidden_size=widths.hidden_size,
        intermediate_size=widths.hidden_size // 2,
        num_hidden_layers=36,
        num_attention_heads=max(widths.hidden_size // 128, 4),
        num_key_value_heads=max(widths.hidden_size // 512, 1),
        head_dim=min(widths.hidden_size // 4, 128),
        use_cache=False,
    )
    model = Qwen3ForCausalLM(config).to(device, widths.dtype).train()
    return model, torch.randint(0, 256, (1, widths.num_tokens), device=device)


def timed_step_ms(model: Any, tokens: torch.Tensor) -> float:
    """Forward and backward, by the device's clock."""

    def step() -> None:
        model(input_ids=tokens, labels=tokens).loss.backward()

    if tokens.is_cuda:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        step()
        end.record()
        end.synchronize()
        elapsed_ms = start.elapsed_time(end)
    else:
        begin_ns = time.perf_counter_ns()
        step()
        elapsed_ms = (time.perf_counter_ns() - begin_ns) / 1e6
    model.zero_grad()
    return elapsed_ms


def measure(
    attachment: CheckpointReloadAttachment,
    model: Any,
    tokens: torch.Tensor,
    variants: list[str],
    num_rounds: int,
) -> tuple[list[Sample], dict[str, int]]:
    """Samples of every round, and each variant's reload buffers in bytes."""
    samples: list[Sample] = []
    buffer_bytes: dict[str, int] = {}
    orders = block_orders(variants, seed=0)
    for block in range(-NUM_WARMUPS, num_rounds):
        for variant in next(orders):
            attachment.select(variant)
            timed_step_ms(model, tokens)  # what the variant before left behind is not its own
            elapsed_ms = timed_step_ms(model, tokens)
            buffer_bytes[variant] = attachment.device_buffer_bytes()
            if block >= 0:
                samples.append(
                    Sample(
                        order=len(samples),
                        block=block,
                        arm=variant,
                        phase="batch",
                        duration_ms=elapsed_ms,
                    )
                )
    return samples, buffer_bytes


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--link-gb-per-s", type=float, help="slow CPU copies to this link speed")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    link: float | None = options.link_gb_per_s if device.type == "cpu" else None

    def open_engine(device: torch.device, *, shared_lane: bool) -> CopyEngine:
        if link is None:
            return open_copy_engine(device, shared_lane=shared_lane)
        return SlowLinkEngine(link * 1e9, shared_lane=shared_lane)

    widths = widths_for(device)
    model, tokens = build(device, widths)
    optimization = CheckpointReload(open_engine=open_engine)
    # torch's own copies cannot be slowed, so its variant has no place beside slowed ones.
    variants = [v.name for v in optimization.variants if link is None or v.role != "peer"]
    attachment = optimization.attach(model)
    samples, buffer_bytes = measure(attachment, model, tokens, variants, options.rounds)
    attachment.detach()

    input_bytes = widths.num_tokens * widths.hidden_size * widths.dtype.itemsize
    copies = "copies as they are" if link is None else f"copies slowed to {link:g} GB/s"
    print(f"36 layers, inputs of {input_bytes / 2**20:.1f} MiB, {device.type}, {copies}")
    for variant in variants:
        found = compare(samples, arm=variant, baseline=BASELINE, phase="batch", source="measured")
        assert found is not None, "every variant is timed in every round"
        figures = f"{found.speedup:+8.2%}  [{found.low:+.2%}, {found.high:+.2%}]  {found.verdict}"
        if variant == BASELINE:
            figures = "baseline"
        print(
            f"  {variant:14} {found.arm_median_ms:9.2f} ms  "
            f"{buffer_bytes[variant] / 2**20:6.1f} MiB  {figures}"
        )


if __name__ == "__main__":
    main()
