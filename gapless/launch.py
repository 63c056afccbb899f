"""Where the command starts: from here on a signal to stop ends it with one line, also while the
libraries are imported, which takes seconds."""

from __future__ import annotations

from gapless.stops import Stops, stopped


def launch() -> int:
    """Run the command line and return its exit code."""
    stops = Stops()
    stops.install()
    try:
        from gapless.cli.main import main

        return main(stops=stops)
    except BaseException:
        if stops.number is None:
            raise
        return stopped(stops.number)
