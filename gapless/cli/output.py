"""Output into a program that stops reading before the end, such as `head`."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXIT_READER_GONE = 141
"""128 + SIGPIPE: what a shell reports for any program that such a write ends."""
EXIT_HUNG_UP = 129
"""128 + SIGHUP: the terminal was closed."""


@contextmanager
def unless_hung_up(code: int | None) -> Iterator[None]:
    """Output that is lost without a word where `code` says that the terminal was closed."""
    try:
        yield
    except OSError:
        if code != EXIT_HUNG_UP:
            raise


def until_reader_leaves(run: Callable[[], int]) -> int:
    """The exit code that `run` gives, or 141, without a word, once nobody reads its output.

    What is still buffered is written out here: at the interpreter's exit it would be too late to
    choose the code.
    """
    # Held now, because typer puts others in their place that hide the error.
    streams = [stream for stream in (sys.stdout, sys.stderr) if stream is not None]
    try:
        code = run()
    except BrokenPipeError:
        code = EXIT_READER_GONE
    except SystemExit as stop:
        # typer and rich leave in this way from a write that failed, with the code 1.
        if isinstance(stop.__context__, BrokenPipeError):
            code = EXIT_READER_GONE
        else:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    # An audited script may have closed one, and then another stands in its place.
    for stream in dict.fromkeys((*streams, sys.stdout, sys.stderr)):
        if stream is None or stream.closed:
            continue
        try:
            stream.flush()
        except OSError as error:
            if isinstance(error, BrokenPipeError) or code == 0:
                code = EXIT_READER_GONE
            # The interpreter flushes once more as it ends.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
    return code
