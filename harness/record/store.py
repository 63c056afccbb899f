"""Reads and writes runs: one folder a run, in a local folder or at any fsspec URL.

A run is `<root>/<run id>/` with `run.json` (the `RunRecord`) and `samples.parquet` (every raw
sample). It appears whole or not at all. What is read is data and never trusted: sizes are bounded,
links are not followed, types are checked, and one bad folder never hides the others.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import overload

import msgspec

from harness.boundary.foreign_text import one_line, visible, visible_struct
from harness.errors import StoreError
from harness.record.attachments import (
    AUDITS_FILE,
    MAX_AUDITS_BYTES,
    MAX_TRACE_BYTES,
    ArmAudit,
    decode_audits,
    encode_audits,
    trace_file,
)
from harness.record.records import SCHEMA_VERSION, RunRecord, Sample
from harness.record.run_index import INDEX_MIN_RUNS, IndexEntry, index_file, load_index, save_index
from harness.record.samples import MAX_SAMPLES, MAX_SAMPLES_BYTES, decode_samples, encode_samples
from harness.record.soundness import unsound
from harness.record.storage import RUN_FILE, SAMPLES_FILE, Item, default_store, open_storage

MAX_INLINE_SAMPLES = 2_000
"""Up to this many raw samples are also kept in `run.json`, for readers without Parquet."""
MAX_RUN_BYTES = 32 << 20

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True)
class Problem:
    """Something in the store that is not a readable run."""

    name: str
    """File or folder name under the root."""
    reason: str
    """One sentence: what is wrong and how to mend it."""


@dataclass(frozen=True)
class Listing:
    """What a store holds."""

    records: Sequence[RunRecord]
    """Good runs, newest first. In a large store they are decoded when asked for, without `samples`
    (`Store.read` and `Store.samples` have them)."""
    problems: tuple[Problem, ...]


class Store:
    """The runs under one root: a local path, or any URL that fsspec knows (`s3://...`).

    Without a root it is the one that `$GAPLESS_STORE` names, or `results` in the working folder,
    as for the command line. Nothing is touched until a method is called, and a folder that does
    not exist is an empty store. Every failure is a `StoreError`.

        Store().listing().records[0].comparisons
    """

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = default_store() if root is None else os.fspath(root)
        self._storage = open_storage(self.root)

    def __repr__(self) -> str:
        return f"Store({self.root!r})"

    def write(
        self,
        record: RunRecord,
        samples: Sequence[Sample],
        *,
        audits: Sequence[ArmAudit] = (),
        traces: Mapping[str, bytes] | None = None,
    ) -> RunRecord:
        """Add a run and return its record as stored; a kill leaves all of it or nothing.

        `samples` are all raw samples, whatever `record.samples` holds. `traces` maps an arm to the
        gzipped Kineto trace of one of its steps. Raises where the id is taken or unsafe, a figure
        is not finite, or the medium refuses.
        """
        check_run_id(record.id)
        if len(samples) > MAX_SAMPLES:
            raise StoreError(
                f"Run {record.id} has {len(samples)} samples and a store takes {MAX_SAMPLES}: "
                f"measure for fewer blocks."
            )
        parquet = encode_samples(samples)
        traces = traces or {}
        stored = msgspec.structs.replace(
            record,
            num_samples=len(samples),
            samples=tuple(samples) if len(samples) <= MAX_INLINE_SAMPLES else None,
            samples_bytes=len(parquet),
            audited_arms=tuple(audit.arm for audit in audits),
            traced_arms=tuple(traces),
        )
        files = {SAMPLES_FILE: parquet}
        if audits:
            files[AUDITS_FILE] = encode_audits(audits)
        files |= {trace_file(number): trace for number, trace in enumerate(traces.values())}
        # run.json is last: without it a folder is no run.
        files[RUN_FILE] = _encode_record(stored)
        try:
            self._storage.publish(record.id, files)
        except FileExistsError as error:
            raise StoreError(
                f"The store {self.root} already has {record.id}, or is itself a file: "
                f"give the run another id or the store another root."
            ) from error
        except OSError as error:
            raise StoreError(
                f"The store {self.root} cannot take run {record.id}: {_cause(error)}; "
                f"nothing was left behind, so mend that or give another root."
            ) from error
        return stored

    def read(self, run_id: str) -> RunRecord:
        """One run; its `samples` are `None` where they are many (then see `samples`)."""
        check_run_id(run_id)
        try:
            return _decode_record(run_id, self._read(run_id, RUN_FILE, MAX_RUN_BYTES))
        except ValueError as error:
            raise StoreError(f"Run {run_id} in {self.root} cannot be read: {error}") from error

    def samples(self, run_id: str) -> tuple[Sample, ...]:
        """All raw samples of one run, in the order they were taken."""
        check_run_id(run_id)
        content = self._read(run_id, SAMPLES_FILE, MAX_SAMPLES_BYTES)
        try:
            return decode_samples(content)
        except ValueError as error:
            raise StoreError(
                f"{SAMPLES_FILE} of run {run_id} in {self.root} cannot be used, {error}: "
                f"copy the run's folder again."
            ) from error

    def audits(self, run_id: str) -> tuple[ArmAudit, ...]:
        """The audits of one run's arms; raises where the run has none (see `audited_arms`)."""
        check_run_id(run_id)
        content = self._read(run_id, AUDITS_FILE, MAX_AUDITS_BYTES)
        try:
            return decode_audits(content)
        except ValueError as error:
            raise StoreError(
                f"{AUDITS_FILE} of run {run_id} in {self.root} cannot be used, {error}: "
                f"copy the run's folder again."
            ) from error

    def trace(self, record: RunRecord, arm: str) -> bytes:
        """The gzipped Kineto trace of one arm; raises where it has none (see `traced_arms`)."""
        check_run_id(record.id)
        if arm not in record.traced_arms:
            raise StoreError(f"Run {record.id} has no trace of the arm {arm!r}: choose another.")
        name = trace_file(record.traced_arms.index(arm))
        return self._read(record.id, name, MAX_TRACE_BYTES)

    def listing(self) -> Listing:
        """Every good run, newest first, and every other visible thing with what is wrong with it.

        Hidden names are skipped: temporary folders of writers, and the cache that spares a large
        store from being read in full each time.
        """
        try:
            items = self._storage.scan()
        except OSError as error:
            raise StoreError(
                f"The store {self.root} cannot be listed: {_cause(error)}; give a folder of runs."
            ) from error
        problems: dict[str, str] = {}
        stamps: dict[str, str] = {}
        samples_bytes: dict[str, int] = {}
        for item in items:
            defect = _defect(item)
            if defect is None and item.run and item.samples:
                run, samples = item.run, item.samples
                stamps[item.name] = f"{run.size_bytes}:{run.version}:{samples.size_bytes}"
                samples_bytes[item.name] = samples.size_bytes
            else:
                problems[item.name] = defect or "it is not a run."

        cached = load_index(self._storage) if len(stamps) >= INDEX_MIN_RUNS else {}
        entries = {n: e for n, e in cached.items() if stamps.get(n) == e.stamp}
        unread = [name for name in stamps if name not in entries]
        paths = [f"{name}/{RUN_FILE}" for name in unread]
        for name, content in zip(
            unread, self._storage.read_many(paths, MAX_RUN_BYTES), strict=True
        ):
            try:
                if isinstance(content, OSError):
                    raise ValueError(f"{_cause(content)}.") from content
                entries[name] = _index_entry(name, content, stamps[name], samples_bytes[name])
            except ValueError as error:
                problems[name] = str(error)
        if len(entries) >= INDEX_MIN_RUNS and entries != cached:
            save_index(self._storage, entries)

        newest_first = sorted(entries, key=lambda n: (entries[n].created_utc, n), reverse=True)
        return Listing(
            records=_LazyRecords(tuple(entries[name].record for name in newest_first)),
            problems=tuple(Problem(visible(name), problems[name]) for name in sorted(problems)),
        )

    def _read(self, run_id: str, file_name: str, limit_bytes: int) -> bytes:
        try:
            return self._storage.read(f"{run_id}/{file_name}", limit_bytes)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreError(
                f"The store {self.root} has no {file_name} for run {run_id}: "
                f"check the id, or copy the run's folder again."
            ) from error
        except OSError as error:
            raise StoreError(
                f"{file_name} of run {run_id} in {self.root} cannot be read: {_cause(error)}."
            ) from error


class _LazyRecords(Sequence[RunRecord]):
    """Records decoded one by one when asked for: showing ten of 10,000 runs decodes ten."""

    def __init__(self, encoded: tuple[bytes, ...]) -> None:
        self._encoded = encoded

    def __len__(self) -> int:
        return len(self._encoded)

    @overload
    def __getitem__(self, index: int) -> RunRecord: ...
    @overload
    def __getitem__(self, index: slice) -> _LazyRecords: ...
    def __getitem__(self, index: int | slice) -> RunRecord | _LazyRecords:
        if isinstance(index, slice):
            return _LazyRecords(self._encoded[index])
        try:
            return _RECORD_FROM_INDEX.decode(self._encoded[index])
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            # Pages of the cache are checksummed, so this is a crafted cache, not a broken disk.
            raise StoreError(
                f"The store's {index_file()} holds something else than records ({error}): "
                f"delete it, it is made anew."
            ) from error


def new_run_id(scenario: str, device: str, when: datetime | None = None) -> str:
    """`<UTC YYYYmmddTHHMMSSZ>-<scenario>-<device>-<6 hex>`, in characters safe for any file system.

    `when` is now unless given; one without a time zone is taken as UTC.
    """
    when = when or datetime.now(UTC)
    utc = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    return f"{utc:%Y%m%dT%H%M%SZ}-{_slug(scenario)}-{_slug(device)}-{secrets.token_hex(3)}"


def check_run_id(run_id: str) -> None:
    """`StoreError` unless the id is one plain name, which cannot lead out of a store."""
    if not _RUN_ID.fullmatch(run_id):
        raise StoreError(
            f"{run_id[:80]!r} is not a run id: give the name of a run's folder, "
            f"letters, digits, '.', '_' and '-' only."
        )


class _Head(msgspec.Struct):
    schema: int


_HEAD = msgspec.json.Decoder(_Head)
_RECORD = msgspec.json.Decoder(RunRecord)
_RECORD_FROM_INDEX = msgspec.msgpack.Decoder(RunRecord)
_INDEX_ENCODER = msgspec.msgpack.Encoder()


def _encode_record(record: RunRecord) -> bytes:
    wrong = unsound(msgspec.to_builtins(record), "record")
    if wrong is not None:
        # JSON has no such number, and writing null would make the run unreadable.
        raise StoreError(f"Run {record.id} cannot be stored: {wrong}; leave it unknown.")
    content = msgspec.json.encode(record)
    if len(content) > MAX_RUN_BYTES:
        raise StoreError(
            f"The record of run {record.id} takes {len(content)} bytes and a store takes "
            f"{MAX_RUN_BYTES}: record fewer arms in one run."
        )
    return content


def _decode_record(name: str, content: bytes) -> RunRecord:
    """`ValueError` with one sentence where `content` is not the record of the run `name`."""
    try:
        schema = _HEAD.decode(content).schema
        if schema > SCHEMA_VERSION:
            raise ValueError(
                f"it has schema {schema} and this gapless reads up to {SCHEMA_VERSION}: "
                f"upgrade gapless."
            )
        record = _RECORD.decode(content)
        wrong = unsound(msgspec.to_builtins(record), "record")
        if wrong is not None:
            raise ValueError(f"{RUN_FILE} is not a gapless record: {one_line(wrong)}.")
    except msgspec.ValidationError as error:
        said = one_line(str(error))
        raise ValueError(f"{RUN_FILE} is not a gapless record: {said}.") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{RUN_FILE} is broken JSON ({error}): copy the run's folder again."
        ) from error
    if record.id != name:
        raise ValueError(f"it holds run {record.id[:200]!r}: give the folder that name.")
    return visible_struct(record)


def _index_entry(name: str, content: bytes, stamp: str, samples_bytes: int) -> IndexEntry:
    record = _decode_record(name, content)
    if record.samples_bytes is not None and record.samples_bytes != samples_bytes:
        raise ValueError(
            f"half-copied: {SAMPLES_FILE} has {samples_bytes} of {record.samples_bytes} bytes; "
            f"copy the run's folder again."
        )
    light = msgspec.structs.replace(record, samples=None)
    return IndexEntry(stamp, record.created_utc, _INDEX_ENCODER.encode(light))


def _defect(item: Item) -> str | None:
    if not item.is_folder:
        return "not a run folder: move it out of the store."
    if not _RUN_ID.fullmatch(item.name):
        return "the name is not a run id: rename or move the folder."
    if item.run is None and item.samples is None:
        return f"not a run: the folder has no {RUN_FILE}; move it out of the store."
    if item.run is None:
        return f"half-copied: {RUN_FILE} is missing; copy the run's folder again."
    if item.samples is None:
        return f"half-copied: {SAMPLES_FILE} is missing; copy the run's folder again."
    return None


def _cause(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full"
    return (error.strerror or str(error) or type(error).__name__).rstrip(".")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9._]+", "-", text.lower()).strip("-._")[:80] or "unnamed"
