"""A reader that ends early, as `head` does: no error message, and an exit code of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gapless.cli.output import EXIT_READER_GONE

# What each prints, by whom: rich, plain print, print of more than a buffer holds, typer's help.
PROGRAMS = {
    "table": "from gapless.terminal_tables import print_table; "
    "from harness.tables.grid import Table; "
    "print_table(Table(columns=('a',), rows=(('b',),)))",
    "print": "print('a line')",
    "long": "print('a line\\n' * 100_000)",
    "error": "import sys; print('a line', file=sys.stderr, flush=True)",
    "fails": "from harness.errors import UsageError; raise UsageError('No such thing.')",
}


def run_until(words: list[str], *, reads: int, stderr_too: bool = False) -> tuple[int, str]:
    """Exit code and stderr of a program whose output is read for `reads` bytes."""
    read_end, write_end = os.pipe()
    with subprocess.Popen(
        [sys.executable, *words],
        stdout=write_end,
        stderr=write_end if stderr_too else subprocess.PIPE,
        text=True,
    ) as process:
        os.close(write_end)
        if reads:
            assert os.read(read_end, reads)
        os.close(read_end)
        said = "" if process.stderr is None else process.stderr.read()
    return process.returncode, said


def verb(program: str) -> list[str]:
    """A program that runs `program` as the verb `doctor` of the command line."""
    return [
        "-c",
        f"""
import sys, gapless.cli.main as cli
def command():
    {program}
for info in cli.app.registered_commands:
    info.callback = command if info.name == 'doctor' else info.callback
sys.exit(cli.main(['doctor']))
""",
    ]


@pytest.mark.parametrize("program", ["table", "print", "long"])
def test_output_that_nobody_reads_ends_the_command_quietly(program: str) -> None:
    assert run_until(verb(PROGRAMS[program]), reads=0) == (EXIT_READER_GONE, "")


@pytest.mark.parametrize("program", ["error", "fails"])
def test_messages_that_nobody_reads_do_so_too(program: str) -> None:
    code, _ = run_until(verb(PROGRAMS[program]), reads=0, stderr_too=True)
    assert code == EXIT_READER_GONE


def test_a_reader_that_leaves_in_the_middle_is_no_failure_of_a_comparison() -> None:
    assert run_until(verb(PROGRAMS["long"]), reads=10) == (EXIT_READER_GONE, "")


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["list", "--device", "cpu"]])
def test_real_verbs(words: list[str]) -> None:
    assert run_until(["-m", "gapless", *words], reads=0) == (EXIT_READER_GONE, "")


def test_the_code_of_the_contract_stands_where_all_was_read() -> None:
    read = subprocess.run([sys.executable, *verb(PROGRAMS["fails"])], capture_output=True)
    assert (read.returncode, read.stderr) == (2, b"gapless: No such thing.\n")
