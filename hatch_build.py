"""Puts the records that ship into the wheel, and leaves a developer's own runs out of it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ShippedRecords(BuildHookInterface[Any]):
    """`results/` holds both in a clone, and git knows which ship; an archive has only those."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds them beside the code; an editable installation reads those of its clone."""
        if version == "editable":
            return
        root = Path(self.root)
        git = ["git", "ls-files", "results"]
        try:
            listed = subprocess.run(git, cwd=root, capture_output=True, text=True, check=True)
            names = listed.stdout.splitlines()
        except (OSError, subprocess.CalledProcessError):
            names = []
        files = [root / name for name in names] or list((root / "results").glob("*/*"))
        inside = "gapless/" if self.target_name == "wheel" else ""
        for file in files:
            name = f"{inside}{file.relative_to(root).as_posix()}"
            build_data["force_include"][str(file)] = name
