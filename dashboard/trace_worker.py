"""Audits one trace in a process of its own: `python -m dashboard.trace_worker TRACE OUT`.

A trace may come from anyone. Whatever it makes of this process, the server goes on.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from dashboard.rows.lane_rows import Timeline, timeline_of
from harness.audit.trace.limits import TraceLimits
from harness.audit.trace.load import load_trace
from harness.audit.trace.trace_audit import analyse, report_of
from harness.boundary.atomic_files import replace_file
from harness.errors import GaplessError
from harness.findings.finding_catalogue import with_findings
from harness.record.audit_report import AuditReport
from harness.record.records import Record

LIMITS = TraceLimits(max_bytes=4 << 30, max_events=5_000_000)
MAX_MEMORY_BYTES = 6 << 30
MAX_CPU_S = 300
MAX_OUT_BYTES = 256 << 20
EXIT_REFUSED = 2


class TraceAudit(Record, frozen=True, kw_only=True):
    """What is shown of one trace."""

    report: AuditReport
    timeline: Timeline | None


def main(arguments: list[str]) -> int:
    """Write the audit to the second path; progress goes to stdout, a refusal to stderr."""
    trace_path, out_path = (Path(argument) for argument in arguments)
    _limit_resources()
    last = -1

    def say(read: int, total: int) -> None:
        nonlocal last
        percent = 100 * read // max(total, 1)
        if percent != last:
            last = percent
            sys.stdout.write(f"{percent}\n")
            sys.stdout.flush()

    try:
        trace = load_trace(trace_path, limits=LIMITS, on_progress=say)
        say(1, 1)
        analysis = analyse(trace)
        report = with_findings(report_of(analysis, trace_path.name))
        found = TraceAudit(report=report, timeline=timeline_of(trace, analysis))
    except GaplessError as error:
        # The file lies in a temporary folder of the server, which says nothing to the reader.
        sys.stderr.write(f"{str(error).replace(str(trace_path), 'The trace')}\n")
        return EXIT_REFUSED
    except MemoryError:
        sys.stderr.write("The trace needs more memory than an upload may use.\n")
        return EXIT_REFUSED
    replace_file(out_path, msgspec.json.encode(found))
    return 0


def _limit_resources() -> None:
    try:
        import resource
    except ImportError:  # Windows has none; the parent's time limit still holds there.
        return
    for kind, most in (
        (resource.RLIMIT_AS, MAX_MEMORY_BYTES),
        (resource.RLIMIT_CPU, MAX_CPU_S),
        (resource.RLIMIT_FSIZE, MAX_OUT_BYTES),
    ):
        _, ceiling = resource.getrlimit(kind)
        allowed = most if ceiling == resource.RLIM_INFINITY else min(most, ceiling)
        resource.setrlimit(kind, (allowed, ceiling))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
