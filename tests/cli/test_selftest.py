"""The self-test counts verdicts rightly, whatever the machine is like."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gapless import injected
from gapless.cli.main import main
from gapless.injected import Trial, in_words, judge_samples, outcomes, take_samples, true_speedup
from harness.record.records import Sample

if TYPE_CHECKING:
    from harness.record.records import Verdict


def trial(slowdown: float, verdict: Verdict, low: float, high: float) -> Trial:
    return Trial(slowdown=slowdown, verdict=verdict, low=low, high=high, duration_s=2.0)


def test_trials_are_counted_by_what_was_injected() -> None:
    none, some = outcomes(
        [
            trial(0.1, "slower", -0.10, -0.08),
            trial(0.1, "undecided", -0.10, 0.02),
            trial(0.1, "same", -0.009, 0.0),
            trial(0.0, "same", -0.005, 0.005),
            trial(0.0, "undecided", -0.02, 0.02),
            trial(0.0, "faster", 0.01, 0.02),
        ]
    )
    assert (none.slowdown, none.num_right, none.num_false, none.num_covered) == (0.0, 2, 1, 2)
    assert (some.num_right, some.num_false, some.num_undecided, some.num_covered) == (1, 1, 1, 2)
    assert some.seconds_per_trial == 2.0


def test_the_sentence_names_the_smallest_that_was_always_told() -> None:
    always = [trial(0.1, "slower", -0.1, -0.08)] * 3
    sometimes = [trial(0.03, "slower", -0.04, -0.02), trial(0.03, "undecided", -0.04, 0.01)]
    assert "10.0%" in in_words(outcomes([*always, *sometimes]))
    assert "none of the injected" in in_words(outcomes(sometimes))


def test_samples_are_interleaved_and_judged_as_those_of_a_run() -> None:
    samples = take_samples(0.1, seed=1, num_blocks=4)
    assert sum(not sample.warmup for sample in samples) == 8
    assert {s.arm for s in samples if s.block == 2} == {"baseline", "slowed"}
    exact = [
        Sample(order=n, block=n, arm=arm, phase="batch", duration_ms=ms)
        for n in range(12)
        for arm, ms in (("baseline", 10.0 + n), ("slowed", (10.0 + n) * 1.1))
    ]
    found = judge_samples(exact, 0.1, 0.0)
    assert found.verdict == "slower"
    assert found.low == pytest.approx(true_speedup(0.1))


def test_the_verb_prints_a_table_a_sentence_and_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(injected, "PRODUCTS", 20)
    assert main(["selftest", "--trials", "1"]) == 0
    out = capsys.readouterr().out
    assert "none (A/A)" in out
    assert "This machine told" in out
    assert main(["selftest", "--trials", "1", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(injected.SLOWDOWNS)
    assert main(["selftest", "--trials", "0"]) == 2
