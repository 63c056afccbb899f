"""`--baseline` may be pointed at anything; so may the file names inside a trace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.audit.known_sites import MAX_BASELINE_BYTES, read_baseline
from harness.errors import UsageError
from harness.findings.statement import statement_at


def refused(path: Path) -> str:
    with pytest.raises(UsageError) as raised:
        read_baseline(path)
    return str(raised.value)


def test_devices_pipes_and_folders_are_no_baseline(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refused(Path("/dev/zero"))
    assert "not a regular file" in refused(tmp_path / "pipe")
    assert "cannot be read" in refused(tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"", b"[" * 300_000, b'{"sites":' * 200_000, b"\xff\xfe", b"{}", b'text\n{\n"schema": 1'],
)
def test_what_is_no_report_is_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "audit.json"
    path.write_bytes(content)
    assert "holds no audit report" in refused(path)


def test_a_huge_baseline_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "audit.json"
    with path.open("wb") as file:
        file.truncate(MAX_BASELINE_BYTES + 1)
    assert "larger than the limit" in refused(path)


def test_a_trace_cannot_make_us_read_a_device_as_source(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "deep.py").write_text("x = " + "(" * 5000 + ")" * 5000)
    for name in ("/dev/zero", str(tmp_path / "pipe.py"), str(tmp_path / "deep.py"), "\0", "absent"):
        assert statement_at(name, 1) is None
