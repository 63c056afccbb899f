"""Writing a file: whole or not at all, under nobody's name, and nothing half-written stays."""

from __future__ import annotations

import ast
import errno
import os
import stat
from pathlib import Path

import pytest

from harness.boundary import atomic_files
from harness.boundary.atomic_files import replace_file, replacing

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("gapless", "harness", "dashboard", "scenarios", "optimizations")
DIRECT = {
    "harness/boundary/atomic_files.py": "the writer itself",
    "gapless/cli/report.py": "appends to the summary that GitHub reads",
    "gapless/gpu_check.py": "what a child prints, as it prints it",
    "harness/bench/memory.py": "writes to /proc",
    "harness/audit/process_state.py": "opens a stream that audited code closed",
}
"""Files that write in another way, and why."""


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    replace_file(path, "first\n")
    replace_file(path, b"second\n", durable=True)
    assert path.read_bytes() == b"second\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.json"]


def test_a_failure_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    (tmp_path / "out.json.tmp").write_text("a user's own")
    for error in (OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), MemoryError()):
        with pytest.raises(type(error)):
            _fail_half_way(path, error)
    assert path.read_text() == "old"
    names = sorted(entry.name for entry in tmp_path.iterdir())
    assert names == ["out.json", "out.json.tmp"]


def _fail_half_way(path: Path, error: BaseException) -> None:
    with replacing(path) as file:
        file.write(b"half")
        raise error


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full")
    with pytest.raises(OSError, match="No space left"):
        replace_file(full, "x" * 10)
    assert stat.S_ISCHR(full.stat().st_mode)


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    replace_file(os.devnull, "gone")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_a_link_is_followed_and_rights_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "real", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    replace_file(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_new_file_has_the_usual_rights(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "new", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_the_longest_name_can_be_written_and_no_name_is_used_twice(tmp_path: Path) -> None:
    replace_file(tmp_path / ("x" * 250), "x")
    names = {atomic_files.temporary_name(tmp_path, "a") for _ in range(100)}
    assert len(names) == 100


def test_everything_that_writes_goes_through_the_writer() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for package in SHIPPED
        for path in (ROOT / package).rglob("*.py")
        if any(map(_writes, ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert found == set(DIRECT)


def _writes(node: ast.AST) -> bool:
    """A call that makes or changes a file by itself."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in ("write_text", "write_bytes", "mkstemp", "NamedTemporaryFile"):
        return True
    given = [*node.args, *(k.value for k in node.keywords if k.arg == "mode")]
    modes = [argument.value for argument in given if isinstance(argument, ast.Constant)]
    return name in ("open", "fdopen") and any(
        isinstance(mode, str) and mode[:1] in "wax" and mode.strip("bt+") in ("w", "a", "x")
        for mode in modes
    )
