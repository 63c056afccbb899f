"""Where the results of a verb go: text for people, or with `--json` one document on stdout."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.saying import say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.tables.grid import Table


@dataclass
class Results:
    """What one call of a verb has to say.

    Text is printed at once and dropped with `--json`; the document is kept for the end and dropped
    without.
    """

    json: bool
    _documents: list[str] = field(default_factory=list)

    def table(self, table: Table) -> None:
        """Print a table for people."""
        if not self.json:
            from gapless.terminal_tables import print_table

            print_table(table)

    def text(self, line: str = "") -> None:
        """Print a line for people."""
        if not self.json:
            say(line)

    def document(self, value: object) -> None:
        """The value that stands on stdout as indented JSON in the end; the last one counts."""
        if self.json:
            from gapless.json_documents import indented

            self._documents = [indented(value)]

    @property
    def documents(self) -> tuple[str, ...]:
        """The document, where there is one yet."""
        return tuple(self._documents)


@contextmanager
def results_of(json: bool) -> Iterator[Results]:
    """The results of one call of a verb.

    With `json` stdout gets one document at the end and nothing else: what else is written to it
    meanwhile, by a script that is audited, a library or a child process, goes to stderr. The
    document is also written where the verb ends in an error after it had its figures.
    """
    results = Results(json=json)
    if not json:
        yield results
        return
    try:
        with _stdout_on_stderr():
            yield results
    finally:
        for document in results.documents:
            say(document)


@contextmanager
def _stdout_on_stderr() -> Iterator[None]:
    """Also for code that writes to the file descriptor instead of `sys.stdout`."""
    if sys.stdout is not None:
        sys.stdout.flush()
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # One of the two is closed.
        kept = None
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            if os.name == "posix":
                # What C code has printed may still lie in its buffer.
                ctypes.CDLL(None).fflush(None)
            os.dup2(kept, 1)
            os.close(kept)
