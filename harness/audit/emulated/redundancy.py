"""Groups of redundant work: what was computed again, as whole chains of ops.

Work that is repeated belongs to one group where one result feeds the next, or where one function
computes both from the same value. An upload of a host tensor that lives on, such as a plain
attribute of a module, is a group of its own: each is removed by itself, by making it a buffer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from harness.audit.frames import place_of
from harness.findings.module_paths import common_path
from harness.record.audit_report import RedundantGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from torch import nn

    from harness.audit.emulated.value_numbers import ForwardWork, Occurrence, Work
    from harness.audit.frames import Point

LEAST_LAUNCHES = 2
"""Fewest kernels that repeats without syncs must launch to be reported."""
LEAST_LAUNCHES_IN_ONE_CALL = 6
"""The same within one module call, which does not grow with the number of layers."""
LEAST_BYTES = 16 << 20
"""A single repeat that writes so many bytes is reported, too."""


Rows = dict[tuple[object, ...], RedundantGroup]


class Group(NamedTuple):
    """One group of one forward pass."""

    works: list[Work]
    size: int
    first: Occurrence
    again: list[Occurrence]
    """Each time that was redundant."""
    across_steps: bool = False


class Redundancy:
    """Adds up the groups of many forward passes; the same group in several of them is one."""

    def __init__(self, module_path: Callable[[nn.Module | None], str | None]) -> None:
        self._module_path = module_path
        self._within: Rows = {}
        self._across: Rows = {}

    def add(self, passes: Iterable[ForwardWork]) -> None:
        """Count the groups of these forward passes."""
        for forward in passes:
            within = list(groups_of(forward))
            _count(self._within, map(self._row, within))
            reported = {id(work) for group in within for work in group.works}
            _count(self._across, map(self._row, constant_groups_of(forward, reported)))

    def groups(self, steps: int) -> tuple[RedundantGroup, ...]:
        """Groups within a step, most costly first, with syncs and bytes per step of `steps`.

        Uploads of lasting host tensors are among them.
        """
        return _per_step(self._within, steps)

    def groups_across_steps(self, steps: int) -> tuple[RedundantGroup, ...]:
        """Chains on buffers and constants alone, in the same way."""
        return _per_step(self._across, steps)

    def _row(self, group: Group) -> RedundantGroup:
        modules = {o.module_call: o.module for o in (group.first, *group.again)}
        paths = (self._module_path(module) for module in modules.values())
        kept = 0 if group.across_steps else 1
        writes = sum(work.num_bytes * (len(work.occurrences) - kept) for work in group.works)
        return RedundantGroup(
            size=group.size,
            first=_line(group.first.point),
            repeats=tuple(dict.fromkeys(_line(o.point) for o in group.again)),
            ops=tuple(op for op, _ in groupby(work.op for work in group.works)),
            syncs=sum(o.syncs for o in group.again),
            launches=len(group.again),
            bytes_per_step=writes or sum(work.num_bytes for work in group.works),
            module=common_path(path for path in paths if path is not None),
            across_steps=group.across_steps,
        )


def _count(rows: Rows, found: Iterable[RedundantGroup]) -> None:
    alike: defaultdict[tuple[object, ...], int] = defaultdict(int)
    for row in found:
        key = (row.first, row.ops, row.module, row.across_steps)
        alike[key] += 1
        known = rows.get((*key, alike[key]))
        if known is not None:
            row = msgspec.structs.replace(
                row,
                size=max(row.size, known.size),
                syncs=row.syncs + known.syncs,
                launches=(row.launches or 0) + (known.launches or 0),
                bytes_per_step=(row.bytes_per_step or 0) + (known.bytes_per_step or 0),
            )
        rows[*key, alike[key]] = row


def _per_step(rows: Rows, steps: int) -> tuple[RedundantGroup, ...]:
    each = [
        msgspec.structs.replace(
            row,
            syncs=row.syncs / steps,
            launches=(row.launches or 0) / steps,
            bytes_per_step=(row.bytes_per_step or 0) // steps,
        )
        for row in rows.values()
    ]
    return tuple(sorted(each, key=lambda row: (row.across_steps, -row.syncs, -row.size)))


def groups_of(forward: ForwardWork) -> Iterator[Group]:
    """The groups of one forward pass that are worth reporting."""
    repeated = [work for work in forward.works.values() if len(work.occurrences) > 1]
    for works in _chains(repeated):
        if all(work.is_upload for work in works):
            yield from _fresh_uploads(works, forward.known_hosts)
        else:
            if all(work.is_fill for work in works):
                continue
            common = _common_count(works)
            first = next(w.occurrences[0] for w in works if len(w.occurrences) == common)
            again = [o for work in works for o in work.occurrences[1:]]
            if _is_worth_a_line(works, first, again):
                yield Group(works, _times(works, common), first, again)
    for work in forward.works.values():
        if work.is_upload:
            yield from _lasting_uploads(work, forward.known_hosts)


def constant_groups_of(forward: ForwardWork, reported: AbstractSet[int]) -> Iterator[Group]:
    """Chains on buffers and constants alone that the step before computed as well.

    `reported`: the identity of works that are part of a group within this pass.
    """
    constant = [
        work
        for number, work in forward.works.items()
        if not work.lineage and number in forward.known_constants and id(work) not in reported
    ]
    for works in _chains(constant):
        again = [o for work in works for o in work.occurrences]
        if _is_worth_a_line(works, again[0], again):
            yield Group(works, 2, again[0], again, across_steps=True)


def _fresh_uploads(works: list[Work], known_hosts: frozenset[int]) -> Iterator[Group]:
    """Equal data built on the host and uploaded several times in one forward pass."""
    for work in works:
        fresh = [o for o in work.occurrences if o.host_storage not in known_hosts]
        if len(fresh) > 1 and any(o.syncs for o in fresh):
            yield Group([work], len(fresh), fresh[0], fresh[1:])


def _lasting_uploads(work: Work, known_hosts: frozenset[int]) -> Iterator[Group]:
    """Host tensors that live from step to step and are uploaded in each, by a module that waits."""
    by_host: defaultdict[int | None, list[Occurrence]] = defaultdict(list)
    for occurrence in work.occurrences:
        if occurrence.host_storage in known_hosts:
            by_host[occurrence.host_storage].append(occurrence)
    for uploads in by_host.values():
        if not any(o.syncs for o in uploads):
            continue
        if len(uploads) > 1:
            yield Group([work], len(uploads), uploads[0], uploads[1:])
        elif uploads[0].module is not None:
            yield Group([work], 2, uploads[0], uploads, across_steps=True)


def _chains(works: list[Work]) -> Iterator[list[Work]]:
    """The works in connected parts, in the order of the run."""
    parents = list(range(len(works)))

    def root(index: int) -> int:
        while parents[index] != index:
            parents[index] = parents[parents[index]]
            index = parents[index]
        return index

    maker = {result: index for index, work in enumerate(works) for result in work.results}
    siblings: dict[tuple[int, object], int] = {}
    for index, work in enumerate(works):
        point = work.occurrences[0].point
        for operand in work.operands:
            near = [siblings.setdefault((operand, point and point.code), index)]
            if operand in maker:
                near.append(maker[operand])
            for other in near:
                parents[root(other)] = root(index)
    parts: defaultdict[int, list[Work]] = defaultdict(list)
    for index, work in enumerate(works):
        parts[root(index)].append(work)
    yield from parts.values()


def _common_count(works: list[Work]) -> int:
    """How often most of the ops of a group ran; fills serve others, too."""
    counts = Counter(len(work.occurrences) for work in works if not work.is_fill)
    return min(counts, key=lambda count: (-counts[count], count))


def _times(works: list[Work], common: int) -> int:
    """How often a group was computed: by modules where several compute it, else by its ops."""
    calls = {o.module_call for work in works for o in work.occurrences if o.module_call}
    return min(common, len(calls)) if len(calls) > 1 else common


def _is_worth_a_line(works: list[Work], first: Occurrence, again: list[Occurrence]) -> bool:
    if all(work.is_fill for work in works):
        return False
    if any(occurrence.syncs for occurrence in again):
        return True
    num_bytes = sum(work.num_bytes * (len(work.occurrences) - 1) for work in works)
    in_one_call = {o.module_call for o in again} == {first.module_call}
    least = LEAST_LAUNCHES_IN_ONE_CALL if in_one_call else LEAST_LAUNCHES
    return len(again) >= least or num_bytes >= LEAST_BYTES


def _line(point: Point | None) -> str:
    if point is None:
        return "unknown"
    place = place_of(point)
    return f"{place.file}:{place.line}"
