"""What the virtual clock adds to an emulated audit: one Qwen3-14B step with and without it.

One model on one emulated device, shapes only; steps with the clock and without it take turns, so
that a busy machine slows both, and processor time is counted. The figure to trust is the ratio.

    python benchmarks/clock_overhead.py [--layers 40] [--rounds 7]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from harness.audit.emulated.emulated_audit import EmulatedAudit
from harness.clock.clock_figures import figures_of

if TYPE_CHECKING:
    from collections.abc import Callable


def build(num_layers: int, tokens: int) -> Callable[[], None]:
    """Forward and backward with checkpointing, at the real widths."""
    config = Qwen3Config(
        vocab_size=151_936, hidden_size=5_120, intermediate_size=17_408,
        num_hidden_layers=num_layers, num_attention_heads=40, num_key_value_heads=8, head_dim=128,
        tie_word_embeddings=False, use_cache=False, attn_implementation="sdpa",
    )  # fmt: skip
    with torch.device("cuda"):
        model = Qwen3ForCausalLM._from_config(config, dtype=torch.bfloat16)
        ids = torch.randint(0, config.vocab_size, (1, tokens), device="cuda")
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()

    def step() -> None:
        mask = {"full_attention": None}
        model(input_ids=ids, attention_mask=mask, labels=ids).loss.backward()
        model.zero_grad()

    return step


def seconds(step: Callable[[], object]) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=8_192)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    times: dict[str, list[float]] = {"without": [], "with": [], "figures": []}
    with EmulatedAudit(mode="shapes", boundary="explicit", redundancy=False) as audit:
        audit.record(False)
        clock = audit.device.clock
        assert clock is not None
        step = build(options.layers, options.tokens)
        step()
        pacer = audit.device.dispatcher.pacer
        for _ in range(options.rounds):
            audit.device.dispatcher.pacer = None
            times["without"].append(seconds(step))
            audit.device.dispatcher.pacer = pacer
            clock.start_recording(keep_tape=True)
            times["with"].append(seconds(step))
            recording = clock.stop_recording()
            times["figures"].append(seconds(partial(figures_of, recording)))
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratios = [w / o for w, o in zip(times["with"], times["without"], strict=True)]
    print(f"Qwen3-14B, {options.layers} layers, {options.tokens} tokens, shapes only")
    print(f"  step of the audit without the clock  {medians['without']:.3f} s")
    print(f"  with it, recording                   {medians['with']:.3f} s")
    print(f"  working out the figures              {medians['figures']:.3f} s")
    print(f"  with / without: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
