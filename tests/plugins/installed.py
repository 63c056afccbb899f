"""Packages with entry points, as an installer leaves them, and a fresh environment for them."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "tests" / "sample_plugin"


def install(folder: Path, package: str, code: str, **groups: str) -> None:
    """A package of one module in `folder`; `groups`: `scenarios="name = module:object"`."""
    module = package.replace("-", "_")
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"[gapless.{group}]\n{lines}\n" for group, lines in groups.items()]
    (info / "entry_points.txt").write_text("\n".join(lines))


class Environment:
    """A new environment that finds this project and the packages of the one that runs the tests.

    Those come by a path file, so that torch need not be installed again.
    """

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.python = folder / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site_packages = folder / "lib" / version / "site-packages"
        paths = sysconfig.get_paths()
        places = [ROOT, *dict.fromkeys([paths["purelib"], paths["platlib"]])]
        (self.site_packages / "present.pth").write_text("\n".join(map(str, places)) + "\n")

    def install_sample(self, work: Path) -> None:
        """Build the sample package as a wheel, and install it."""
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        alone = ["--no-deps", "--no-index"]
        source = work / "source"
        source.mkdir()
        subprocess.run(["cp", "-r", f"{SAMPLE}/.", str(source)], check=True)
        wheel = [*pip, "wheel", *alone, "--no-build-isolation", "-w", str(work), str(source)]
        subprocess.run(wheel, check=True, capture_output=True)
        (built,) = work.glob("*.whl")
        install = [*pip, "--python", str(self.python), "install", *alone, str(built)]
        subprocess.run(install, check=True, capture_output=True)

    def gapless(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the command line, from a folder that holds nothing of the project."""
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | variables
        return subprocess.run(
            [str(self.python), "-m", "gapless", *words],
            cwd=self.site_packages,
            env=environment,
            capture_output=True,
            text=True,
            timeout=280,
        )
