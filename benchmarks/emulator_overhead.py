"""What an emulated audit costs, against torch's own `FakeTensorMode` on the same step.

Two steps: Qwen3-14B at full size (8,192 tokens, checkpointing, forward and backward) on shapes
only, and a small Qwen3 with real values. The arms run interleaved in one process, so that a busy
machine slows all of them; the figures to trust are the ratios.

    python benchmarks/emulator_overhead.py [--layers 40] [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import time
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Qwen3Config, Qwen3ForCausalLM

from harness.audit.emulated.emulated_audit import EmulatedAudit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def qwen3_14b(num_layers: int) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=151_936, hidden_size=5_120, intermediate_size=17_408,
        num_hidden_layers=num_layers, num_attention_heads=40, num_key_value_heads=8, head_dim=128,
        tie_word_embeddings=False, use_cache=False, attn_implementation="sdpa",
    )  # fmt: skip


def qwen3_small() -> Qwen3Config:
    return Qwen3Config(
        vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, use_cache=False,
        attn_implementation="sdpa",
    )  # fmt: skip


def build(config: Qwen3Config, tokens: int, device: str, dtype: torch.dtype) -> Callable[[], None]:
    """One step, forward and backward, of a model made on `device`."""
    with torch.device(device):
        model = Qwen3ForCausalLM._from_config(config, dtype=dtype)
        ids = torch.randint(0, config.vocab_size, (1, tokens), device=device)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()

    def step() -> None:
        # A ready mask mapping: building one reads a value, which fake tensors refuse.
        mask = {"full_attention": None}
        model(input_ids=ids, attention_mask=mask, labels=ids).loss.backward()
        model.zero_grad()

    return step


class DoNothing(TorchDispatchMode):
    """Passes every op on: the least any dispatch mode costs."""

    num_ops = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        self.num_ops += 1
        return func(*args, **(kwargs or {}))


def seconds(step: Callable[[], None]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def emulated(build_step: Callable[[], Callable[[], None]], mode: Any) -> tuple[float, int, float]:
    """Seconds of one audited step after a warm one, its ops, and its syncs."""
    with EmulatedAudit(mode=mode, boundary="explicit", skip=1, steps=1) as audit:
        step = build_step()
        step()
        audit.mark_step()
        before = audit.device.dispatcher.num_ops
        elapsed_s = seconds(step)
        num_ops = audit.device.dispatcher.num_ops - before
        audit.mark_step()
    return elapsed_s, num_ops, audit.report.syncs_per_step or 0.0


def compare(name: str, config: Qwen3Config, tokens: int, mode: Any, rounds: int) -> None:
    dtype = torch.bfloat16 if mode == "shapes" else torch.float32
    fake = FakeTensorMode()
    with fake:
        fake_step = build(config, tokens, "cpu", dtype)
        fake_step()
    plain_step = build(config, tokens, "meta" if mode == "shapes" else "cpu", dtype)
    times: dict[str, list[float]] = {"emulated": [], "fake": [], "nothing": []}
    for _ in range(rounds):
        elapsed_s, num_ops, syncs = emulated(lambda: build(config, tokens, "cuda", dtype), mode)
        times["emulated"].append(elapsed_s)
        with fake:
            times["fake"].append(seconds(fake_step))
        nothing = DoNothing()
        with nothing:
            times["nothing"].append(seconds(plain_step))
    medians = {arm: statistics.median(values) for arm, values in times.items()}
    print(f"{name}: {tokens} tokens, {config.num_hidden_layers} layers, {syncs:g} syncs per step")
    print(f"  emulated audit   {_figures(medians['emulated'], num_ops)}")
    print(f"  FakeTensorMode   {_figures(medians['fake'], nothing.num_ops)}")
    print(f"  do-nothing mode  {_figures(medians['nothing'], nothing.num_ops)}")
    print(f"  emulated audit / FakeTensorMode: {medians['emulated'] / medians['fake']:.2f}")


def _figures(total_s: float, num_ops: int) -> str:
    return f"{total_s:8.3f} s  {num_ops:6} ops  {total_s / num_ops * 1e6:6.1f} us/op"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=8_192)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    big = qwen3_14b(options.layers)
    compare("Qwen3-14B, shapes only", big, options.tokens, "shapes", options.rounds)
    compare("small Qwen3, real values", qwen3_small(), 64, "values", options.rounds)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process: {peak_mb:.0f} MB")


if __name__ == "__main__":
    main()
