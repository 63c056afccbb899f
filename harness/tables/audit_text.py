"""The audit report as text: where the host waits, what it costs, and what to do."""

from __future__ import annotations

import io
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from harness.boundary.foreign_text import visible_struct
from harness.counts import counted, number
from harness.origin import below_packages
from harness.tables.finding_text import finding_lines
from harness.tables.modelled_text import modelled_lines, race_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import RenderableType

    from harness.record.audit_report import AuditReport, CopySummary, RedundantGroup, Site
    from harness.record.finding import Finding

TOP = 20
"""Sites shown by default."""
_TOP_FINDINGS = 5
_TOP_GROUPS = 5
MIN_WIDTH = 50
_NARROW = 90
"""Below this width a site takes three lines instead of a row with columns."""


def report_text(
    report: AuditReport, *, width: int = 110, top: int = TOP, everything: bool = False
) -> str:
    """The report as plain text, `width` characters wide."""
    out = io.StringIO()
    # In a notebook rich would display what it is asked to write to a string.
    console = Console(
        file=out, width=max(width, MIN_WIDTH), highlight=False, color_system=None,
        force_jupyter=False,
    )  # fmt: skip
    print_report(report, console, top=top, everything=everything)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def report_html(report: AuditReport, *, width: int = 110, top: int = TOP) -> str:
    """The report as HTML for a notebook: the same text, with its emphasis."""
    console = Console(
        file=io.StringIO(), width=width, highlight=False, record=True, force_jupyter=False
    )
    print_report(report, console, top=top)
    code_format = '<pre style="line-height:normal;overflow-x:auto"><code>{code}</code></pre>'
    return console.export_html(inline_styles=True, code_format=code_format)


def print_report(
    report: AuditReport, console: Console, *, top: int = TOP, everything: bool = False
) -> None:
    """Print header, sites, totals, intended syncs, what could not be judged, and notes."""
    report = visible_struct(report)
    sites = len(report.sites) if everything else top
    findings = len(report.findings) if everything else _TOP_FINDINGS
    for block in _blocks(report, console.width, sites, findings):
        console.print(block)


def sorted_sites(report: AuditReport) -> list[Site]:
    """Most costly first: by exposed time where it is known, else by syncs per step."""
    return sorted(report.sites, key=lambda site: (-(site.exposed_ms or 0.0), -_waits(site)))


def short_path(file: str) -> str:
    """A file as a reader knows it: below the working folder, or from its package on."""
    short, here = below_packages(file), Path.cwd()
    if Path(short).is_relative_to(here):
        return str(Path(short).relative_to(here))
    return short


def _waits(site: Site) -> float:
    return site.count_per_step * site.syncs_per_call


def _blocks(
    report: AuditReport, width: int, top: int, top_findings: int
) -> Iterator[RenderableType]:
    yield _header(report)
    sites = sorted_sites(report)
    shown, hidden = sites[:top], sites[top:]
    if shown:
        yield _cards(shown) if width < _NARROW else _site_table(shown)
    else:
        known = "" if report.new_syncs_per_step is None else " that the baseline lacks"
        yield Text(f"Nothing{known} makes the host wait.")
    if hidden:
        sites_left = counted(len(hidden), "more site")
        waits = counted(sum(_waits(site) for site in hidden), "sync")
        yield Text(f"and {sites_left} with {waits} per step (--all shows them)")
    yield from _totals(report)
    yield from (Text(line) for line in modelled_lines(report, short_path))
    if report.findings:
        yield from _findings(report.findings, top_findings)
    else:
        yield from _remedies(shown)
    yield from _redundant(report.redundant_groups)
    yield from _listed("Races", list(race_lines(report, short_path)))
    yield from _listed("Intended syncs", [_intended(site) for site in report.intended])
    yield from _listed("Not judged", report.unjudged)
    yield from _listed("Notes", report.notes)


def _header(report: AuditReport) -> RenderableType:
    lines = [
        Text(f"{report.target} on {report.device}", style="bold"),
        Text(_counts(report)),
    ]
    lines += [Text(line) for line in _timeline(report)]
    if report.times == "modelled" and (_costs(report.sites) or report.source == "trace"):
        lines.append(Text("Times are modelled by the emulator's clock; nothing was measured."))
    return Group(*lines)


def _counts(report: AuditReport) -> str:
    """`3 steps, 2 syncs per step, 0 new (trace)`."""
    syncs = "unknown syncs"
    if report.syncs_per_step is not None:
        syncs = counted(report.syncs_per_step, "sync")
    parts = [counted(report.steps, "step")] if report.steps else []
    parts.append(f"{syncs} per {'step' if report.steps is not None else 'trace'}")
    if report.new_syncs_per_step is not None:
        parts.append(f"{number(report.new_syncs_per_step)} new")
    source = {"emulated": "", "live": " (live)", "trace": f" (trace, {report.times})"}
    return ", ".join(parts) + source[report.source]


def _timeline(report: AuditReport) -> Iterator[str]:
    time, details = report.timeline, report.trace
    if time.span_ms is None:
        return
    parts = [f"Device over {time.span_ms:,.1f} ms"]
    if time.busy_ms is not None and time.span_ms:
        parts.append(f"busy {time.busy_ms / time.span_ms:.1%}")
    if time.idle_ms is not None and time.span_ms:
        parts.append(f"idle {time.idle_ms / time.span_ms:.1%}")
    if time.overlap is not None:
        parts.append(f"{time.overlap:.1%} of copy time beside compute")
    if time.communication_hidden is not None:
        parts.append(f"{time.communication_hidden:.1%} of communication hidden")
    yield ", ".join(parts)
    causes = {
        "waiting for a blocked host": time.idle_blocked_host_ms,
        "for a slow host": time.idle_slow_host_ms,
        "inside communication": time.idle_communication_ms,
        "other": time.idle_other_ms,
    }
    known = [f"{name} {value:,.1f} ms" for name, value in causes.items() if value is not None]
    if known:
        yield f"Idle: {', '.join(known)}"
    if details is not None and details.blocked_ms is not None:
        exposed = "" if details.exposed_ms is None else f", {details.exposed_ms:,.1f} ms exposed"
        yield f"Host blocked {details.blocked_ms:,.1f} ms{exposed}"


def _costs(sites: Sequence[Site]) -> list[tuple[str, str]]:
    """(heading, attribute) of the time columns that hold anything."""
    columns = [("Blocked ms", "blocked_ms"), ("Exposed ms", "exposed_ms")]
    return [c for c in columns if any(getattr(site, c[1]) is not None for site in sites)]


def _site_table(sites: Sequence[Site]) -> Table:
    costs = _costs(sites)
    growth = any(site.growth for site in sites)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("Syncs", justify="right", no_wrap=True)
    for heading, _ in costs:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("Kind", no_wrap=True)
    if growth:
        table.add_column("Grows as", overflow="fold")
    table.add_column("Phase", no_wrap=True)
    table.add_column("Where", overflow="fold", ratio=1)
    for site in sites:
        table.add_row(
            Text(number(_waits(site))),
            *(Text(_milliseconds(getattr(site, attribute))) for _, attribute in costs),
            Text(site.name),
            *([Text(site.growth or "")] if growth else []),
            Text(site.phase),
            _where(site),
        )
    return table


def _cards(sites: Sequence[Site]) -> RenderableType:
    costs = _costs(sites)
    cards = []
    for site in sites:
        times = "".join(
            f", {heading.removesuffix(' ms').lower()} {_milliseconds(value)} ms"
            for heading, attribute in costs
            if (value := getattr(site, attribute)) is not None
        )
        grows = f", grows as {site.growth}" if site.growth else ""
        first = f"{number(_waits(site))} x {site.name}, {site.phase}{times}{grows}"
        cards.append(Group(Text(""), Text(first, style="bold"), _where(site)))
    return Group(*cards, Text(""))


def _where(site: Site) -> Text:
    """Place, source line, and the library line where the cause is not on the user's."""
    place = site.op
    if site.file is not None:
        line = f":{site.line}" if site.line is not None else ""
        function = f" in {site.function}" if site.function else ""
        place = f"{short_path(site.file)}{line}{function}"
    # A path of repeated indices alone, as of a layer in a plain `Sequential`, names nothing.
    named = site.module is not None and site.module.strip("*.")
    module = f"  [{site.module}]" if named else ""
    where = Text(f"{place}{module}")
    if site.code:
        where.append(f"\n  {site.code}", style="dim")
    if site.library and (site.file is None or not site.library.startswith(f"{site.file}:")):
        file, separator, rest = site.library.partition(":")
        where.append(f"\n  in {short_path(file)}{separator}{rest}", style="dim")
    if site.file is not None and site.code is None:
        where.append(f"\n  {site.op}", style="dim")
    return where


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.3f}" if value < 1 else f"{value:,.1f}"


def _totals(report: AuditReport) -> Iterator[Text]:
    phases: defaultdict[str, float] = defaultdict(float)
    for site in report.sites:
        phases[site.phase] += _waits(site)
    if phases:
        parts = [f"{phase} {number(count)}" for phase, count in phases.items()]
        yield Text(f"Per phase: {', '.join(parts)}")
    if report.copies:
        yield Text(f"Copies:    {', '.join(_copy(copy) for copy in report.copies)}")


def _copy(copy: CopySummary) -> str:
    waits = {True: " blocking", False: "", None: ""}[copy.blocking]
    size = f" ({_bytes(copy.bytes_per_step)})" if copy.bytes_per_step is not None else ""
    memory = "" if copy.memory == "device" else f" {copy.memory}"
    return f"{number(copy.count_per_step)} {copy.direction}{memory}{waits}{size}"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} GB"


def _remedies(sites: Iterable[Site]) -> Iterator[RenderableType]:
    """One line for each kind that is shown."""
    kinds = dict.fromkeys(site.kind for site in sites)
    lines = [f"{kind.finding}: {kind.sentence} {kind.remedy}" for kind in kinds]
    yield from _listed("What to do", lines)


def _findings(findings: Sequence[Finding], top: int) -> Iterator[RenderableType]:
    lines = ["\n".join(finding_lines(finding, short_path)) for finding in findings[:top]]
    if len(findings) > top:
        lines.append(f"and {counted(len(findings) - top, 'more finding')} (--all shows them)")
    yield from _listed("What to do", lines)


def _redundant(groups: Sequence[RedundantGroup]) -> Iterator[RenderableType]:
    lines = [
        f"{'Once in each step' if group.across_steps else counted(group.size, 'time')}: "
        f"{' > '.join(group.ops[-3:])}, first at {short_path(group.first)}"
        + (f", {counted(group.syncs, 'sync')} in the repeats" if group.syncs else "")
        for group in groups[:_TOP_GROUPS]
    ]
    if len(groups) > _TOP_GROUPS:
        lines.append(f"and {counted(len(groups) - _TOP_GROUPS, 'more group')} (--json has all)")
    yield from _listed("Computed again from equal inputs", lines)


def _intended(site: Site) -> str:
    place = f"{short_path(site.file)}:{site.line}" if site.file else site.op
    return f"{number(_waits(site))} x {site.name} at {place}: {site.intended}"


def _listed(heading: str, lines: Sequence[str]) -> Iterator[RenderableType]:
    if not lines:
        return
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row(Text("-"), Text(line))
    yield Group(Text(""), Text(heading, style="bold"), grid)
