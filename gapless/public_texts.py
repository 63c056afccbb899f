"""Texts that came with gapless: an export for others may show them whole."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from harness.clock.gpus import find_gpu, gpu_names
from scenarios.published import CLAIMS


@cache
def public_texts() -> frozenset[str]:
    """Every text of the published claims, and the names of the GPUs of the catalogue."""
    gpus = {find_gpu(key).name for key in gpu_names()}
    return frozenset(_texts(msgspec.to_builtins(CLAIMS)) | gpus)


def _texts(value: Any) -> set[str]:
    if isinstance(value, str):
        return {value}
    items = value.values() if isinstance(value, dict) else value
    return set().union(*map(_texts, items)) if isinstance(value, dict | list | tuple) else set()
