"""Every option of every verb has an effect or is refused, beside every way to use the verb."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import msgspec
import pytest
import typer

from gapless.cli.main import VERBS, app, main
from gapless.cli.option_rules import RANGES
from harness.record.audit_report import AuditReport, Site
from harness.record.store import Store
from harness.record.sync_kinds import SyncKind
from scenarios.scenario_catalogue import get
from tests.dashboard import synthetic
from tests.dashboard.stores import fill_modelled, fill_one
from tests.toys.small_records import comparison, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DENSE = "qwen3-0.6b-packed-sft"
CACHED = ["--arm", "packed-metadata=cached"]
BENCH = ["bench", DENSE, "--device", "cpu"]
MODEL = ["model", DENSE, "--gpu", "B200", *CACHED]

COMMAND = typer.main.get_command(app)
"""Made once: that takes longer than most of what is looked at here."""

USES: dict[str, list[str]] = {
    "callable": ["audit", "steps.py:build"],
    "callable as JSON": ["audit", "steps.py:build", "--json"],
    "callable with values": ["audit", "steps.py:build", "--values"],
    "callable against a baseline": ["audit", "steps.py:build", "--baseline", "audit.json"],
    "callable mended": ["audit", "steps.py:build", "--fix"],
    "callable, all of it": ["audit", "steps.py:build", "--all"],
    "script": ["audit", "steps.py"],
    "scenario": ["audit", "--scenario", DENSE],
    "configuration": ["audit", "--config", "model"],
    "scenario mended": ["audit", "--scenario", DENSE, "--fix"],
    "trace": ["audit", "trace.json"],
    "trace by another's rules": ["audit", "trace.json", "--compat", "hta"],
    "folder of traces": ["audit", "traces"],
    "pair of traces": ["audit", "trace.json", "trace.json.gz"],
    "bench": [*BENCH, *CACHED],
    "bench of a ladder": [*BENCH, "--ladder"],
    "bench that is planned": [*BENCH, *CACHED, "--dry-run", "--json"],
    "bench that keeps nothing": [*BENCH, *CACHED, "--no-store"],
    "bench on a modelled GPU": ["bench", DENSE, "--device", "emulated:B200", *CACHED],
    "model": MODEL,
    "model of a sweep": [*MODEL, "--sweep", "tokens=64,128"],
    "model that keeps nothing": [*MODEL, "--no-store"],
    "reproduce": ["reproduce", "--device", "cpu"],
    "reproduce on a modelled GPU": ["reproduce", "--device", "emulated:B200"],
    "calibrate": ["calibrate", "--device", "cpu"],
    "list": ["list", "--device", "cpu"],
    "doctor": ["doctor", "--device", "cpu"],
    "dashboard": ["dashboard", "--store", "runs"],
    "dashboard for all": ["dashboard", "--store", "runs", "--public", "--no-auth"],
    "export": ["export", "out.html", "--store", "runs"],
    "export of a site": ["export", "site", "--site", "--store", "runs"],
    "report": ["report", "--store", "runs"],
    "report as CSV": ["report", "--store", "runs", "--format", "csv"],
    "report as JSON": ["report", "--store", "runs", "--format", "json"],
}

VALUES = {
    "adapter": "none", "annotate": "out.json.gz", "arm": "checkpoint-reload=double-buffer",
    "attention": "varlen", "config": "model", "baseline": "audit.json", "compat": "hta",
    "data": "text.txt",
    "device": "cuda", "documents": "3", "dtype": "bfloat16", "fail_on": "new", "fit": "full",
    "fix": "gone", "gpu": "A100", "layers": "3", "min_blocks": "9", "model": "Synthetic-8B",
    "on": "A100", "only": "routing-gpt-oss-batch", "output": "json", "plotlyjs": "cdn",
    "port": "8765", "precision": "3%", "routing": "skewed", "run": "gone", "scale": "layers",
    "scenario": DENSE,
    "seconds": "7", "seed": "5", "setting": "packed-metadata=collator", "since": "2030-01-01",
    "skip": "2", "source": "modelled", "steps": "3", "store": "other", "sweep": "layers=1,2",
    "tensorboard": "board", "threads": "2", "timeline": "out.json.gz", "toggle": "packed-metadata",
    "tokenizer": "bytes", "tokens": "96", "top": "1", "until": "2020-01-01", "weights": "folder",
    "without": "steps.py:3", "model fit": "narrow",
}  # fmt: skip
DISPLAY = [False]
"""Whether there seems to be a display, last: a flag that asks for the default changes nothing."""


def site(line: int) -> Site:
    return Site(
        op="aten::item", kind=SyncKind.SCALAR_READ, phase="forward", count_per_step=1,
        syncs_per_call=1, file="steps.py", line=line, code=f"x{line}.item()",
    )  # fmt: skip


REPORT = AuditReport(
    source="emulated", target="steps.py:build", device="emulated H100", steps=1, syncs_per_step=30,
    sites=tuple(site(line) for line in range(30)),
)  # fmt: skip


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    """What the verbs ask of the code below them, which is not run: names with their arguments."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield _watched(tmp_path_factory.mktemp("uses"), monkeypatch)


def _watched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    asked: list[Any] = []

    def stand_in(path: str, answer: Any = None, through: Callable[..., Any] | None = None) -> None:
        def called(*args: Any, **kwargs: Any) -> Any:
            told = repr((path, args, sorted(kwargs.items())))
            asked.append(re.sub(r" at 0x[0-9a-f]+", "", told))
            return answer if through is None else through(*args, **kwargs)

        monkeypatch.setattr(path, called)

    monkeypatch.chdir(folder)
    for name in ("steps.py", "trace.json", "trace.json.gz", "text.txt"):
        Path(name).touch()
    for name in ("traces", "other", "runs", "folder", "model"):
        Path(name).mkdir()
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr("gapless.cli.main.app", COMMAND)
    fill_one(Store("runs"))
    fill_modelled(Store("runs"))
    synthetic.write(Store("runs"), synthetic.record(20, model="/home/ann/models/Synthetic-1B"))
    Path("model/config.json").write_bytes(
        msgspec.json.encode(dict(get("llama3.2-1b-packed-sft").facts))
    )
    _audits(stand_in, monkeypatch)
    _benches(stand_in, monkeypatch)
    _others(stand_in, monkeypatch)
    return asked


def _audits(stand_in: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    from gapless.fixing import FixResult, LossParity
    from harness.audit.trace import AuditComparison, HtaNumbers

    parity = LossParity(num_losses=1, largest_relative_difference=0.0)
    fixed = FixResult(before=REPORT, after=REPORT, fixes=("one",), parity=parity)
    hta = msgspec.convert(
        {name: 1.0 for name in HtaNumbers.__struct_fields__ if name[-2:] in ("us", "tg")}
        | {"comp_comm_overlap_pctg": 1.0, "idle_breakdown": [], "times": "measured"}
        | {name: 1.0 for name in HtaNumbers.__struct_fields__ if name.endswith("pctg")},
        HtaNumbers,
    )

    def run_before_and_after(audit: Callable[..., Any], *args: Any, **_: Any) -> Any:
        audit(*args)
        return fixed

    monkeypatch.setattr("gapless.program_audit.should_be_live", lambda gpu: False)
    stand_in("gapless.program_audit.audit_program", REPORT)
    stand_in("gapless.scenario_audit.audit_scenario", REPORT)
    stand_in("gapless.fixing.audit_and_fix", through=run_before_and_after)
    stand_in("gapless.fixing.audit_arms", through=run_before_and_after)
    known = msgspec.structs.replace(REPORT, sites=REPORT.sites[25:])
    stand_in("harness.audit.known_sites.read_baseline", known)
    stand_in("harness.audit.trace.audit_trace", REPORT)
    stand_in("harness.audit.trace.annotate", 1)
    stand_in("harness.audit.trace.compat_hta", hta)
    compared = AuditComparison(target_a="a", target_b="b", rows=(), num_compared=1)
    stand_in("harness.audit.trace.compare_audits", compared)
    stand_in("harness.audit.tensorboard.save_for_tensorboard", Path("saved"))


def _benches(stand_in: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    from gapless.sweep import Sweep
    from harness.machine import machine

    known = machine.describe_machine("cpu")
    monkeypatch.setattr("harness.machine.machine.describe_machine", lambda device: known)
    stand_in("harness.bench.runner.run_plan", (record(), ()))
    stand_in("gapless.bench_run.keep_run", record())
    stand_in("gapless.modelled.model_scenario", record(source="modelled"))
    stand_in("gapless.sweep.sweep_claims", Sweep(records=[record()]))


def _others(stand_in: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    from gapless.checkup import Checkup
    from gapless.inventory import Inventory
    from harness.clock.calibration import Profile

    stand_in("gapless.inventory.take_inventory", Inventory(device="cpu", scenarios=(), variants=()))
    checkup = Checkup(
        machine=record().machine, clock_resolution_ns=1, noise=comparison("a/a"), gpu_missing=(),
        packages_missing={},
    )  # fmt: skip
    stand_in("gapless.checkup.check_up", checkup)
    profile = Profile(
        key="cpu", device="a CPU", created_utc="", torch="", num_threads=1, host_ns={}, curves={}
    )
    stand_in("gapless.calibrate.calibrate_device", profile)
    stand_in("gapless.calibrate.check_on_cpu", (profile, ()))
    stand_in("harness.clock.calibration.save_profile", Path("profile.json"))
    stand_in("dashboard.html_export.collect", ())
    stand_in("dashboard.html_export.export_file", through=lambda _, out, *__: out.touch())
    stand_in("dashboard.html_export.export_site")
    stand_in("gapless.cli.dashboard.os.execve", through=_stop)
    monkeypatch.setattr("gapless.cli.dashboard._require_free", lambda *_: None)
    stand_in("gapless.cli.dashboard.server_options", through=lambda *_, headless, **__: {})
    monkeypatch.setattr("gapless.cli.dashboard._has_display", lambda: DISPLAY[-1])


def _stop(*_: Any, **__: Any) -> None:
    """What the verb asked is known, and what it would make of the answer is tested elsewhere."""
    raise typer.Exit(0)


def options_of(verb: str) -> Iterator[tuple[str, list[str]]]:
    """Each option of a verb as it may be typed: the parameter's name and the words."""
    command = COMMAND.commands[verb]  # type: ignore[attr-defined]
    for option in command.params:
        if option.param_type_name != "option" or option.name == "help":
            continue
        if not option.is_flag:
            value = VALUES.get(f"{verb} {option.name}") or VALUES[option.name]
            yield option.name, [option.opts[0], value]
            continue
        if option.default is not True:
            yield option.name, [option.opts[0]]
        if option.secondary_opts and option.default is not False:
            yield option.name, [option.secondary_opts[0]]


CASES = [
    pytest.param(use, words, id=f"{use} {' '.join(words)}")
    for use, base in USES.items()
    for _, words in options_of(base[0])
    if words[0] not in base or words[0] in ("--arm", "--gpu", "--sweep")
]


def outcome(
    words: list[str], calls: list[Any], capsys: pytest.CaptureFixture[str]
) -> tuple[int, list[Any], str, str]:
    calls.clear()
    code = main(words)
    captured = capsys.readouterr()
    return code, [*calls], captured.out, captured.err


@pytest.mark.parametrize(("use", "words"), CASES)
def test_an_option_changes_something_or_is_refused(
    use: str, words: list[str], calls: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    base = USES[use]
    DISPLAY.append("--no-browser" in words)
    usual = outcome(base, calls, capsys)
    assert usual[0] == 0, usual
    code, *changed, error = outcome([*base, *words], calls, capsys)
    if code == 2:
        assert error.startswith("gapless: ")
        assert error.count("\n") == 1
        assert words[0].strip("-") in error
    else:
        assert (code, *changed) != usual[:3], f"{words} is dropped: {error}"


@pytest.mark.parametrize("use", USES)
def test_an_option_is_given_once(
    use: str, calls: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    base = USES[use]
    command = COMMAND.commands[base[0]]  # type: ignore[attr-defined]
    many = {option.name for option in command.params if getattr(option, "multiple", False)}
    for name, words in options_of(base[0]):
        if name not in many:
            code, *_, error = outcome([*base, *words, *words], calls, capsys)
            assert code == 2, words
            assert words[0].removeprefix("--no-").strip("-") in error
    assert calls == []


def test_every_verb_and_every_number_is_looked_at() -> None:
    assert {base[0] for base in USES.values()} == set(VERBS)
    numbers = {
        name
        for verb in VERBS.values()
        for name, kind in get_type_hints(verb).items()
        if {int, float} & {kind, *get_args(kind)}
    }
    assert numbers == {*RANGES, "seconds"}


@pytest.mark.parametrize("name", sorted({*RANGES, "seconds"}))
def test_a_number_out_of_range_is_told_the_range(
    name: str, calls: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    base, flag = next(
        (base, words[0])
        for base in USES.values()
        for option, words in options_of(base[0])
        if option == name
    )
    least, largest = RANGES.get(name, (0, None))
    wrong = [-3, least - 1, *([] if largest is None else [largest + 1])]
    for value in wrong:
        code, asked, out, error = outcome([*base, flag, str(value)], calls, capsys)
        assert (code, asked, out) == (2, [], "")
        assert f"{flag} {value} " in error
        assert f"{least}" in error
