"""The command as a user types it: words in, table, document and exit code out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gapless.cli.main import EXIT_UNEXPECTED, main
from harness.errors import StoreError
from tests.toys.small_records import record

ROOT = Path(__file__).parents[2]

TINY = ["--layers", "2", "--tokens", "64", "--seconds", "1", "--threads", "1"]
SCENARIO = "qwen3-0.6b-packed-sft"
MODEL = ["model", SCENARIO, "--gpu", "B200", "--arm", "packed-metadata=cached"]


def document_of(printed: str) -> dict:
    """The JSON document that is all of stdout."""
    return json.loads(printed)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["bench", SCENARIO], "Say which arms in one way, and none was given"),
        (["bench", "qwen3-15b-packed", "--ladder"], "There is no scenario 'qwen3-15b-packed'; did"),
        (["bench", "--ladder"], "Name what to build"),
        (["bench", SCENARIO, "--config", "x.json", "--ladder"], "leave out the name or --config"),
        (["bench", "--config", "gone.json", "--ladder"], "no configuration at gone.json"),
        (["model", "--config", "gone.json", *MODEL[2:]], "no configuration at gone.json"),
        (["audit", "--config", "gone.json"], "no configuration at gone.json"),
        (["audit", "--config", "gone.json", "--scenario", SCENARIO], "Name one thing to audit"),
        (["bench", SCENARIO, "--ladder", "--grid"], "and --ladder and --grid were given"),
        (["bench", SCENARIO, "--arm", "x=y"], "'x' in the arm 'x=y' is no optimization"),
        (["bench", SCENARIO, "--ladder", "--toggle", "x"], "--toggle 'x' is no optimization"),
        (
            ["bench", SCENARIO, "--arm", "moe-routing=argsort"],
            "it takes packed-metadata, checkpoint-reload",
        ),
        (
            ["bench", SCENARIO, "--ladder", "--threads", "0"],
            "--threads 0 is out of range; give 1 or more",
        ),
        (
            [*MODEL, "--setting", "checkpoint-reload=gone"],
            "checkpoint-reload has no variant 'gone'",
        ),
        (["bench", SCENARIO, "--ladder", "--seconds", "0"], "--seconds 0 leaves no time"),
        (["bench", SCENARIO, "--ladder", "--seconds", "nan"], "--seconds nan leaves no time"),
        (["bench", SCENARIO, "--ladder", "--precision", "five"], "write it as 1%"),
        (
            ["bench", SCENARIO, "--ladder", "--dtype", "float8", "--dry-run"],
            "--dtype float8 is unknown; choose float32 or bfloat16",
        ),
        (["bench", SCENARIO, "--ladder", "--store", "a", "--no-store"], "exclude each other"),
        (
            ["bench", SCENARIO, "--arm", "checkpoint-reload=plain", "--attention", "varlen"],
            "--attention varlen belongs to packed-metadata",
        ),
        (
            ["bench", SCENARIO, "--arm", "packed-metadata=cached", "--attention", "eager"],
            "choose sdpa-mask or varlen, or leave --attention out",
        ),
        (["reproduce", "--only", "nothing"], "There is no claim 'nothing'; choose from"),
        (["reproduce", "--fit", "wide"], "--fit wide is unknown"),
        (["reproduce", "--device", "tpu"], "'tpu' is not a device"),
        (["doctor", "--device", "tpu"], "'tpu' is not a device"),
    ],
)
def test_bad_usage_is_one_sentence_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert sentence in captured.err
    assert len(captured.err.strip().splitlines()) == 1


def test_an_unknown_option_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", SCENARIO, "--laddder"]) == 2
    assert "--laddder" in capsys.readouterr().err


def test_debug_shows_the_traceback_wherever_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", SCENARIO, "--arm", "x=y"]
    for place in (0, 1, len(words)):
        assert main([*words[:place], "--debug", *words[place:]]) == 2
        assert "Traceback" in capsys.readouterr().err


def test_a_fault_of_gapless_is_told_apart(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(device: str):
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr("gapless.checkup.check_up", broken)
    assert main(["doctor"]) == EXIT_UNEXPECTED
    assert capsys.readouterr().err == (
        "gapless: unexpected RuntimeError: first line; run again with --debug for the traceback.\n"
    )


def test_dry_run_prints_the_plan_and_measures_nothing(capsys, tmp_path: Path) -> None:
    assert main(["bench", SCENARIO, "--grid", "--dry-run", "--json", *TINY]) == 0
    plan = document_of(capsys.readouterr().out)
    assert [arm["role"] for arm in plan["arms"]] == ["baseline", *["arm"] * 3, "a/a"]
    assert plan["spec"]["options"]["num_layers"] == 2
    assert not (tmp_path / "results").exists()
    assert main(["bench", SCENARIO, "--grid", "--dry-run", *TINY]) == 0
    assert "checkpoint-reload" in capsys.readouterr().out.splitlines()[2]


def test_a_grid_on_a_model_with_experts_has_all_three_fixes(capsys) -> None:
    assert main(["bench", "gpt-oss-20b", "--grid", "--dry-run", "--json"]) == 0
    plan = document_of(capsys.readouterr().out)
    assert len(plan["arms"]) == 2**3 + 1
    assert plan["spec"]["options"]["attention"] == "sdpa-mask"


def test_bench_measures_keeps_and_prints(capsys, tmp_path: Path) -> None:
    arm = "packed-metadata=cached"
    assert main(["bench", SCENARIO, "--arm", arm, "--json", *TINY]) == 0
    captured = capsys.readouterr()
    document = document_of(captured.out)
    (kept,) = (tmp_path / "results").iterdir()
    assert kept.name == document["id"]
    assert document["status"] == "complete"
    assert {c["arm"] for c in document["comparisons"]} == {arm, "a/a"}
    assert all(check["passed"] for check in document["parity"])
    assert {check["arm"] for check in document["parity"]} >= {arm}
    assert f"{SCENARIO}: timing" in captured.err


def test_reproduce_fills_the_rows_it_was_asked_for(capsys, tmp_path: Path) -> None:
    claim = "reload-llama-3.2-1b-review-batch"
    # Any width will do, so that it ends after a few blocks, however long those take.
    limits = ["--seconds", "280", "--precision", "90%"]
    assert main(["reproduce", "--only", claim, *limits, "--json", "--quick"]) == 0
    document = document_of(capsys.readouterr().out)
    (row,) = document["rows"]
    assert row["claim"]["id"] == claim
    assert row["measured"]["source"] == "measured"
    assert row["noise"]["arm"] == "a/a"
    assert row["beyond"]["arm"] == "checkpoint-reload=prefetch"
    assert [path.name for path in (tmp_path / "results").iterdir()] == document["runs"]


def test_ctrl_c_keeps_what_was_measured_and_exits_130(tmp_path: Path) -> None:
    words = [
        "bench",
        SCENARIO,
        "--arm",
        "packed-metadata=cached",
        "--layers",
        "2",
        "--tokens",
        "64",
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "gapless", *words, "--seconds", "300", "--precision", "0.0001%"],
        env={**os.environ, "GAPLESS_STORE": str(tmp_path / "kept")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.endswith(": timing\n"):
                process.send_signal(signal.SIGINT)
                break
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Incomplete: Stopped on request" in out
    (kept,) = (tmp_path / "kept").iterdir()
    assert json.loads((kept / "run.json").read_text())["status"] == "incomplete"


def test_ctrl_c_ends_the_whole_sweep_of_a_model(tmp_path: Path) -> None:
    sizes = ["--gpu", "H100", "--fit", "narrow", "--layers", "2", "--tokens", "64"]
    with subprocess.Popen(
        [sys.executable, "-m", "gapless", *MODEL, *sizes, "--store", str(tmp_path / "kept")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.endswith(": warm-up\n"):
                process.send_signal(signal.SIGINT)
                break
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Kept with source `modelled`: 1 record under" in out
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_a_store_that_cannot_be_written_is_named_before_measuring(capsys, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = ["bench", SCENARIO, "--arm", "packed-metadata=cached", *TINY]
    assert main([*words, "--store", str(tmp_path / "file")]) == 2
    assert capsys.readouterr() == (
        "",
        (
            f"gapless: The store {tmp_path}/file cannot be written: {tmp_path}/file is a file; "
            "name another.\n"
        ),
    )


def test_figures_are_shown_where_the_store_fails_after_the_run(capsys, monkeypatch) -> None:
    from harness.record.store import Store

    def full(store, run, samples, **_):
        raise StoreError("The store cannot take the run: the disk is full.")

    monkeypatch.setattr("harness.bench.runner.run_plan", lambda plan, **_: (record(), ()))
    monkeypatch.setattr(Store, "write", full)
    assert main(["bench", SCENARIO, "--arm", "packed-metadata=cached", "--json"]) == 2
    captured = capsys.readouterr()
    assert document_of(captured.out)["id"] == record().id
    assert captured.err.endswith("the disk is full.\n")


def test_a_store_in_memory_says_that_nothing_is_kept(
    capsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("harness.bench.runner.run_plan", lambda plan, **_: (record(), ()))
    words = ["bench", SCENARIO, "--arm", "packed-metadata=cached", "--store"]
    assert main([*words, "memory://runs"]) == 0
    assert "Nothing is kept: memory://runs ends with this process" in capsys.readouterr().out
    assert main([*words, "runs of ours/"]) == 0
    assert f"Record: {record().id} under runs of ours/\n" in capsys.readouterr().out


def test_list_names_everything_that_can_be_typed(capsys) -> None:
    assert main(["list", "--json", "--device", "cpu"]) == 0
    document = document_of(capsys.readouterr().out)
    assert SCENARIO in [scenario["name"] for scenario in document["scenarios"]]
    variants = {(v["optimization"], v["variant"]): v["missing"] for v in document["variants"]}
    assert variants["packed-metadata", "cached"] is None
    assert variants["moe-routing", "argsort"] is None


def test_doctor_says_what_a_gpu_run_lacks(capsys) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert main(["doctor", "--json"]) == 0
    document = document_of(capsys.readouterr().out)
    assert document["gpu_missing"][0].startswith("No GPU run: ")
    assert document["clock_resolution_ns"] > 0
    assert document["noise"]["num_blocks"] > 0


@pytest.mark.parametrize(
    ("words", "code"),
    [(["list"], 2), (["bench", "gpt-oss-20b"], 2), (["audit", "trace.json"], 0)],
)
def test_what_is_not_installed_is_one_sentence(words: list[str], code: int, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    program = (
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('torch', 'transformers', 'peft'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Without())\n"
        "from gapless.cli.main import main\n"
        f"sys.exit(main({words!r}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == (1 if code else 0)
