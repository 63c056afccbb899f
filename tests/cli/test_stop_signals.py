"""Signals to stop, at any moment: what was measured is kept, nothing torn or running is left."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from gapless.stops import Stops
from harness.bench.interrupts import Interrupts, signal_words
from harness.record.store import Store

if TYPE_CHECKING:
    from pathlib import Path

SCENARIO = "qwen3-14b-packed-sft"
BENCH = [
    "bench", SCENARIO, "--arm", "packed-metadata=cached", "--layers", "2", "--tokens", "64",
    "--precision", "0.0001%",
]  # fmt: skip
KILLS = int(os.environ.get("KILLS", "60"))
"""How many random moments the slow test takes: 300 before a release."""


def start(store: Path, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gapless", *BENCH, "--seconds", str(seconds)],
        env={**os.environ, "GAPLESS_STORE": str(store)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_cancelled_run_keeps_what_was_measured(tmp_path: Path, number: signal.Signals) -> None:
    with start(tmp_path / "kept", seconds=300) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if line.endswith(": timing\n"))
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert "Incomplete: Stopped on request" in out
    assert "Traceback" not in err
    (record,) = Store(str(tmp_path / "kept")).listing().records
    assert record.status == "incomplete"


def test_a_closed_terminal_takes_no_measurement_with_it(tmp_path: Path) -> None:
    import pty

    here, there = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gapless", *BENCH, "--seconds", "300"],
        env={**os.environ, "GAPLESS_STORE": str(tmp_path / "kept"), "TERM": "xterm"},
        stdin=there,
        stdout=there,
        stderr=there,
        start_new_session=True,
        # The terminal sends SIGHUP to the session that it controls.
        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
    )
    os.close(there)
    shown = b""
    while b"timing" not in shown:
        shown += os.read(here, 4096)
    os.close(here)
    assert process.wait(timeout=120) == 129
    (record,) = Store(str(tmp_path / "kept")).listing().records
    assert record.status == "incomplete"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after_s", [0.3, 0.8, 1.5])
def test_a_signal_while_libraries_are_imported_is_one_line(
    number: signal.Signals, after_s: float
) -> None:
    code = (
        "import sys, signal, threading, os\n"
        f"threading.Timer({after_s}, os.kill, (os.getpid(), {int(number)})).start()\n"
        "from gapless.launch import launch\n"
        "sys.argv[1:] = ['list']\n"
        "sys.exit(launch())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False
    )
    if done.returncode == 0:
        pytest.skip("the list was printed before the signal came")
    assert done.returncode == 128 + number
    assert done.stderr == f"gapless: stopped by {signal_words(number)}.\n"


def test_an_import_that_turns_the_signal_into_another_error_is_a_stop(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gapless.cli import main as command_line

    def broken(*args: object, **options: object) -> None:
        raise ImportError("numpy's C extensions failed to load")

    monkeypatch.setattr(command_line, "app", broken)
    stops = Stops()
    assert command_line.main(["list"], stops=stops) == 70
    capsys.readouterr()
    stops.number = signal.SIGTERM
    assert command_line.main(["list"], stops=stops) == 143
    assert capsys.readouterr().err == "gapless: stopped by SIGTERM.\n"


def test_a_signal_that_the_program_was_started_to_ignore_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
        assert (interrupts.count, interrupts.exit_code) == (1, 143)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_killed_at_any_moment_nothing_torn_or_running_is_left(tmp_path: Path) -> None:
    moments = random.Random(13)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
    for turn in range(KILLS):
        number, of_child = numbers[turn % 4], turn // 4 % 3 == 2
        store = tmp_path / f"store-{turn}"
        process = start(store, seconds=3)
        # Python itself takes a moment until it can be told anything.
        time.sleep(moments.uniform(0.4, 14.0))
        family = _family(process.pid)
        target = family[-1] if of_child and len(family) > 1 else family[0] if family else None
        if target is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                target.send_signal(number)
        out, err = process.communicate(timeout=120)
        told = (turn, number, of_child, process.returncode, err)
        assert "Traceback" not in err, told
        assert process.returncode != 70, told
        _, alive = psutil.wait_procs(family, timeout=20)
        assert not alive, told
        assert Store(str(store)).listing().problems == (), told
        if store.exists() and number != signal.SIGKILL:
            assert not [entry for entry in store.iterdir() if entry.name.startswith(".tmp")], told
        if "Record: " in out:
            assert len(Store(str(store)).listing().records) == 1, told


def _family(pid: int) -> list[psutil.Process]:
    """A process and what it started; empty where it has ended."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
