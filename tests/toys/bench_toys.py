"""Small workloads for the bench's own tests: importable by the child process, with a clock of
their own, and able to fail in every way a real one can."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from harness.bench.memory import TensorBytesPeak
from harness.bench.plan import BenchPlan
from harness.bench.sync_probe import SyncsSeen
from harness.errors import UsageError
from harness.record.audit_report import AuditReport
from harness.record.records import Arm, ScenarioRecord, SyncCount
from harness.workload import Variant

if TYPE_CHECKING:
    from collections.abc import Mapping

WIDTH = 8
ROWS = 4

BASELINE = Arm(name="baseline", variants={"toy-fix": "slow"}, role="baseline")
FAST = Arm(name="fast", variants={"toy-fix": "fast"})


def arm(variant: str) -> Arm:
    return Arm(name=variant, variants={"toy-fix": variant})


def toy_plan(*arms: Arm, **changes: Any) -> BenchPlan:
    """A plan on virtual time; `spec` and every field can be changed."""
    settings: dict[str, Any] = {
        "factory": "tests.toys.bench_toys:build",
        "spec": {},
        "scenario": "toy",
        "device": "emulated:toy",
        "backend": "tests.toys.bench_toys:open_virtual",
        "arms": arms or (BASELINE, FAST),
        "max_blocks": 12,
        "precision": 1e-9,
        "num_threads": 1,
        "command": "toy",
    }
    return BenchPlan(**(settings | changes))


class VirtualTime:
    """Milliseconds that pass only where a toy says so."""

    def __init__(self) -> None:
        self.now_ms = 0.0


TIME = VirtualTime()


class VirtualClock:
    def __init__(self) -> None:
        self.marks: list[float] = []

    def start(self) -> None:
        self.marks = [TIME.now_ms]

    def mark(self) -> None:
        self.marks.append(TIME.now_ms)

    def finish(self) -> None:
        self.mark()

    def elapsed_ms(self, first: int, last: int) -> float:
        return self.marks[last] - self.marks[first]


class VirtualBackend:
    source = "measured"
    device_type = "cpu"
    has_values = True

    def clock(self) -> VirtualClock:
        return VirtualClock()

    def memory_probes(self) -> tuple[TensorBytesPeak, ...]:
        return (TensorBytesPeak(),)

    def sync_probe(self) -> None:
        return None

    def energy_meter(self) -> None:
        return None


def open_virtual(device: str) -> Any:
    return nullcontext(VirtualBackend())


def sync_probe(plan: Any) -> Any:
    """Pretends that each arm has as many syncs as its name has letters, and its name as trace."""
    repeats = plan.spec.get("trace_repeats", 1)

    def count(workload: Any, arm: str) -> SyncsSeen:
        sync = SyncCount(
            arm=arm, phase="batch", count=len(arm), source="modelled", method="emulated"
        )
        report = AuditReport(
            source="emulated", target=arm, device="toy", steps=1, syncs_per_step=len(arm)
        )
        return SyncsSeen((sync,), audit=report, trace=arm.encode() * repeats)

    return count


class ToyModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.unused = nn.Linear(1, 1)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(WIDTH, 1)
        self.register_buffer("num_forwards", torch.zeros(()))
        self.variant = "slow"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.num_forwards += 1
        hidden = self.drop(self.first(x))
        if self.variant == "rounded":
            hidden = hidden * (1 + 1e-5)
        if self.variant == "detached":
            hidden = hidden.detach()
        if self.variant == "extra":
            hidden = hidden + self.unused(torch.zeros(1, 1))
        if self.variant == "nan":
            hidden = hidden * float("nan")
        if self.variant == "own-dropout":
            hidden = self.drop(hidden)
        return self.last(hidden).pow(2).mean()


COST_MS = {"slow": 10.0, "fast": 5.0}


@dataclass
class ToyWorkload:
    """Takes the virtual time that its variant costs, with a jitter that differs by step."""

    spec: Mapping[str, Any]
    num_tokens: int = ROWS
    num_batches: int = 3
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def __post_init__(self) -> None:
        self.model = ToyModel()
        # Steps by hand unless asked: to make a torch optimizer imports its compiler, two seconds
        # in each of many child processes.
        if self.spec.get("adamw"):
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(0)
        self.batches = torch.randn(self.num_batches, ROWS, WIDTH, generator=generator)
        self.jitter = random.Random(0)
        self.batch = 0
        self.num_forwards = 0
        self.log: list[tuple[str, int, float]] = []
        """Variant, batch and loss of every forward."""

    def describe(self) -> ScenarioRecord:
        return ScenarioRecord(
            name="toy",
            family="toy",
            model="Toy",
            fit="full",
            dtype="float32",
            attention="none",
            checkpointing=False,
            weights="random",
            adapter="none",
            seed=0,
            config={"hidden_size": WIDTH},
        )

    def select_batch(self, index: int) -> None:
        self.batch = index % self.num_batches

    def forward(self) -> torch.Tensor:
        self.num_forwards += 1
        self._spend(0.4)
        fault = self.spec.get("fault")
        if fault and self.num_forwards > fault.get("after", 0):
            fail(fault["kind"])
        self.loss = self.model(self.batches[self.batch])
        self.log.append((self.model.variant, self.batch, float(self.loss.detach())))
        return self.loss

    def backward(self) -> None:
        self._spend(0.5)
        self.loss.backward()

    def optimizer_step(self) -> None:
        self._spend(0.1)
        if self.spec.get("adamw"):
            self.optimizer.step()
        else:
            with torch.no_grad():
                for parameter in self.model.parameters():
                    if parameter.grad is not None:
                        parameter -= self.spec.get("learning_rate", 0.1) * parameter.grad
        self.zero_grad()

    def zero_grad(self) -> None:
        self.model.zero_grad()

    def _spend(self, share: float) -> None:
        noise = self.spec.get("noise", 0.01)
        cost_ms = COST_MS.get(self.model.variant, COST_MS["slow"])
        TIME.now_ms += share * cost_ms * (1 + self.jitter.uniform(-noise, noise))


def fail(kind: str) -> None:
    """End this process, or this step, in one of the ways a workload can."""
    if kind == "raise":
        raise ValueError("the router\nlost its way")
    if kind == "memory":
        torch.ones(1 << 34)
    if kind == "crash":
        ctypes.string_at(0)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "exit":
        print("gone fishing")
        os._exit(7)
    if kind == "hang":
        time.sleep(600)


@dataclass(frozen=True)
class ToyFix:
    """Each variant but `slow` and `fast` computes something else, on purpose."""

    allowed: float = 0.0
    name: str = "toy-fix"
    summary: str = "toy"
    trade_off: str = "none"
    variants: tuple[Variant, ...] = (
        Variant("slow", "baseline", "slow"),
        Variant("fast", "published", "fast"),
        *(
            Variant(name, "peer", name)
            for name in ("rounded", "detached", "extra", "nan", "own-dropout", "impossible")
        ),
    )

    def requires(self, model: nn.Module, variant: str) -> str | None:
        return "it needs a GPU of the year 3000." if variant == "impossible" else None

    def attach(self, model: nn.Module) -> ToyAttachment:
        return ToyAttachment(model)

    def tolerance(self, variant: str, dtype: torch.dtype) -> tuple[float, str]:
        if variant == "rounded" and self.allowed:
            return self.allowed, "one more rounding"
        return 0.0, "the same order"


class ToyAttachment:
    def __init__(self, model: Any) -> None:
        self.model = model

    def select(self, variant: str) -> None:
        self.model.variant = variant

    def detach(self) -> None:
        self.model.variant = "slow"


BUILT: list[ToyWorkload] = []
"""Workloads built in this process, for tests that look at one afterwards."""


def build(spec: Mapping[str, Any]) -> tuple[ToyWorkload, dict[str, ToyFix]]:
    if "pid_file" in spec:
        Path(spec["pid_file"]).write_text(str(os.getpid()))
    if "build_fault" in spec:
        fail(spec["build_fault"])
    if "unknown" in spec:
        raise UsageError(f"No toy {spec['unknown']!r}; there is one.")
    workload = ToyWorkload(spec)
    BUILT.append(workload)
    return workload, {"toy-fix": ToyFix(spec.get("allowed", 0.0))}
