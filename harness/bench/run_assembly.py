"""Makes one record from the events of the child, however the child ended."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from harness.bench.child_events import (
    Built,
    Ended,
    EnergyMeasured,
    Event,
    Failed,
    MachineSeen,
    MemoryMeasured,
    Noted,
    ParityChecked,
    Stage,
    SteadinessSeen,
    SyncsCounted,
    Timed,
    Traced,
)
from harness.counts import counted
from harness.errors import UsageError
from harness.machine.machine import describe_machine
from harness.record.attachments import Attachments
from harness.record.records import RunRecord, Sample, ScenarioRecord, Status, Steadiness
from harness.record.store import new_run_id
from harness.stats import compare_all, throughput

if TYPE_CHECKING:
    from harness.bench.plan import BenchPlan
    from harness.record.records import Energy, Machine, MemoryPeak, Overlap, Parity, SyncCount

_STAGE_WORDS = {
    "start": "while it started",
    "build": "while the workload was built",
    "warm-up": "during warm-up",
    "parity": "during the parity check",
    "timing": "during the timed blocks",
    "memory": "during the memory pass",
    "syncs": "during the sync pass",
    "energy": "during the energy pass",
}
_PYTHON_FRAME = re.compile(r'File "(?:.*/)?([^"/]+)", line (\d+) in (\S+)')


@dataclass
class Seen:
    """Everything the child has reported so far."""

    stage: Stage = field(default_factory=lambda: Stage(name="start"))
    machine: Machine | None = None
    built: Built | None = None
    steadiness: Steadiness = field(default_factory=Steadiness)
    samples: list[Sample] = field(default_factory=list)
    parity: list[Parity] = field(default_factory=list)
    memory: list[MemoryPeak] = field(default_factory=list)
    syncs: list[SyncCount] = field(default_factory=list)
    overlap: list[Overlap] = field(default_factory=list)
    attachments: Attachments = field(default_factory=Attachments)
    energy: list[Energy] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ended: Ended | None = None
    failed: Failed | None = None

    def add(self, event: Event) -> None:
        """Add one event."""
        match event:
            case Stage():
                self.stage = event
            case MachineSeen(machine=machine):
                self.machine = machine
            case SteadinessSeen(steadiness=steadiness):
                self.steadiness = steadiness
            case Built():
                self.built = event
            case Timed(samples=samples):
                self.samples.extend(samples)
            case ParityChecked(parity=parity):
                self.parity.extend(parity)
            case MemoryMeasured(memory=memory):
                self.memory.extend(memory)
            case SyncsCounted(syncs=syncs, overlap=overlap, audit=audit):
                self.syncs.extend(syncs)
                self.overlap.extend(overlap)
                if audit is not None:
                    self.attachments.audits.append(audit)
            case Traced(arm=arm, content=content):
                self.attachments.traces[arm] = content
            case EnergyMeasured(energy=energy):
                self.energy.append(energy)
            case Noted(text=text):
                self.notes.append(text)
            case Ended():
                self.ended = event
            case Failed():
                self.failed = event

    @property
    def num_blocks(self) -> int:
        """Blocks in which at least one arm was timed."""
        return len({sample.block for sample in self.samples if not sample.warmup})


@dataclass(frozen=True)
class Ending:
    """How the child ended, as the parent saw it."""

    status: int
    """Exit status; negative is the signal that ended it."""
    killed_because: str | None = None
    """Why the parent killed it, if it did: `by a second Ctrl-C`, `for not ending within 600 s`."""
    output: str = ""
    """The end of what the child printed."""


def assemble_record(
    plan: BenchPlan, seen: Seen, ending: Ending, *, began: datetime, duration_s: float
) -> RunRecord:
    """One record of whatever was measured. Raises `UsageError` where the plan cannot run here."""
    if seen.failed is not None and seen.failed.kind == "usage":
        raise UsageError(seen.failed.message)
    status, reason = judge(seen, ending)
    samples, arms = tuple(seen.samples), plan.arms
    source = seen.built.source if seen.built else "measured"
    machine = seen.machine or describe_machine(plan.device)
    notes = list(plan.notes) + seen.notes
    if seen.ended is not None and seen.ended.cause == "no-arm-left":
        notes.append("No arm but the baseline passed parity, so nothing was timed.")
    return RunRecord(
        id=new_run_id(plan.scenario, machine.device, began),
        created_utc=began.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        status=status,
        reason=reason,
        command=plan.command,
        source=source,
        machine=machine,
        scenario=seen.built.scenario if seen.built else plan.outline or _unbuilt(plan),
        arms=arms,
        comparisons=compare_all(
            samples, arms, source=source, confidence=plan.confidence, margin=plan.margin
        ),
        parity=tuple(seen.parity),
        memory=tuple(seen.memory),
        throughput=(throughput(samples, arms, seen.built.num_tokens, source) if seen.built else ()),
        energy=tuple(seen.energy),
        syncs=tuple(seen.syncs),
        overlap=tuple(seen.overlap),
        steadiness=seen.steadiness,
        claims=plan.claims,
        saved_work=plan.saved_work,
        num_samples=len(samples),
        duration_s=duration_s,
        notes=tuple(notes),
    )


def judge(seen: Seen, ending: Ending) -> tuple[Status, str | None]:
    """Whether the run is complete, was stopped, or failed, and why in one sentence."""
    place = _place(seen.stage)
    if seen.failed is not None:
        what = "Out of memory" if seen.failed.kind == "memory" else "The workload failed"
        mend = (
            "; use a smaller batch or model, or an arm that needs less memory"
            if seen.failed.kind == "memory"
            else ""
        )
        return "failed", f"{what} {place}: {seen.failed.message.rstrip('.')}{mend}."
    if seen.ended is not None:
        if seen.ended.cause != "stopped":
            return "complete", None
        blocks = counted(seen.num_blocks, "timed block")
        return "incomplete", f"Stopped on request {place}, after {blocks}."
    if ending.killed_because is not None:
        return "incomplete", f"Killed {ending.killed_because}, {place}."
    if ending.status == -signal.SIGKILL:
        return "failed", (
            f"The child was killed by the system {place}, most likely because memory ran out; "
            "use a smaller batch or model."
        )
    if ending.status < 0:
        name = signal.Signals(-ending.status).name
        return "failed", f"The child crashed with {name} {place}{_crash_site(ending.output)}."
    last = _last_line(ending.output)
    return "failed", f"The child ended {place} with exit code {ending.status}{last}."


def _place(stage: Stage) -> str:
    """`during the timed blocks (arm 'x', block 3)`."""
    details = []
    if stage.arm is not None:
        details.append(f"arm {stage.arm!r}")
    if stage.block is not None:
        details.append(f"block {stage.block}")
    return _STAGE_WORDS[stage.name] + (f" ({', '.join(details)})" if details else "")


def _crash_site(output: str) -> str:
    """The innermost Python frame of the dump that `faulthandler` prints."""
    match = _PYTHON_FRAME.search(output.rpartition("Current thread")[2])
    return f" in {match[3]} ({match[1]}:{match[2]})" if match else ""


def _last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return f": {lines[-1].strip().rstrip('.')}" if lines else ""


def _unbuilt(plan: BenchPlan) -> ScenarioRecord:
    """What is known of a scenario whose build failed before it could describe itself."""
    unknown = "unknown"
    return ScenarioRecord(
        name=plan.scenario,
        family=unknown,
        model=unknown,
        fit="narrow" if plan.spec.get("fit") == "narrow" else "full",
        dtype=unknown,
        attention=unknown,
        checkpointing=False,
        weights=unknown,
        adapter=unknown,
        seed=plan.seed,
        config={},
    )
