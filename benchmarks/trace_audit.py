"""How fast a large trace is audited: ours, HolisticTraceAnalysis, and plain `json`.

A trace of the asked size is made by repeating a real one with shifted time stamps and numbers, so
it is structurally true. Each tool runs in a child process of its own; the runs alternate, and
wall time and peak resident memory are read from the operating system.

    python benchmarks/trace_audit.py --mb 500 --hta-python /path/to/venv/bin/python

Ours runs the whole audit. HolisticTraceAnalysis parses and runs its temporal, idle, overlap and
kernel breakdowns. `json` only loads the file.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DEFAULT_TRACE = ROOT / "tests/trace/data/h100_owlv2_tail.json.gz"

OURS = """
import sys
from harness.record.audit_report import to_json
from harness.audit.trace import audit_trace
report = audit_trace(sys.argv[1])
to_json(report)
print(sum(report.api_calls.values()))
"""
HTA = """
import os, sys, warnings
warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(
    trace_files={0: os.path.basename(sys.argv[1])}, trace_dir=os.path.dirname(sys.argv[1])
)
analysis.get_temporal_breakdown(visualize=False)
analysis.get_idle_time_breakdown(visualize=False)
analysis.get_comm_comp_overlap(visualize=False)
analysis.get_gpu_kernel_breakdown(visualize=False)
"""
JSON = """
import json, sys
with open(sys.argv[1], "rb") as file:
    json.load(file)
"""


@dataclass(frozen=True)
class Run:
    """One child process."""

    seconds: float
    peak_mb: float


def make_trace(base: Path, target: Path, size_mb: float) -> int:
    """Write a trace of about `size_mb` by repeating `base`; returns the number of events."""
    data = base.read_bytes()
    trace = json.loads(gzip.decompress(data) if base.suffix == ".gz" else data)
    events: list[dict[str, Any]] = trace.pop("traceEvents")
    timed = [e for e in events if e.get("ph") == "X"]
    first = min(e["ts"] for e in timed)
    width = max(e["ts"] + e["dur"] for e in timed) - first + 1000
    highest = max(
        (e["args"].get("correlation", 0) for e in timed if isinstance(e.get("args"), dict)),
        default=0,
    )
    header = json.dumps(trace)
    count = copies = 0
    with target.open("w", encoding="utf-8") as out:
        out.write(header[:-1] + (', "traceEvents": [\n' if trace else '"traceEvents": [\n'))
        while out.tell() < size_mb * 1e6:
            for event in events:
                if copies and event.get("ph") == "M":
                    continue
                out.write(",\n  " if count else "  ")
                out.write(json.dumps(_shifted(event, copies, width, highest), indent=2))
                count += 1
            copies += 1
        out.write("\n]}\n")
    return count


def _shifted(event: dict[str, Any], copy: int, width: float, highest: int) -> dict[str, Any]:
    moved = dict(event)
    if "ts" in moved:
        moved["ts"] = round(moved["ts"] + copy * width, 3)
    shift = copy * (highest + 1)
    if event.get("ph") in ("s", "f"):
        moved["id"] = event["id"] + shift
    args = event.get("args")
    if isinstance(args, dict) and isinstance(args.get("correlation"), int):
        moved["args"] = {**args, "correlation": args["correlation"] + shift}
    return moved


def run_child(python: str, code: str, trace: Path) -> Run:
    """Run one tool in a process of its own."""
    start = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(
        [python, "-c", code, str(trace)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert child.stderr is not None
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    if status != 0:
        raise SystemExit(f"a child failed:\n{said.decode(errors='replace')[-2000:]}")
    return Run(seconds, usage.ru_maxrss / 1024)


def main() -> None:
    """Print one line a tool, and ratios to ours."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--trace", type=Path, default=DEFAULT_TRACE, help="trace to repeat")
    parser.add_argument("--mb", type=float, default=500.0, help="size of the trace to make")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each tool")
    parser.add_argument("--hta-python", help="Python of an environment with HolisticTraceAnalysis")
    parser.add_argument("--gzip", action="store_true", help="also audit the trace as .json.gz")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        count = make_trace(arguments.trace, trace, arguments.mb)
        size = trace.stat().st_size / 1e6
        print(
            f"{size:.0f} MB, {count:,} events, from {arguments.trace.name}; {os.cpu_count()} CPUs"
        )
        tools: dict[str, tuple[str, str, Path]] = {"gapless": (sys.executable, OURS, trace)}
        if arguments.gzip:
            packed = trace.with_suffix(".json.gz")
            with trace.open("rb") as plain, gzip.open(packed, "wb", compresslevel=6) as out:
                while block := plain.read(1 << 22):
                    out.write(block)
            tools["gapless, gzip"] = (sys.executable, OURS, packed)
        tools["json.load"] = (sys.executable, JSON, trace)
        if arguments.hta_python:
            tools["HolisticTraceAnalysis"] = (arguments.hta_python, HTA, trace)
        runs: dict[str, list[Run]] = {name: [] for name in tools}
        for _ in range(arguments.repeats):
            for name, tool in tools.items():
                runs[name].append(run_child(*tool))
        ours = runs["gapless"]
        for name, found in runs.items():
            ratios = [run.seconds / mine.seconds for run, mine in zip(found, ours, strict=True)]
            seconds = statistics.median(run.seconds for run in found)
            print(
                f"{name:22s} {seconds:7.2f} s  {size / seconds:6.0f} MB/s  "
                f"peak {max(run.peak_mb for run in found):6.0f} MB  "
                f"{statistics.median(ratios):5.1f} times ours "
                f"({min(ratios):.1f} to {max(ratios):.1f})"
            )


if __name__ == "__main__":
    main()
