"""Small files of a store that unpack to much are refused before they do."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.errors import StoreError
from harness.record import samples as samples_module
from harness.record.attachments import decode_audits
from harness.record.samples import MAX_SAMPLES, decode_samples
from harness.record.soundness import MOST_ENTRIES
from harness.record.store import Store
from tests.record.stored_runs import record, samples

if TYPE_CHECKING:
    from collections.abc import Callable

FAULTS = Path(__file__).resolve().parents[2].parent / "shared" / "faults" / "store"


def parquet(num_rows: int, arm: str | None = "a", **columns: pa.Array) -> bytes:
    given = {
        "order": pa.array(range(num_rows), pa.int64()),
        "block": pa.nulls(num_rows, pa.int64()).fill_null(0),
        "arm": pa.DictionaryArray.from_arrays(
            pa.nulls(num_rows, pa.int32()).fill_null(0), pa.array([arm], pa.string())
        ),
        "phase": pa.nulls(num_rows, pa.string()).fill_null("batch"),
        "duration_ms": pa.nulls(num_rows, pa.float64()).fill_null(1.0),
        "warmup": pa.nulls(num_rows, pa.bool_()).fill_null(False),
    }
    given["arm"] = given["arm"].cast(pa.string())
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(given | columns), sink, compression="zstd", write_page_checksum=True)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lambda: parquet(MAX_SAMPLES + 1), f"it holds {MAX_SAMPLES + 1} rows"),
        (lambda: parquet(1, arm="x" * 70_000_000), "it holds 1 rows in 7"),
        (lambda: parquet(1000, arm="x" * 2000), "its column arm takes 2000 bytes"),
        (lambda: parquet(1, duration_ms=pa.array([float("nan")])), "not a finite number"),
        (lambda: parquet(1, duration_ms=pa.array([1e300])), "larger than 1e+100"),
        (lambda: parquet(1, order=pa.array([None], pa.int64())), "order has an empty cell"),
        (lambda: parquet(1, arm=None), "arm has an empty cell"),
    ],
)
def test_samples_that_no_run_has_are_refused(content: Callable[[], bytes], words: str) -> None:
    packed = content()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=words.replace("+", r"\+")):
            decode_samples(packed)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 16 << 20


def test_a_long_run_takes_little_more_than_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    content = parquet(20_000, arm="x" * 900)
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    found = decode_samples(content)
    assert len(found) == 20_000
    assert found[0].arm is found[-1].arm
    assert pool.bytes_allocated() - before < 4 << 20


def test_a_footer_that_claims_little_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples_module, "MAX_SAMPLES_BYTES", 1000)
    with pytest.raises(ValueError, match="it holds 1 rows"):
        decode_samples(parquet(1, arm="x" * 900 * 2))


def test_texts_of_samples_are_harmless_to_print() -> None:
    (sample,) = decode_samples(parquet(1, arm="a\x1b[31m\u202e"))
    assert sample.arm == "a\\x1b[31m\\u202e"


def test_a_record_with_endless_lists_is_a_problem(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write(record("good"), samples(1))
    stored = store.write(record("long"), samples(1))
    notes = ("x",) * (MOST_ENTRIES + 1)
    content = msgspec.json.encode(msgspec.structs.replace(stored, notes=notes))
    (tmp_path / "long" / "run.json").write_bytes(content)
    listing = store.listing()
    assert [found.id for found in listing.records] == ["good"]
    assert f"record.notes has {MOST_ENTRIES + 1} entries" in listing.problems[0].reason


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 500_000,
        b'{"a":' * 500_000,
        b"[]",
        b"[1e999]",
        b"\xff",
        b'[{"arm":"a","report":{"source":"trace","target":"t","device":"d","steps":'
        + b"9" * 40
        + b',"syncs_per_step":null}}]',
    ],
)
def test_audits_that_are_none_are_a_sentence(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"it holds|64 bits") as raised:
        decode_audits(content)
    assert str(raised.value).isprintable()


@pytest.mark.skipif(not FAULTS.is_dir(), reason="needs ../shared/faults beside the checkout")
def test_the_reported_bomb_is_refused() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(StoreError, match=r"samples\.parquet of run .* cannot be used"):
            Store(str(FAULTS / "samples-bomb")).samples("20261130T000025Z-sampbomb-cpu-000025")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 16 << 20
