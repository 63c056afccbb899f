"""Which runtime call queued which device row, by correlation number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.audit.trace.columns import UNKNOWN, Int64

if TYPE_CHECKING:
    from harness.audit.trace.columns import Calls, DeviceRows

NO_CALL = -1


def launching_calls(calls: Calls, device: DeviceRows) -> Int64:
    """For each device row the index of the call that queued it, or `NO_CALL`.

    A correlation number is unique within one process only. Where several calls share one (a file
    with more processes, or a counter that wrapped) the last call before the row is taken.
    """
    candidates = np.flatnonzero(calls.correlation != UNKNOWN)
    if not len(candidates) or not len(device):
        return np.full(len(device), NO_CALL, dtype=np.int64)
    # Order by (correlation, time) with both replaced by ranks, so that one number holds the pair.
    numbers, of_call = np.unique(calls.correlation[candidates], return_inverse=True)
    slot = np.clip(np.searchsorted(numbers, device.correlation), 0, len(numbers) - 1)
    known = numbers[slot] == device.correlation
    call_time = calls.start[candidates]
    moments = np.unique(call_time)
    width = np.int64(len(moments) + 1)
    key = of_call.astype(np.int64) * width + np.searchsorted(moments, call_time)
    order = np.argsort(key, kind="stable")
    key = key[order]
    wanted = (
        slot.astype(np.int64) * width + np.searchsorted(moments, device.start, side="right") - 1
    )
    found = np.searchsorted(key, wanted, side="right") - 1
    # Clocks of host and device may disagree a little: then the first call of that number is it.
    first = np.searchsorted(key, slot.astype(np.int64) * width, side="left")
    found = np.where((found < 0) | (key[np.maximum(found, 0)] // width != slot), first, found)
    return np.where(known, candidates[order[np.clip(found, 0, len(order) - 1)]], NO_CALL)
