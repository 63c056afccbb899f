"""The bench on an emulated GPU, its tables, sweeps and profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
import torch

from gapless.arms import parse_arms
from gapless.bench_run import variants_of
from gapless.cli.main import main
from gapless.modelled import (
    Point,
    model_flops,
    model_scenario,
    modelled_table,
    parse_sweep,
    phase_ms,
    points,
)
from harness.clock.calibration import (
    FOLDER_VARIABLE,
    Profile,
    costs_for,
    load_profile,
    save_profile,
)
from harness.clock.gpus import find_gpu
from harness.clock.op_work import Work
from harness.errors import StoreError, UsageError
from scenarios.scenario_catalogue import get

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.records import RunRecord

SCENARIO = "qwen3-8b-packed-sft"


@pytest.fixture(scope="module")
def record() -> RunRecord:
    settings = {"packed-metadata": "collator", "checkpoint-reload": "single-buffer"}
    arms = parse_arms(
        ["checkpoint-reload=double-buffer", "checkpoint-reload=plain"],
        variants_of(),
        settings=settings,
    )
    # Real widths, so that a copy takes as long as it does; two layers are offloaded.
    options = {
        "fit": "full",
        "num_layers": 4,
        "tokens": 16_384,
        "documents": 8,
        "num_batches": 1,
        "attention": "varlen",
    }
    return model_scenario(get(SCENARIO), arms, "b200", options, store=None)


def test_a_modelled_record_says_so_everywhere(record: RunRecord) -> None:
    assert record.status == "complete", record.reason
    assert record.machine.device == "emulated-b200"
    figures = (*record.comparisons, *record.memory, *record.syncs, *record.overlap)
    assert record.source == "modelled"
    assert {figure.source for figure in figures} == {"modelled"}
    assert not record.parity


def test_the_double_buffer_hides_copies_and_costs_one_buffer(record: RunRecord) -> None:
    double, plain = "checkpoint-reload=double-buffer", "checkpoint-reload=plain"
    overlap = {o.arm: o.overlap for o in record.overlap}
    assert (overlap[double] or 0) > (overlap["baseline"] or 0) + 0.2
    steps = {arm: phase_ms(record, arm, "batch") or 0 for arm in ("baseline", double, plain)}
    # The copies may be hidden whole, and then the two differ by rounding only.
    assert steps["baseline"] > steps[double] >= steps[plain] * (1 - 1e-9)
    peaks = {m.arm: m.peak_bytes for m in record.memory if m.phase == "backward"}
    buffer_bytes = 16_384 * 4096 * 2
    assert peaks[double] - peaks["baseline"] == pytest.approx(buffer_bytes, rel=0.05)


def test_the_table_has_a_row_an_arm_and_a_share_of_the_peak(record: RunRecord) -> None:
    table = modelled_table([(Point("B200", {"tokens": 16_384}), record)])
    assert [row[2] for row in table.rows] == [arm.name for arm in record.arms]
    assert all(len(row) == len(table.columns) for row in table.rows)
    mfu = float(table.rows[0][table.columns.index("MFU")].rstrip("%"))
    assert 10 < mfu < 70
    flops = model_flops(record)
    assert flops is not None
    assert record.scenario.num_parameters is not None
    # Qwen3-8B's embeddings are not tied to its head: they are looked up, not multiplied.
    products = record.scenario.num_parameters - 151_936 * 4_096
    assert flops == 6 * products * 16_384
    tied = msgspec.structs.replace(
        record,
        scenario=msgspec.structs.replace(
            record.scenario, config={**record.scenario.config, "tie_word_embeddings": True}
        ),
    )
    assert model_flops(tied) == 6 * record.scenario.num_parameters * 16_384


def test_sweeps_are_read_and_combined() -> None:
    swept = parse_sweep(["tokens=2k..8k", "documents=4,9"])
    assert swept == {"tokens": (2048, 4096, 8192), "documents": (4, 9)}
    assert len(points(["H100", "B200"], swept)) == 12
    assert points(["H100"], {}) == (Point("H100", {}),)


@pytest.mark.parametrize("text", ["tokens", "width=1..2", "tokens=8k..2k", "tokens=x", "layers=0"])
def test_a_sweep_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--sweep"):
        parse_sweep([text])


def test_a_failed_point_is_a_row_and_not_the_end(record: RunRecord) -> None:
    failed = msgspec.structs.replace(record, status="failed", reason="Out of memory.")
    table = modelled_table([(Point("B200", {}), failed), (Point("B200", {}), record)])
    assert table.rows[0][2] == "Out of memory."
    assert len(table.rows) == 1 + len(record.arms)


def test_unknown_names_end_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    arm = ["--arm", "checkpoint-reload=double-buffer"]
    assert main(["model", SCENARIO, "--gpu", "H900", *arm]) == 2
    assert "H900" in capsys.readouterr().err


def a_profile(key: str) -> Profile:
    return Profile(
        key=key,
        device="somewhere",
        created_utc="2026-01-01T00:00:00Z",
        torch=str(torch.__version__),
        num_threads=1,
        host_ns={"eager_ns": 123},
        curves={"elementwise": ((1.0, 777.0), (2.0, 777.0))},
        link_gb_per_s=11.0,
    )


def test_a_stored_profile_takes_the_catalogues_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    work = Work("aten::add", "elementwise", 0, 1)
    before = costs_for(find_gpu("H200"))
    save_profile(a_profile("H200"))
    after = costs_for(find_gpu("H200"))
    assert before.kernel_ns(work) != after.kernel_ns(work) == 777
    assert after.host.eager_ns == 123
    assert after.copy_ns("h2d", 11_000, True) == after.copy_latency_ns + 1000
    assert costs_for(find_gpu("B200")).kernel_ns(work) != 777
    assert load_profile("cpu") is None


def test_a_damaged_profile_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    (tmp_path / "H200.json").write_text("{")
    with pytest.raises(StoreError, match=r"H200.json is no profile"):
        costs_for(find_gpu("H200"))


def test_a_modelled_run_is_not_told_that_its_time_was_up(record: RunRecord) -> None:
    assert not [note for note in record.notes if "ended the run" in note]


def test_the_table_explains_what_is_exposed(record: RunRecord) -> None:
    (note,) = modelled_table([(Point("B200", {}), record)]).notes
    assert note.startswith("Exposed is the time in which the device idles because the host waits")


def test_a_sweep_names_an_option_once() -> None:
    with pytest.raises(UsageError, match="--sweep tokens is given twice"):
        parse_sweep(["tokens=64", "layers=2", "tokens=128"])
