"""An `nvidia-smi` for the programs that a script calls, which speaks of the emulated GPU."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.clock.gpus import GpuSpec

_PROGRAM = Path(__file__).with_name("nvidia_smi_program.py")
_DRIVER = "570.00"


@contextmanager
def nvidia_smi(gpu: GpuSpec) -> Iterator[None]:
    """`nvidia-smi` is found first on the path inside, and gone afterwards."""
    major, minor = gpu.capability
    mebibytes = gpu.memory_bytes >> 20
    facts = {
        "name": gpu.name, "gpu_name": gpu.name, "index": "0", "count": "1",
        "uuid": "GPU-00000000-0000-0000-0000-000000000000", "driver_version": _DRIVER,
        "compute_cap": f"{major}.{minor}", "memory.total": f"{mebibytes} MiB",
        "memory.used": "0 MiB", "memory.free": f"{mebibytes} MiB", "utilization.gpu": "0 %",
        "utilization.memory": "0 %", "pci.bus_id": "00000000:00:00.0",
    }  # fmt: skip
    before = os.environ.get("PATH")
    with tempfile.TemporaryDirectory(prefix="gapless-") as folder:
        command = [sys.executable, "-I", str(_PROGRAM), json.dumps(facts)]
        if os.name == "nt":
            quoted = " ".join('"' + part.replace('"', '\\"') + '"' for part in command)
            Path(folder, "nvidia-smi.cmd").write_text(f"@{quoted} %*\n", encoding="utf-8")
        else:
            script = Path(folder, "nvidia-smi")
            script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
            script.chmod(0o755)
        os.environ["PATH"] = folder + (os.pathsep + before if before else "")
        try:
            yield
        finally:
            _leave(folder, before)


def _leave(folder: str, before: str | None) -> None:
    """Take the folder off the path, and leave what the program itself put there."""
    parts = os.environ.get("PATH", "").split(os.pathsep)
    kept = [part for part in parts if part != folder]
    if kept or before is not None:
        os.environ["PATH"] = os.pathsep.join(kept)
    else:
        os.environ.pop("PATH", None)
