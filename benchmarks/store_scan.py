"""How long a store of 1,000 and of 10,000 runs takes to list, with and without its cache.

    python benchmarks/store_scan.py [--runs 1000 10000] [--rounds 3]

Each figure is the median over interleaved rounds in one process; the file system's own cache is
warm in both, so what is compared is opening every `run.json` against one stamp for each.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from harness.record.records import PHASES, Arm, Machine, RunRecord, Sample, ScenarioRecord
from harness.record.storage import LocalStorage
from harness.record.store import Store
from harness.stats import compare_all

if TYPE_CHECKING:
    from collections.abc import Callable

ARMS = (
    Arm(name="baseline", variants={"fix": "before"}, role="baseline"),
    Arm(name="a/a", variants={"fix": "before"}, role="a/a"),
    *(Arm(name=f"arm-{i}", variants={"fix": "after"}) for i in range(4)),
)
SAMPLES = [
    Sample(order=0, block=block, arm=arm.name, phase=phase, duration_ms=300.0 + (7 * block) % 11)
    for block in range(12)
    for arm in ARMS
    for phase in PHASES
]


def example() -> RunRecord:
    """A run of ordinary size: six arms, four phases, 288 raw samples."""
    return RunRecord(
        id="20260101T000000Z-qwen3-14b-packed-sft-cpu-000000",
        created_utc="2026-01-01T00:00:00Z",
        status="complete",
        command="gapless bench qwen3-14b-packed-sft",
        source="measured",
        machine=Machine(
            device="cpu",
            fingerprint="0" * 64,
            hostname="host",
            platform="Linux x86_64",
            python="3.11.7",
            torch="2.13.0",
            transformers="5.24.0",
            gapless="0.1.0",
            cuda=None,
            cpu_model="cpu",
            num_cpu_cores=2,
            num_threads=2,
            memory_bytes=1 << 34,
            governor=None,
        ),
        scenario=ScenarioRecord(
            name="qwen3-14b-packed-sft",
            family="packed-sft",
            model="Qwen3-14B",
            fit="narrow",
            dtype="float32",
            attention="sdpa-mask",
            checkpointing=True,
            weights="random",
            adapter="none",
            seed=0,
            config={"num_layers": 40, "hidden_size": 64},
        ),
        arms=ARMS,
        comparisons=compare_all(SAMPLES, ARMS, source="measured"),
    )


def fill(root: Path, num_runs: int) -> None:
    """Lay out runs as the store does, without the fsyncs that make filling slow."""
    template = Store(str(root)).write(example(), SAMPLES)
    first = root / template.id
    run, parquet = (first / "run.json").read_text(), (first / "samples.parquet").read_bytes()
    for number in range(1, num_runs):
        run_id = f"{template.id[:-6]}{number:06x}"
        (root / run_id).mkdir()
        (root / run_id / "run.json").write_text(run.replace(template.id, run_id))
        (root / run_id / "samples.parquet").write_bytes(parquet)


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(root: Path, rounds: int) -> None:
    """Print the times of one store, in ms, and their ratio."""
    store = Store(str(root))

    def forget() -> None:
        for path in root.glob(".index-*"):
            path.unlink()

    cold, warm, every = [], [], []
    for _ in range(rounds):
        forget()
        cold.append(seconds(store.listing))
        warm.append(seconds(store.listing))
        every.append(seconds(lambda: list(store.listing().records)))
    stamps = seconds(LocalStorage(root).scan)
    (index,) = root.glob(".index-*")
    print(
        f"{len(store.listing().records):>6} runs: cold {1e3 * median(cold):.0f} ms, "
        f"warm {1e3 * median(warm):.0f} ms ({median(cold) / median(warm):.1f} times as fast), "
        f"of which stamps {1e3 * stamps:.0f} ms; "
        f"warm with every record decoded {1e3 * median(every):.0f} ms; "
        f"cache {index.stat().st_size / 1e6:.1f} MB"
    )


def main() -> None:
    """Fill and measure a store of each size asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for num_runs in options.runs:
        with tempfile.TemporaryDirectory() as folder:
            fill(Path(folder), num_runs)
            measure(Path(folder), options.rounds)


if __name__ == "__main__":
    main()
