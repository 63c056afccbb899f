"""Whatever one folder's `run.json` holds, the other runs are listed and the folder is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gapless.cli.main import main
from harness.record import run_index, store
from harness.record.records import RunRecord
from harness.record.store import Store
from tests.record.record_strategies import TOO_LARGE, bent, run_documents
from tests.record.stored_runs import record

if TYPE_CHECKING:
    from harness.record.store import Listing

FAULTS = Path(__file__).resolve().parents[2].parent / "shared" / "faults" / "store" / "bigint"
ANY = settings(deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of one good run and one odd one, large enough to have an index."""
    for module in (store, run_index):
        monkeypatch.setattr(module, "INDEX_MIN_RUNS", 1)
    Store(str(tmp_path)).write(record("good"), [])
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "samples.parquet").write_bytes(b"")
    return tmp_path


def listing(root: Path, content: bytes) -> Listing:
    (root / "odd" / "run.json").write_bytes(content)
    found = Store(str(root)).listing()
    named = [record.id for record in found.records] + [problem.name for problem in found.problems]
    assert sorted(named) == ["good", "odd"]
    assert "good" in [record.id for record in found.records]
    for problem in found.problems:
        assert problem.reason.isprintable()
        assert problem.reason.endswith(".")
    return found


@ANY
@given(document=run_documents("odd"))
def test_what_the_schema_allows_is_listed(beside: Path, document: dict[str, Any]) -> None:
    found = listing(beside, json.dumps(document).encode())
    assert len(found.records) == 2


@ANY
@given(content=bent(msgspec.to_builtins(record("odd"))) | st.binary(max_size=80))
def test_a_bent_run_file_hides_no_other_run(beside: Path, content: bytes) -> None:
    listing(beside, content)


@ANY
@given(number=TOO_LARGE, data=st.data())
def test_a_number_that_no_reader_can_carry_on_is_named(
    beside: Path, number: float, data: st.DataObject
) -> None:
    document = msgspec.to_builtins(record("odd")) | {"samples_bytes": 0}
    if isinstance(number, int):
        places = [(document, "num_samples"), (document["scenario"], "seed")]
    else:
        places = [(document, "duration_s")]
    holder, key = data.draw(st.sampled_from(places))
    holder[key] = number
    (problem,) = listing(beside, json.dumps(document).encode()).problems
    assert key in problem.reason


def test_the_strategy_reaches_every_field(beside: Path) -> None:
    reached: set[str] = set()

    @settings(ANY, max_examples=60, database=None)
    @given(run_documents("odd"))
    def note(document: dict[str, Any]) -> None:
        reached.update(document)

    note()
    assert reached == set(RunRecord.__struct_fields__)


@pytest.mark.skipif(not FAULTS.is_dir(), reason="needs ../shared/faults beside the checkout")
def test_the_reported_store_is_shown_but_for_the_run_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(shutil.copytree(FAULTS, tmp_path / "store", copy_function=shutil.copyfile))
    found = Store(root).listing()
    assert [record.id for record in found.records] == ["20261130T000002Z-ok-cpu-cccccc"]
    (problem,) = found.problems
    assert "num_samples is not an integer of 64 bits" in problem.reason
    for words in (["report"], ["export", str(tmp_path / "out.html")]):
        assert main([*words, "--store", root]) == 0
        said = capsys.readouterr().err
        assert "20261130T000018Z-bigint-cpu-000018" in said
        assert said.count("\n") == 1
