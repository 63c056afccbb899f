"""The virtual clock in an emulated audit: what each site costs, and what the step would be."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.audit.frames import place_of
from harness.clock.calibration import costs_for
from harness.clock.clock_trace import write_trace
from harness.clock.gpus import find_gpu
from harness.emulator.device_clock import AS_IT_WAS, CEILING, Changes, play
from harness.errors import UsageError
from harness.record.audit_report import AuditTimeline, ModelledStep, Race, SiteShare
from harness.record.trace_details import SMALL_KERNEL_US, SmallKernels

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.audit.emulated.site_counts import Counts, SiteKey
    from harness.audit.emulated.step_session import StepTime
    from harness.clock.clock_figures import ClockFigures
    from harness.clock.gpus import GpuSpec
    from harness.emulator.device_clock import Action
    from harness.emulator.races import FoundRace, Use

_NS_PER_MS = 1e6
_SHARES_SHOWN = 3


@dataclass(frozen=True)
class ClockOptions:
    """What an audit asks of the clock besides the cost of each site."""

    without: tuple[str, ...] = ()
    """Sites to leave out of a second clock: `file:line`, or a file's last part, or an op."""
    gpus: tuple[str, ...] = ()
    """Other GPUs on which to model the cost of the costliest sites."""
    timeline: str | None = None
    """File for the modelled timeline of the last step, as a Chrome trace."""
    races: bool = False
    """Whether to look for uses of device memory that nothing orders."""


@dataclass
class ModelledSteps:
    """The kept steps of one audit on the virtual clock of one GPU."""

    gpu: GpuSpec
    _steps: list[ClockFigures] = field(default_factory=list)
    _last: StepTime | None = None

    def keep(self, step: StepTime | None) -> None:
        """Add a step; one that was not recorded adds nothing."""
        if step is not None:
            self._steps.append(step.figures)
            self._last = step

    def timeline(self) -> AuditTimeline:
        """Busy, idle and overlap of all kept steps, their sum over the steps."""
        return timeline_of(self._steps)

    def modelled(
        self, counts: Counts, options: ClockOptions, peak_bytes: int
    ) -> ModelledStep | None:
        """The last kept step as it was, at its ceiling, and as `options` ask."""
        if self._last is None:
            return None
        tape = self._last.tape
        places = _places(counts)
        left_out = _matching(places, options.without)
        gpus = [self.gpu, *(find_gpu(name) for name in options.gpus)]
        return ModelledStep(
            gpu=self.gpu.key,
            step_ms=_step_ms(tape, self.gpu),
            ceiling_ms=_step_ms(tape, self.gpu, CEILING),
            peak_bytes=peak_bytes,
            small_kernels=_small_kernels(self._steps[-1].kernels_ns),
            without=tuple(left_out),
            without_ms=(
                _step_ms(tape, self.gpu, Changes(frozenset().union(*left_out.values())))
                if left_out
                else None
            ),
            shares=tuple(share for gpu in gpus for share in _shares(tape, gpu, places, counts)),
        )

    def write(self, path: str) -> None:
        """Write the last kept step as a Chrome trace. Raises `UsageError` where there is none."""
        if self._last is None:
            raise UsageError(f"There is no step to write to {path}: the audit recorded none.")
        write_trace(self._last.recording, path, device=self.gpu.name)


def _shares(
    tape: Sequence[Action], gpu: GpuSpec, places: Mapping[str, frozenset[int]], counts: Counts
) -> Iterable[SiteShare]:
    exposed = _exposed_by_place(counts)
    costliest = sorted(places, key=lambda place: -exposed.get(place, 0))[:_SHARES_SHOWN]
    whole = _step_ms(tape, gpu)
    for place in costliest:
        yield SiteShare(
            place=place,
            gpu=gpu.key,
            step_ms=whole,
            without_ms=_step_ms(tape, gpu, Changes(places[place])),
        )


def _step_ms(tape: Sequence[Action], gpu: GpuSpec, changes: Changes = AS_IT_WAS) -> float:
    played = play(tape, costs_for(gpu), changes)
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
    """Syncs by place."""
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
            raise UsageError(f"No sync is at {name}; the audit found {known}.")
        found.update((place, places[place]) for place in fitting)
    return found
