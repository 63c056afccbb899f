"""From a backward node to the forward op that made it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from harness.audit.trace.columns import UNKNOWN

if TYPE_CHECKING:
    from harness.audit.trace.columns import Trace

_NODE = re.compile(r"autograd::engine::|\w+Backward\d*$")


def is_autograd(name: str) -> bool:
    """Whether an op is the autograd engine or a node of it, and no dispatcher op."""
    return _NODE.match(name) is not None


class ForwardLinks:
    """Joins by sequence number, and by `fwdbwd` flow where no numbers were recorded."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        autograd = np.array([is_autograd(name) for name in trace.names], dtype=np.bool_)
        ops = trace.ops
        numbered = ops.sequence != UNKNOWN
        if len(ops):
            numbered &= ~autograd[ops.name]
        rows = np.flatnonzero(numbered)
        # Rows of one number stay in time order.
        self._rows = rows[np.argsort(ops.sequence[rows], kind="stable")]
        self._numbers = ops.sequence[self._rows]
        flows = trace.flows
        arrivals = np.flatnonzero(~flows.is_start)
        self._arrivals = arrivals[np.lexsort((flows.time[arrivals], flows.thread[arrivals]))]
        starts = np.flatnonzero(flows.is_start)
        self._start_of_id = dict(zip(flows.id[starts].tolist(), starts.tolist(), strict=True))

    def forward_of(self, node: int) -> int | None:
        """Row of the forward op of the backward op in row `node` of `Trace.ops`."""
        row = self._by_sequence(node)
        return self._by_flow(node) if row is None else row

    def _by_sequence(self, node: int) -> int | None:
        sequence = self._trace.ops.sequence[node]
        if sequence == UNKNOWN:
            return None
        first, last = np.searchsorted(self._numbers, (sequence, sequence + 1))
        rows = self._rows[first:last]
        # An op that makes no node shows the number of the next one, so the last to start made it.
        position = int(np.searchsorted(rows, node))
        return int(rows[position - 1]) if position else None

    def _by_flow(self, node: int) -> int | None:
        ops, flows = self._trace.ops, self._trace.flows
        thread = ops.thread[node]
        first, last = np.searchsorted(flows.thread[self._arrivals], (thread, thread + 1))
        mine = self._arrivals[first:last]
        position = int(np.searchsorted(flows.time[mine], ops.start[node]))
        if position == len(mine) or flows.time[mine[position]] > ops.end[node]:
            return None
        start = self._start_of_id.get(int(flows.id[mine[position]]))
        if start is None:
            return None
        first, last = np.searchsorted(ops.start, (flows.time[start], flows.time[start] + 1))
        rows = np.arange(first, last)[ops.thread[first:last] == flows.thread[start]]
        return int(rows[-1]) if len(rows) else None
