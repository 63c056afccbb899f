"""What one run is to measure, as plain data that crosses the process boundary."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Any

import msgspec

from harness.errors import UsageError
from harness.record.finding import Answer
from harness.record.records import Arm, Claim, Phase, Record, ScenarioRecord


class BenchPlan(Record, frozen=True, kw_only=True):
    """One scenario, two or more arms, and how long to measure.

    Raises `UsageError` where the arms or limits make no comparison.
    """

    factory: str
    """`package.module:function` of a `harness.workload.WorkloadFactory`."""
    spec: dict[str, Any]
    """JSON-like; handed to the factory as it is."""
    scenario: str
    device: str = "cpu"
    """`cpu`, `cuda`, `cuda:0`, or the scheme of another backend, such as `emulated:B200`."""
    arms: tuple[Arm, ...]
    budget_s: float = 60.0
    """Seconds from the end of the build to the end of the run. Where a step is long against it the
    run takes longer: every arm is warmed up, checked and timed once whatever the budget, and the
    memory and sync passes are left out only after twice the budget."""
    precision: float = 0.01
    """Half-width of the interval of every comparison at which measuring stops."""
    phases: tuple[Phase, ...] = ("batch",)
    """The phases whose intervals must be that narrow; all phases are measured."""
    min_blocks: int = 8
    """Blocks before precision may stop the run; the budget may stop it earlier."""
    max_blocks: int = 1000
    warmup_steps: int = 2
    """Steps of each arm before it is timed; a parity pass counts as one."""
    seed: int = 0
    confidence: float = 0.95
    margin: float = 0.01
    num_threads: int | None = None
    """Threads torch uses for one op; `None` leaves torch's own choice."""
    measure_parity: bool = True
    measure_memory: bool = True
    measure_syncs: bool = True
    measure_energy: bool = True
    keep_timelines: bool = True
    """Whether the traces that the sync pass takes are kept with the run."""
    memory_limit_bytes: int | None = None
    """Bytes of private memory the child may allocate; what goes past it fails as out of memory
    instead of taking the machine down."""
    timeout_s: float | None = None
    """Seconds after which the child is killed; `None` is twice the budget plus twenty minutes."""
    backend: str | None = None
    """`package.module:function` that opens a `harness.bench.timed_device.Backend` for `device`;
    `None` chooses by the scheme of `device`."""
    sync_probe: str | None = None
    """`package.module:function` that makes a `harness.bench.sync_probe.SyncProbe`, called with the
    plan once an arm at the very end; `None` takes the backend's own; a CPU has none."""
    outline: ScenarioRecord | None = None
    """What the factory is going to build, for the record of a build that fails."""
    claims: tuple[Claim, ...] = ()
    saved_work: dict[str, str] = msgspec.field(default_factory=dict)
    """Optimization -> the host's work that it saves, in the plural."""
    answers: tuple[Answer, ...] = ()
    """What optimizations answer to the findings of the sync pass."""
    command: str = ""
    """What to type to repeat the run."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [arm.name for arm in self.arms]
        twice = [name for name, count in Counter(names).items() if count > 1]
        baselines = [arm for arm in self.arms if arm.role == "baseline"]
        if twice:
            raise UsageError(f"Two arms are called {twice[0]!r}; give each arm a name of its own.")
        if len(baselines) != 1:
            raise UsageError(
                f"Exactly one arm must have the role `baseline`, but {len(baselines)} of "
                f"{len(self.arms)} have; mark the one the others are compared with."
            )
        if len(self.arms) < 2:
            raise UsageError("One arm alone cannot be compared; add an arm or an A/A arm.")
        for arm in self.arms:
            if arm.role == "a/a" and arm.variants != baselines[0].variants:
                raise UsageError(f"The A/A arm {arm.name!r} must choose the baseline's variants.")
        if not 1 <= self.min_blocks <= self.max_blocks:
            raise UsageError(
                f"min_blocks={self.min_blocks} and max_blocks={self.max_blocks} leave no number "
                "of blocks; choose 1 <= min_blocks <= max_blocks."
            )
        if self.budget_s <= 0 or self.precision <= 0 or self.warmup_steps < 1:
            raise UsageError(
                "budget_s and precision must be above 0 and warmup_steps at least 1; "
                f"got {self.budget_s:g}, {self.precision:g} and {self.warmup_steps}."
            )

    @property
    def baseline(self) -> Arm:
        """The arm the others are compared with."""
        return next(arm for arm in self.arms if arm.role == "baseline")

    @property
    def kill_after_s(self) -> float:
        """Seconds after which the child is considered hung and is killed."""
        return self.timeout_s if self.timeout_s is not None else 2 * self.budget_s + 1200


def with_a_a(arms: tuple[Arm, ...], name: str = "a/a") -> tuple[Arm, ...]:
    """The same arms and, where none is there, the baseline a second time to show the noise."""
    if any(arm.role == "a/a" for arm in arms):
        return arms
    baseline = next((arm for arm in arms if arm.role == "baseline"), None)
    if baseline is None:
        raise UsageError("No arm has the role `baseline`, so there is nothing to repeat as A/A.")
    return (*arms, Arm(name=name, variants=dict(baseline.variants), role="a/a"))


def import_object(path: str) -> Any:
    """The object at `package.module:name`. Raises `UsageError` that names what is missing."""
    module_name, colon, attribute = path.partition(":")
    if not colon or not module_name or not attribute:
        raise UsageError(f"{path!r} is not of the form package.module:function.")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UsageError(f"{path!r} cannot be imported: {error}.") from error
    if not hasattr(module, attribute):
        raise UsageError(f"Module {module_name} has no {attribute!r}, as {path!r} asks for.")
    return getattr(module, attribute)
