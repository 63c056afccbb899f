"""Which optimization a finding names, by what optimizations answer."""

from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.findings.answering import with_answers
from harness.record.audit_report import AuditReport
from harness.record.finding import Answer, Finding
from optimizations.optimization_catalogue import answers


def report(**values: object) -> AuditReport:
    finding = {
        "kind": "serialized-copy", "severity": "high", "ranked_by": "count", "confidence": "high",
        "why": "why", "instead": ("code",), "unless": "unless", "count_per_step": 1.0,
        "file": "a/b.py", "line": 3, "function": "Layer.forward", "phases": ("backward",),
        "bytes_per_call": 1 << 20,
    } | values  # fmt: skip
    return AuditReport(
        source="emulated", target="t", device="d", steps=1, syncs_per_step=1,
        findings=(Finding(**finding),),
    )  # fmt: skip


def named(report: AuditReport, *given: Answer) -> str | None:
    return with_answers(report, given).findings[0].optimization


ALL = {
    "kinds": ("serialized-copy", "other"),
    "file": "b.py",
    "function": r"forward$",
    "phases": ("recompute", "backward"),
    "least_bytes": 1 << 20,
}


@pytest.mark.parametrize("left_out", [*ALL, None])
def test_a_finding_that_fits_all_that_is_given_is_answered(left_out: str | None) -> None:
    given = {name: value for name, value in ALL.items() if name != left_out}
    assert named(report(), Answer(optimization="x=y", **given)) == "x=y"


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "scalar-read"},
        {"file": "a/c.py"},
        {"file": None},
        {"function": "Layer.forward_one"},
        {"function": None},
        {"phases": ("forward",)},
        {"phases": ()},
        {"bytes_per_call": (1 << 20) - 1},
        {"bytes_per_call": None},
    ],
)
def test_a_finding_that_differs_in_one_thing_is_not(change: dict[str, object]) -> None:
    assert named(report(**change), Answer(optimization="x=y", **ALL)) is None


def test_sentences_of_the_answer_take_the_place_of_the_findings_own() -> None:
    answer = Answer(optimization="x=y", kinds=("serialized-copy",), instead=("better",))
    (found,) = with_answers(report(), (answer,)).findings
    assert (found.why, found.instead, found.unless) == ("why", ("better",), "unless")


def test_a_known_place_says_more_than_a_kind() -> None:
    by_kind = Answer(optimization="a=b", kinds=("serialized-copy",))
    by_place = Answer(optimization="x=y", file="b.py")
    assert named(report(), by_kind, by_place) == named(report(), by_place, by_kind) == "x=y"


def test_two_optimizations_that_answer_one_finding_are_an_error() -> None:
    both = (Answer(optimization="a=b", file="b.py"), Answer(optimization="x=y", file="b.py"))
    with pytest.raises(UsageError, match=r"a=b and x=y both answer .* at a/b.py:3; .*PLUGINS_OFF"):
        named(report(), *both)
    twice = (both[0], Answer(optimization="a=c", file="b.py"))
    assert named(report(), *twice) == "a=b"


def test_what_gapless_answers_of_itself() -> None:
    assert named(report(), *answers()) == "checkpoint-reload=prefetch"
    experts = report(file="/x/transformers/models/a/b.py", function="AExperts.forward")
    assert named(experts, *answers()) == "moe-routing=device-offsets"
    flash = report(file="transformers\\modeling_flash_attention_utils.py", function="f")
    assert named(flash, *answers()) == "packed-metadata=collator"
    assert named(report(phases=("forward",)), *answers()) is None
