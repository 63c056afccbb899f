"""Progress on stderr where it is no terminal: a line a stage, and nothing on stdout."""

from __future__ import annotations

from gapless.cli.progress import TimeLeft, show_progress
from harness.bench.child_events import Progress


def test_one_plain_line_a_stage(capsys) -> None:
    with show_progress("run") as on_progress:
        for stage in ("start", "build", "timing", "timing", "timing"):
            on_progress(
                Progress(
                    stage=stage, arm=None, block=None, num_samples=0, elapsed_s=1.0, remaining_s=2.0
                )
            )
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == ["run: start", "run: build", "run: timing"]


def test_in_a_terminal_it_tells_elapsed_and_remaining(monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with show_progress("run", later_s=60.0) as on_progress:
        on_progress(
            Progress(
                stage="timing", arm="a", block=3, num_samples=9, elapsed_s=75.0, remaining_s=30.0
            )
        )
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "run: timing 3, 1:15, 1:30 left" in captured.err


def test_the_time_to_come_is_told_by_the_runs_before(capsys) -> None:
    clock = iter([0.0, 0.0, 60.0, 90.0])
    left = TimeLeft(3, now=lambda: next(clock))
    for _ in range(3):
        left.say("run")
    assert capsys.readouterr().err.splitlines() == [
        "run: run 1 of 3, seconds to some minutes",
        "run: run 2 of 3, about 2:00 to go, by the 1 before",
        "run: run 3 of 3, about 0:45 to go, by the 2 before",
    ]
