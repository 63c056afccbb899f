"""Where a source file comes from: this project, an installed package, or elsewhere.

Installed from a wheel, this project is in `site-packages` like any library. So its own packages are
recognised first, by their folders, before a file counts as a library's.
"""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
from pathlib import Path

HOME = str(Path(__file__).absolute().parents[1])
"""The folder of this project's packages: a clone, or an environment's `site-packages`."""
_OWN = {
    os.path.join(HOME, name, ""): name  # noqa: PTH118 - a prefix, which ends in a separator
    for name in ("dashboard", "gapless", "harness", "optimizations", "scenarios")
}
_PACKAGES = re.compile(r".*[/\\](?:site|dist)-packages[/\\]")


def own_package(file: str) -> str | None:
    """The package of this project that holds the file, or `None`."""
    return next((name for folder, name in _OWN.items() if file.startswith(folder)), None)


def in_library(file: str) -> bool:
    """Whether the file belongs to an installed package, of any environment, that is not ours."""
    return own_package(file) is None and _PACKAGES.match(file) is not None


def below_packages(file: str) -> str:
    """The path below the folder that holds its package; unchanged for a file of no package."""
    return file[len(HOME) + 1 :] if own_package(file) else _PACKAGES.sub("", file)


def import_folders() -> tuple[str, ...]:
    """The folders that packages are imported from, this project's included; longest first."""
    folders = {HOME, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    folders |= {*site.getsitepackages(), site.getusersitepackages()}
    folders |= {folder for folder in sys.path if _PACKAGES.fullmatch(os.path.join(folder, ""))}  # noqa: PTH118
    return tuple(sorted(folders, key=len, reverse=True))
