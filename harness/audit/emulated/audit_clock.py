"""The virtual clock in an emulated audit: what each site costs, and what the step would be."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.audit.frames import place_of
from harness.clock.calibration import costs_for
from harness.clock.clock_trace import write_trace
from harness.clock.exposed_time import ClockFigures, figures_of
from harness.clock.gpus import find_gpu
from harness.emulator.device_clock import CEILING, Action, Changes, DeviceClock, play
from harness.errors import UsageError
from harness.record.audit_report import AuditTimeline, ModelledStep, Race, SiteShare
from harness.record.trace_details import SMALL_KERNEL_US, SmallKernels

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.audit.emulated.site_counts import Counts, SiteKey
    from harness.clock.gpus import GpuSpec
    from harness.clock.queue_timeline import Recording
    from harness.emulator.races import FoundRace, Use

_NS_PER_MS = 1e6
_SHARES_SHOWN = 3


@dataclass(frozen=True)
class ClockOptions:
    """What an audit asks of the clock besides the cost of each site."""

    without: tuple[str, ...] = ()
    """Sites to leave out of a second clock: `file:line`, or a file's last part, or an op."""
    gpus: tuple[str, ...] = ()
    """Other GPUs to say for how much the costliest sites cost there."""
    timeline: str | None = None
    """File for the modelled timeline of the last step, as a Chrome trace."""
    races: bool = False
    """Whether to look for uses of device memory that nothing orders."""


@dataclass
class AuditClock:
    """Times the recorded steps of one audit, one recording a step."""

    gpu: GpuSpec
    clock: DeviceClock = field(init=False)
    _steps: list[ClockFigures] = field(default_factory=list)
    _last: Recording | None = None
    _last_tape: list[Action] = field(default_factory=list)
    _tape: list[Action] | None = None

    def __post_init__(self) -> None:
        self.clock = DeviceClock(costs_for(self.gpu))

    @property
    def is_running(self) -> bool:
        """Whether a step is being recorded."""
        return self._tape is not None

    def begin(self) -> None:
        """A step begins; what was recorded and not kept is dropped."""
        self.clock.start_recording(keep_tape=True)
        self._tape = self.clock.tape

    def end(self, counts: Counts, *, keep: bool) -> None:
        """The step has ended: give its costs to the sites that it counted."""
        if self._tape is None:
            return
        tape, self._tape = self._tape, None
        recording = self.clock.stop_recording()
        figures = figures_of(recording)
        counts.set_costs(figures.waits)
        if keep:
            self._steps.append(figures)
            self._last, self._last_tape = recording, tape

    def timeline(self) -> AuditTimeline:
        """Busy, idle and overlap of all kept steps, their sum over the steps."""
        return timeline_of(self._steps)

    def modelled(
        self, counts: Counts, options: ClockOptions, peak_bytes: int
    ) -> ModelledStep | None:
        """The last kept step as it was, at its ceiling, and as `options` ask."""
        if self._last is None:
            return None
        places = _places(counts)
        left_out = _matching(places, options.without)
        gpus = [self.gpu, *(find_gpu(name) for name in options.gpus)]
        return ModelledStep(
            gpu=self.gpu.key,
            step_ms=self._step_ms(self.gpu, Changes()),
            ceiling_ms=self._step_ms(self.gpu, CEILING),
            peak_bytes=peak_bytes,
            small_kernels=_small_kernels(self._steps[-1].kernels_ns),
            without=tuple(left_out),
            without_ms=(
                self._step_ms(self.gpu, Changes(frozenset().union(*left_out.values())))
                if left_out
                else None
            ),
            shares=tuple(share for gpu in gpus for share in self._shares(gpu, places, counts)),
        )

    def write(self, path: str) -> None:
        """Write the last kept step as a Chrome trace. Raises `UsageError` where there is none."""
        if self._last is None:
            raise UsageError(f"There is no step to write to {path}: the audit recorded none.")
        write_trace(self._last, path, device=self.gpu.name)

    def _shares(
        self, gpu: GpuSpec, places: Mapping[str, frozenset[int]], counts: Counts
    ) -> Iterable[SiteShare]:
        exposed = _exposed_by_place(counts)
        costliest = sorted(places, key=lambda place: -exposed.get(place, 0))[:_SHARES_SHOWN]
        whole = self._step_ms(gpu, Changes())
        for place in costliest:
            yield SiteShare(
                place=place,
                gpu=gpu.key,
                step_ms=whole,
                without_ms=self._step_ms(gpu, Changes(places[place])),
            )

    def _step_ms(self, gpu: GpuSpec, changes: Changes) -> float:
        played = play(self._last_tape, costs_for(gpu), changes)
        return (played.end_ns - played.start_ns) / _NS_PER_MS


def timeline_of(steps: Sequence[ClockFigures]) -> AuditTimeline:
    """Busy, idle and overlap of these steps, their sum over the steps."""
    if not steps:
        return AuditTimeline()
    copy_ns = sum(step.copy_ns for step in steps)
    hidden_ns = sum(step.hidden_copy_ns for step in steps)
    idle_ns = sum(step.idle_ns for step in steps)
    exposed_ns = sum(cost.exposed_ns for step in steps for cost in step.waits)
    slow_ns = sum(step.slow_host_ns for step in steps)
    return AuditTimeline(
        span_ms=sum(step.span_ns for step in steps) / _NS_PER_MS,
        busy_ms=sum(step.busy_ns for step in steps) / _NS_PER_MS,
        idle_ms=idle_ns / _NS_PER_MS,
        overlap=hidden_ns / copy_ns if copy_ns else None,
        idle_blocked_host_ms=exposed_ns / _NS_PER_MS,
        idle_slow_host_ms=slow_ns / _NS_PER_MS,
        idle_other_ms=max(idle_ns - exposed_ns - slow_ns, 0) / _NS_PER_MS,
    )


def _small_kernels(kernels_ns: Sequence[int]) -> SmallKernels | None:
    if not kernels_ns:
        return None
    small = [ns for ns in kernels_ns if ns < SMALL_KERNEL_US * 1e3]
    total_ns = sum(kernels_ns)
    return SmallKernels(
        threshold_us=SMALL_KERNEL_US,
        count_share=len(small) / len(kernels_ns),
        time_share=sum(small) / total_ns if total_ns else 0.0,
        num_kernels=len(kernels_ns),
    )


def race_rows(found: Sequence[FoundRace]) -> tuple[Race, ...]:
    """Races by pair of places, the most frequent first."""
    pairs = Counter((race.kind, _use(race.earlier), _use(race.later)) for race in found)
    return tuple(
        Race(kind=kind, first=first, second=second, count=count)
        for (kind, first, second), count in pairs.most_common()
    )


def _use(use: Use) -> str:
    place = None if use.place is None else place_of(use.place)
    where = "in torch" if place is None else f"{place.file}:{place.line}"
    return f"{where} ({use.op} on stream {use.stream})"


def _places(counts: Counts) -> dict[str, frozenset[int]]:
    """Waits by place."""
    places: dict[str, frozenset[int]] = {}
    for key, count in counts.sites.items():
        name = _place_name(key)
        places[name] = places.get(name, frozenset()) | frozenset(count.clock_sites)
    return places


def _exposed_by_place(counts: Counts) -> dict[str, int]:
    exposed: dict[str, int] = {}
    for key, count in counts.sites.items():
        name = _place_name(key)
        exposed[name] = exposed.get(name, 0) + (count.exposed_ns or 0)
    return exposed


def _place_name(key: SiteKey) -> str:
    point = key.user or key.library
    if point is None:
        return key.op
    place = place_of(point)
    return f"{place.file}:{place.line}"


def _matching(
    places: Mapping[str, frozenset[int]], wanted: Sequence[str]
) -> dict[str, frozenset[int]]:
    """The places that were asked for. Raises `UsageError` for a name that fits none."""
    found: dict[str, frozenset[int]] = {}
    for name in wanted:
        fitting = [place for place in places if place == name or place.endswith("/" + name)]
        if not fitting:
            known = ", ".join(sorted(places)[:5]) or "none"
            raise UsageError(f"No wait is at {name}; the audit found {known}.")
        found.update((place, places[place]) for place in fitting)
    return found
