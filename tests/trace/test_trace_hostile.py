"""Damaged, foreign and hostile files: a clear error or a partial report that says so."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_paths import DATA

from harness.audit.trace import TraceLimits, annotate, audit_trace
from harness.audit.trace.columns import UNKNOWN
from harness.audit.trace.load import load_trace
from harness.errors import UsageError
from harness.record.audit_report import to_json

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.audit_report import AuditReport

SMALL = TraceLimits(
    chunk_bytes=4_000, max_event_bytes=50_000, max_bytes=400_000, expansion_free_bytes=100_000
)


def event(**changes: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "kernel",
        "name": "k",
        "pid": 0,
        "tid": 7,
        "ts": 10,
        "dur": 5,
        "args": {"device": 0, "stream": 7, "correlation": 1},
        **changes,
    }


def attempt(path: Path, limits: TraceLimits) -> AuditReport | str:
    """The report, or the message of a clear error; anything else fails the test."""
    try:
        return audit_trace(path, limits=limits)
    except UsageError as error:
        return str(error)


def write(folder: Path, events: list[Any], **top: Any) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, **top, "traceEvents": events}))
    return path


def test_one_line_and_trailing_metadata_are_read_in_small_chunks(tmp_path: Path) -> None:
    events = [event(ts=20 * i, args={"device": 0, "correlation": i}) for i in range(500)]
    text = json.dumps({"a": [{}, {}], "traceEvents": events, "b": [{"c": 1}, {"d": "]}, {"}]})
    path = tmp_path / "trace.json"
    path.write_text(text)
    trace = load_trace(path, limits=SMALL)
    assert len(trace.device) == 500
    assert trace.metadata["b"] == [{"c": 1}, {"d": "]}, {"}]
    assert trace.notes == ()


def test_separators_inside_names_are_no_boundaries(tmp_path: Path) -> None:
    events = [event(name='odd }, { "]} name \\', ts=20 * i) for i in range(300)]
    for spaces in (None, 1):
        path = tmp_path / "trace.json"
        path.write_text(json.dumps({"traceEvents": events}, indent=spaces))
        trace = load_trace(path, limits=SMALL)
        assert len(trace.device) == 300
        assert trace.notes == ()


def test_a_bare_list_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps([event()]).encode())
    assert len(load_trace(path).device) == 1


@pytest.mark.parametrize("cut", [40, 150, 1_000, 5_000, -2])
def test_a_truncated_file_gives_what_can_be_read_and_says_so(tmp_path: Path, cut: int) -> None:
    events = [event(ts=20 * i) for i in range(100)]
    path = write(tmp_path, events)
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    trace = load_trace(path)
    assert any("ends before its list of events" in note for note in trace.notes)
    assert len(trace.device) == whole[:cut].count(b"}}")


def test_a_truncated_gzip_file_gives_what_can_be_read(tmp_path: Path) -> None:
    whole = (DATA / "param_dlrm_v100_rank0of8.json.gz").read_bytes()
    path = tmp_path / "trace.json.gz"
    path.write_bytes(whole[: len(whole) * 9 // 10])
    report = audit_trace(path)
    assert report.timeline.span_ms is not None
    assert any("gzip data ends early" in note for note in report.notes)


def test_damage_inside_a_gzip_file_is_said(tmp_path: Path) -> None:
    whole = bytearray((DATA / "param_dlrm_v100_rank0of8.json.gz").read_bytes())
    whole[len(whole) // 2] ^= 0xFF
    path = tmp_path / "trace.json.gz"
    path.write_bytes(whole)
    assert any("gzip data is damaged" in note for note in audit_trace(path).notes)


def test_members_after_each_other_are_one_file(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [event(), event(ts=30)]}).encode()
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(text[:50]) + gzip.compress(text[50:]) + b"\0" * 32)
    assert len(load_trace(path).device) == 2


def test_a_gzip_bomb_stops_at_the_stated_limit(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    spaces = b" " * (1 << 20)
    path.write_bytes(
        packer.compress(b'{"traceEvents": [')
        + b"".join(packer.compress(spaces) for _ in range(80))
        + packer.flush()
    )
    with pytest.raises(UsageError, match="more than 200 times its size"):
        audit_trace(path)


def test_more_bytes_or_events_than_allowed_are_left_out_and_said(tmp_path: Path) -> None:
    path = write(tmp_path, [event(ts=20 * i) for i in range(5_000)])
    trace = load_trace(path, limits=SMALL)
    assert 0 < len(trace.device) < 5_000
    assert any("only the first 400,000 bytes" in note for note in trace.notes)
    trace = load_trace(path, limits=TraceLimits(chunk_bytes=4_000, max_events=100))
    assert 100 <= len(trace.device) < 200
    assert any("only the first 100 events" in note for note in trace.notes)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_a_million_brackets_deep_is_no_recursion(tmp_path: Path, opening: bytes) -> None:
    deep = opening * 1_000_000
    path = tmp_path / "trace.json"
    good = json.dumps(event()).encode()
    closing = (b"]" if opening == b"[" else b"}") * 1_000_000
    value = deep + (b"" if opening == b"[" else b"1") + closing
    path.write_bytes(
        b'{"traceEvents": [' + good + b', {"ph": "X", "args": ' + value + b"}, " + good + b"]}"
    )
    trace = load_trace(path)
    assert len(trace.device) == 2
    assert any("left out 1 damaged event" in note for note in trace.notes)
    path.write_bytes(deep)
    outcome = attempt(path, TraceLimits())
    assert isinstance(outcome, str) or outcome.notes


def test_odd_numbers_become_damage_not_answers(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    good = json.dumps(event())
    odd = ["1e400", "1e300", "-1e300", "9" * 400, "NaN", "-Infinity", "null", '"12"', "true", "[]"]
    bad = [good.replace('"ts": 10', f'"ts": {number}') for number in odd]
    bad += [good.replace('"dur": 5', f'"dur": {number}') for number in ("1e300", "9" * 40)]
    path.write_text('{"traceEvents": [' + ",\n".join([good, *bad]) + "]}")
    trace = load_trace(path)
    # A time stamp written as text is still a time stamp.
    assert trace.device.start.tolist() == [10_000, 12_000]
    assert any("without a usable time" in note for note in trace.notes)


def test_negative_and_zero_durations_are_instants(tmp_path: Path) -> None:
    path = write(tmp_path, [event(), event(ts=30, dur=-4), event(ts=50, dur=0), event(ts=60)])
    report = audit_trace(path)
    assert report.timeline.busy_ms == pytest.approx(0.010)
    assert any("negative duration" in note for note in report.notes)


def test_bad_utf8_bare_nan_and_windows_paths_are_mended(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(
        b'{"traceEvents": [{"ph":"X","cat":"kernel","name":"k\xff","pid":0,"tid":7,"ts":1,"dur":1,'
        b'"args":{"memory bandwidth (GB/s)": inf, "x": -nan}},'
        b'{"ph":"X","cat":"cpu_op","name":"C:\\users\\me","pid":1,"tid":1,"ts":1,"dur":1}]}'
    )
    trace = load_trace(path)
    assert len(trace.device) == len(trace.ops) == 1
    assert "C:\\users\\me" in trace.names
    assert trace.notes == ()


def test_entries_that_are_no_events_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, [event(), 5, "text", None, [], event(ts=40), {"args": 7}, {}])
    trace = load_trace(path)
    assert len(trace.device) == 2
    assert any("damaged" in note for note in trace.notes)


def test_epoch_time_stamps_with_fractions_keep_their_nanoseconds(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    stamp = "1695835585758909.123"
    path.write_text(json.dumps({"traceEvents": [event()]}).replace('"ts": 10', f'"ts": {stamp}'))
    assert load_trace(path).device.start.tolist() == [1695835585758909123]


def test_times_and_ids_of_all_kinds_of_spelling(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        [
            event(tid="stream 7", args={"device": "0", "stream": "0x0", "bytes": "32"}),
            event(args={"correlation": "x", "bytes": None}),
            event(args=None),
        ],
    )
    trace = load_trace(path)
    assert trace.device.num_bytes.tolist() == [32, UNKNOWN, UNKNOWN]
    assert trace.device.correlation.tolist() == [UNKNOWN] * 3


def test_equal_correlation_numbers_of_two_processes_are_told_apart(tmp_path: Path) -> None:
    rows = []
    for process, base in ((1, 0), (2, 1000)):
        call = event(cat="cuda_runtime", name="cudaLaunchKernel", pid=process, tid=process)
        rows += [
            call | {"ts": base, "dur": 5, "args": {"correlation": 9}},
            event(
                ts=base + 10, pid=process, args={"device": process, "stream": 7, "correlation": 9}
            ),
        ]
    report = audit_trace(write(tmp_path, rows))
    assert report.trace is not None
    assert [use.device for use in report.trace.devices] == ["1", "2"]
    assert report.unjudged == ()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"   \n",
        b"hello",
        b"{}",
        b"[1, 2",
        b'{"traceEvents": {}}',
        b'{"traceEvents": null}',
        b'{"x": {"traceEvents": []}}',
        b"\x1f\x8b\x08broken",
        b"\x1f\x8b",
        b"\xff\xfe{\x00}\x00",
        b'{"a": "' + b"x" * 100_000,
        b"PK\x03\x04zip",
    ],
)
def test_what_is_no_trace_is_refused_or_empty(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    outcome = attempt(path, SMALL)
    if isinstance(outcome, str):
        assert str(path) in outcome
        assert "\n" not in outcome
    else:
        assert outcome.sites == ()
        assert outcome.notes


def test_very_many_threads_waits_and_deep_stacks_stay_fast(tmp_path: Path) -> None:
    """Each loop over all rows inside a loop over threads, processes or waits would hang here."""
    rows = []
    for i in range(10_000):
        host = {"pid": i, "tid": i}
        call = event(cat="cuda_runtime", name="cudaDeviceSynchronize", ts=10 * i, dur=5, **host)
        rows += [call, event(ts=10 * i, args={"device": i, "stream": i, "correlation": i})]
        rows.append(event(cat="cpu_op", name=f"op{i}", ts=i, dur=10**6 - 2 * i, pid=1, tid=1))
    rows.append(
        event(cat="cuda_runtime", name="cudaDeviceSynchronize", ts=5 * 10**5, dur=5, pid=1, tid=1)
    )
    report = audit_trace(write(tmp_path, rows))
    assert report.api_calls == {"cudaDeviceSynchronize": 10_001}
    assert report.trace is not None
    assert max(len(cost.op_chain) for cost in report.trace.sites) == 512


WORDS = st.sampled_from(
    (
        *("kernel", "cpu_op", "cuda_runtime", "gpu_memcpy", "cuda_sync", "fwdbwd", "X", "s", "f"),
        *("cudaStreamSynchronize", "cudaMemcpyAsync", "cudaLaunchKernel", "aten::item"),
        *("Memcpy DtoH (Device -> Pageable)", "ProfilerStep#1", "nn.Module: A_0", "a.py(3): f"),
    )
)
ARGUMENTS = st.sampled_from(
    (
        *("correlation", "device", "stream", "bytes", "Sequence number", "Input Dims"),
        *("Call stack", "External id"),
    )
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    WORDS,
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
)
EVENTS = st.lists(
    st.one_of(
        VALUES,
        st.fixed_dictionaries(
            {},
            optional={
                "ph": st.one_of(st.just("X"), VALUES),
                "cat": st.one_of(WORDS, VALUES),
                "name": st.one_of(WORDS, VALUES),
                "pid": VALUES,
                "tid": VALUES,
                "ts": st.one_of(st.integers(0, 100), VALUES),
                "dur": st.one_of(st.integers(-3, 50), VALUES),
                "id": VALUES,
                "args": st.one_of(
                    VALUES,
                    st.dictionaries(
                        ARGUMENTS,
                        st.one_of(st.integers(0, 5), VALUES),
                    ),
                ),
            },
        ),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(EVENTS, VALUES)
def test_any_json_gives_a_report_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, events: list[Any], extra: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.json"
    path.write_text(json.dumps({"deviceProperties": extra, "traceEvents": events}))
    report = audit_trace(path)
    to_json(report)
    annotate(path, path.with_name("out.json.gz"))
    if report.timeline.idle_ms is not None and report.trace is not None:
        assert report.trace.exposed_ms <= report.timeline.idle_ms + 1e-6


@pytest.mark.parametrize("name", ["param_dlrm_v100_rank0of8", "hta_event_sync_a100"])
@pytest.mark.parametrize("seed", range(12))
def test_mutated_real_traces_give_a_report_or_a_clear_error(
    tmp_path: Path, name: str, seed: int
) -> None:
    text = bytearray(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 40)):
        position = chance.randrange(len(text))
        text[position : position + chance.randint(0, 3)] = chance.choice(
            [b"", b'"', b"{", b"}", b"]", b",", b"\\", b"9" * 30, b"\x00", b"\xff", b"null", b"-"]
        )
    path = tmp_path / "mutated.json"
    path.write_bytes(text)
    outcome = attempt(path, TraceLimits(chunk_bytes=100_000))
    if isinstance(outcome, str):
        assert str(path) in outcome
    else:
        to_json(outcome)
