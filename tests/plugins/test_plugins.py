"""Entry points: what is loaded, what is left out and said, and what is an error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from gapless import inventory
from harness import plugins
from harness.clock.gpus import GpuSpec, all_gpus
from harness.errors import UsageError
from harness.findings.finding_catalogue import foreign_rules, with_findings
from harness.record.audit_report import AuditReport, Site
from harness.record.finding import Answer
from harness.record.sync_kinds import SyncKind
from harness.workload import Optimization, Variant
from optimizations.optimization_catalogue import all_optimizations, checked
from scenarios.scenario_catalogue import SCENARIOS, all_scenarios
from tests.plugins.installed import install

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OWN_OPTIMIZATIONS = tuple(all_optimizations())
SCENARIO = """
from dataclasses import replace
from scenarios.scenario_catalogue import SCENARIOS
ONE = replace(SCENARIOS["gpt-oss-20b"], name="{name}")
"""
RULE = """
from harness.findings.rule import Advice, Rule
from harness.record.sync_kinds import SyncKind
def advise(location):
    return Advice(why="w", instead=("i",), unless="u")
RULE = Rule(kind="{kind}", sites=frozenset({{SyncKind.SCALAR_READ}}), advise=advise)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv(plugins.OFF_VARIABLE, raising=False)
    plugins.skip.cache_clear()
    plugins._switched_off.cache_clear()
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def scenarios() -> dict[str, object]:
    return dict(all_scenarios.__wrapped__())


def test_without_plug_ins_there_is_what_gapless_has(folder: Path) -> None:
    assert scenarios() == dict(SCENARIOS)
    assert foreign_rules.__wrapped__() == ()


def test_an_entry_point_is_found_after_those_of_gapless(folder: Path) -> None:
    install(folder, "fine-one", SCENARIO.format(name="chat"), scenarios="x = fine_one:ONE")
    assert list(scenarios()) == [*SCENARIOS, "chat"]


@pytest.mark.parametrize(
    ("code", "entry", "why"),
    [
        ("import nothing_of_this_name", "x = odd_one:ONE", "ModuleNotFoundError"),
        ("1 / 0", "x = odd_one:ONE", "division by zero"),
        ("raise SystemExit(3)", "x = odd_one:ONE", "SystemExit: 3"),
        ("def (", "x = odd_one:ONE", "SyntaxError"),
        ("ONE = 3", "x = odd_one:ONE", "3 is no scenarios.scenario_catalogue.Scenario"),
        ("", "x = odd_one:ONE", "AttributeError"),
    ],
)
def test_a_broken_one_is_named_once_and_left_out(
    folder: Path, capsys: pytest.CaptureFixture[str], code: str, entry: str, why: str
) -> None:
    install(folder, "odd-one", code, scenarios=entry)
    install(folder, "fine-one", SCENARIO.format(name="chat"), scenarios="x = fine_one:ONE")
    assert list(scenarios()) == [*SCENARIOS, "chat"]
    scenarios()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Warning: the plug-in odd-one:x is left out: ")
    assert why in line
    assert line.endswith("set GAPLESS_PLUGINS_OFF=odd-one:x.")


@pytest.mark.parametrize("taken", ["gpt-oss-20b", "chat"])
def test_a_name_twice_is_an_error_that_says_how_to_narrow(
    folder: Path, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    install(folder, "a-one", SCENARIO.format(name="chat"), scenarios="x = a_one:ONE")
    install(folder, "b-one", SCENARIO.format(name=taken), scenarios="y = b_one:ONE")
    first = "a-one:x" if taken == "chat" else "gapless"
    off = "b-one:y or a-one:x" if taken == "chat" else "b-one:y"
    with pytest.raises(UsageError) as error:
        scenarios()
    assert str(error.value) == (
        f"Two scenarios are called '{taken}', one of {first} and one of b-one:y; set "
        f"GAPLESS_PLUGINS_OFF={off} to leave one out."
    )
    for words in ("b-one:y", "b-one", "all", " b-one:y , all"):
        monkeypatch.setenv(plugins.OFF_VARIABLE, words)
        assert "gpt-oss-20b" in scenarios()


def test_a_word_that_switches_nothing_off_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(folder, "fine-one", SCENARIO.format(name="chat"), scenarios="x = fine_one:ONE")
    monkeypatch.setenv(plugins.OFF_VARIABLE, "fine-won")
    assert "chat" in scenarios()
    assert capsys.readouterr().err == (
        "Warning: GAPLESS_PLUGINS_OFF=fine-won names no plug-in; there are fine-one, fine-one:x.\n"
    )


def test_a_gpu_is_found_and_one_of_a_taken_name_is_an_error(folder: Path) -> None:
    code = "from harness.clock.gpus import GpuSpec\nfrom dataclasses import replace\n"
    values = {
        "key": "h-100", "name": "n", "vendor": "v", "architecture": "a", "capability": (1, 0),
        "memory_bytes": 1, "num_multiprocessors": 1, "memory_gb_per_s": 1.0, "vector_tflops": 1.0,
        "tflops": {}, "link": "l", "link_gb_per_s": 1.0, "source": "s",
    }  # fmt: skip
    install(folder, "gpu-one", f"{code}ONE = GpuSpec(**{values | {'key': 'Z1'}!r})\n"
            f"TWO = GpuSpec(**{values!r})", gpus="z = gpu_one:ONE")  # fmt: skip
    assert isinstance(all_gpus.__wrapped__()["Z1"], GpuSpec)
    info = folder / "gpu_one-1.0.dist-info" / "entry_points.txt"
    info.write_text("[gapless.gpus]\nz = gpu_one:TWO\n")
    with pytest.raises(UsageError, match="Two GPUs are called 'h100'"):
        all_gpus.__wrapped__()


READ = Site(
    op="aten::_local_scalar_dense",
    kind=SyncKind.SCALAR_READ,
    phase="forward",
    count_per_step=1,
    syncs_per_call=1,
    file="train.py",
    line=7,
)
REPORT = AuditReport(
    source="emulated", target="t", device="d", steps=1, syncs_per_step=1, sites=(READ,)
)


def test_a_foreign_kind_claims_before_those_of_gapless(folder: Path) -> None:
    install(folder, "rule-one", RULE.format(kind="mine"), findings="x = rule_one:RULE")
    (own,) = with_findings(REPORT, ()).findings
    (found,) = with_findings(REPORT, foreign_rules.__wrapped__()).findings
    assert (own.kind, found.kind) == ("scalar-read", "mine")


def test_two_foreign_kinds_that_claim_one_wait_are_an_error(folder: Path) -> None:
    install(folder, "rule-one", RULE.format(kind="mine"), findings="x = rule_one:RULE")
    install(folder, "rule-two", RULE.format(kind="yours"), findings="x = rule_two:RULE")
    rules = foreign_rules.__wrapped__()
    with pytest.raises(UsageError, match=r"claim scalar_read at train.py:7, one of rule-one:x and "
                       r"one of rule-two:x; set GAPLESS_PLUGINS_OFF="):  # fmt: skip
        with_findings(REPORT, rules)


def test_a_kind_of_a_taken_name_is_an_error(folder: Path) -> None:
    install(folder, "rule-one", RULE.format(kind="scalar-read"), findings="x = rule_one:RULE")
    with pytest.raises(UsageError, match="Two kinds of findings are called 'scalar-read'"):
        foreign_rules.__wrapped__()


def test_a_foreign_kind_that_raises_leaves_the_wait_to_the_others(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = RULE.format(kind="mine").replace("return", "raise KeyError('gone')\n    return")
    install(folder, "rule-one", code, findings="x = rule_one:RULE")
    (found,) = with_findings(REPORT, foreign_rules.__wrapped__()).findings
    assert found.kind == "scalar-read"
    assert "rule-one:x is left out: KeyError: 'gone'" in capsys.readouterr().err


OPTIMIZATION = """
from harness.record.finding import Answer
from harness.record.sync_kinds import SyncKind
from harness.workload import Optimization, Variant
class One(Optimization):
    name = "{name}"
    summary = trade_off = "One."
    variants = (Variant("off", "baseline", "Off."), Variant("on", "beyond", "On."))
    attentions = {attentions}
    answers = {answers}
    def requires(self, model, variant): return None
    def attach(self, model): ...
    def tolerance(self, variant, dtype): return 0.0, "same"
"""


def test_an_optimization_comes_after_those_of_gapless(folder: Path) -> None:
    code = OPTIMIZATION.format(name="mine", attentions=(), answers=())
    install(folder, "opt-one", code, optimizations="x = opt_one:One")
    assert list(all_optimizations.__wrapped__()) == [*OWN_OPTIMIZATIONS, "mine"]


def test_two_that_offer_one_attention_are_an_error(folder: Path) -> None:
    code = OPTIMIZATION.format(name="mine", attentions=("varlen",), answers=())
    install(folder, "opt-one", code, optimizations="x = opt_one:One")
    with pytest.raises(UsageError, match=r"offer the attention 'varlen', one of gapless and one of "
                       r"opt-one:x; set GAPLESS_PLUGINS_OFF=opt-one:x"):  # fmt: skip
        all_optimizations.__wrapped__()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("(Optimization)", ""), "does not derive from harness.workload.Optimization"),
        (("def tolerance", "def other"), "mine has no method tolerance"),
        (('"beyond"', '"baseline"'), "exactly one of them with the role baseline"),
        (('"on"', '"off"'), "names of their own"),
        (("summary = ", "other = "), "has no summary"),
        (("answers = ()", "answers = (Answer(optimization='mine=gone', kinds=('a',)),)"),
         "answers for mine=gone, which it has not"),
        (("answers = ()", "answers = (Answer(optimization='mine=on'),)"),
         "names neither kinds nor a file"),
    ],
)  # fmt: skip
def test_what_is_no_optimization_is_said(change: tuple[str, str], why: str) -> None:
    code = OPTIMIZATION.format(name="mine", attentions=(), answers=()).replace(*change)
    scope: dict[str, object] = {}
    exec(code, scope)
    with pytest.raises(UsageError, match=why):
        checked(scope["One"])


@pytest.mark.parametrize("kinds", [("scalar-read", "polling-loop"), ("scalar-read", "gone")])
def test_an_answer_to_a_kind_that_nothing_finds_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...]
) -> None:
    monkeypatch.setattr(inventory, "answers", lambda: (Answer(optimization="a=b", kinds=kinds),))
    notes = list(inventory._notes())
    if "gone" not in kinds:
        assert notes == []
        return
    (note,) = notes
    assert note.startswith("a=b answers findings of the kind gone, which nothing finds here; ")
    assert "scalar-read" in note


class Unfit(Optimization):
    """Applies to nothing, or fails to say so."""

    name = "unfit"
    summary = trade_off = "None."
    variants = (Variant("off", "baseline", "Off."),)

    def __init__(self, reason: str | Exception) -> None:
        self._reason = reason

    def requires(self, model: object, variant: str) -> str | None:
        if isinstance(self._reason, Exception):
            raise self._reason
        return self._reason


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("no model has wings", "no model has wings"),
        (KeyError("wings"), "its check fails with KeyError: 'wings'"),
    ],
)
def test_one_that_applies_to_no_scenario_is_listed_with_the_reason(
    reason: str | Exception, said: str
) -> None:
    (entry,) = inventory._variant_entries(Unfit(reason), "cpu", ["gpt-oss-20b"])
    assert entry.missing == f"it applies to no scenario here: {said}"
