"""Traces from anyone: bounded, in a process of their own, and nothing left behind."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

import pytest

from dashboard import trace_child
from dashboard.trace_child import audit_upload
from harness.audit.trace import audit_trace
from harness.errors import UsageError

DATA = Path(__file__).parents[1] / "trace" / "data"
TRACE = DATA / "a100_control_step1010.json.gz"


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "uploads"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_it_is_the_same_audit_and_nothing_is_left(own_temporary_folder: Path) -> None:
    shares: list[float] = []
    found = audit_upload("a.json.gz", TRACE.read_bytes(), on_progress=shares.append)
    expected = audit_trace(TRACE)
    assert found.report.sites == expected.sites
    assert found.report.findings == expected.findings
    assert found.report.api_calls == expected.api_calls
    assert found.timeline is not None
    assert shares[-1] == 1.0
    assert not list(own_temporary_folder.iterdir())


def test_a_name_leads_nowhere(own_temporary_folder: Path) -> None:
    content = gzip.decompress(TRACE.read_bytes())
    audit_upload("../../etc/passwd\x00.json", content)
    assert not list(own_temporary_folder.iterdir())


@pytest.mark.parametrize(
    "content", [b"", b"hello", b'{"a": 1}', b"\x1f\x8b broken", b"\x00" * 4096]
)
def test_what_is_no_trace_is_one_sentence(content: bytes, own_temporary_folder: Path) -> None:
    with pytest.raises(UsageError) as caught:
        audit_upload("x.json", content)
    assert len(str(caught.value).splitlines()) == 1
    assert "Traceback" not in str(caught.value)
    assert not list(own_temporary_folder.iterdir())


def test_a_bomb_is_refused(own_temporary_folder: Path) -> None:
    bomb = gzip.compress(b'{"traceEvents": [' + b" " * (80 << 20) + b"]}", 9)
    with pytest.raises(UsageError) as caught:
        audit_upload("bomb.json.gz", bomb)
    assert len(str(caught.value).splitlines()) == 1
    assert not list(own_temporary_folder.iterdir())


def test_a_file_that_is_too_large_is_refused(
    monkeypatch: pytest.MonkeyPatch, own_temporary_folder: Path
) -> None:
    monkeypatch.setattr(trace_child, "MAX_UPLOAD_BYTES", 1000)
    with pytest.raises(UsageError, match="larger than"):
        audit_upload("x.json", b"x" * 1001)
    assert not list(own_temporary_folder.iterdir())


def test_a_trace_that_takes_too_long_is_killed(own_temporary_folder: Path) -> None:
    with pytest.raises(UsageError, match=r"took longer than 0\.01 s"):
        audit_upload("a.json.gz", TRACE.read_bytes(), max_wall_s=0.01)
    assert not list(own_temporary_folder.iterdir())


def test_names_inside_a_trace_are_text(own_temporary_folder: Path) -> None:
    name = "<script>window.__hit=1</script>"
    event = {
        "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 1.0, "dur": 5.0,
        "args": {"device": 0, "stream": 7},
    }  # fmt: skip
    content = json.dumps({"traceEvents": [event]}).encode()
    found = audit_upload("x.json", content)
    assert found.report.trace is not None
    assert found.report.trace.top_kernels[0].name == name
