"""`import gapless` and `gapless --help`: quick, complete, and not fooled by a foreign package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import gapless

ROOT = Path(gapless.__file__).resolve().parent.parent
HEAVY = ("torch", "transformers", "streamlit", "plotly", "pandas", "pyarrow")


def run_python(code: str, *, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    setup = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    if path is not None:
        setup += f"sys.path.insert(0, {str(path)!r})\n"
    return subprocess.run(
        [sys.executable, "-c", setup + code], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    "code",
    [
        "import gapless",
        "import gapless.pytest_plugin",
        "from gapless.cli.main import main; assert main(['--help']) == 0",
        "from gapless.cli.main import main; assert main(['bench', '--help']) == 0",
        "from gapless.cli.main import main; assert main(['--version']) == 0",
    ],
)
def test_the_front_door_imports_nothing_heavy(code: str) -> None:
    report = f"print([name for name in {HEAVY!r} if name in sys.modules])"
    done = run_python(f"{code}\n{report}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", ["harness", "optimizations", "scenarios", "dashboard"])
@pytest.mark.parametrize("kind", ["package", "module"])
def test_a_foreign_package_in_the_way_is_named(tmp_path: Path, name: str, kind: str) -> None:
    if kind == "package":
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    else:
        (tmp_path / f"{name}.py").touch()
    done = run_python("import gapless", path=tmp_path)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: gapless needs its own package '{name}' in {ROOT}")
    assert str(tmp_path / name) in last


def test_every_public_name_loads_and_no_other() -> None:
    for name in gapless.__all__:
        assert getattr(gapless, name) is not None
    assert set(gapless.__all__) <= set(dir(gapless))
    assert gapless.__all__ == sorted(gapless.__all__)
    with pytest.raises(AttributeError, match="no attribute 'benchmark'"):
        _ = gapless.benchmark
