"""What is new since an accepted audit: the gate for CI.

A site is known by the text of its line, its function, its file's name, the library's function where
one lies between, and op, kind and phase; not by its line number, which every edit above it moves.
"""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from harness.boundary.bounded_reads import read_regular
from harness.errors import UsageError
from harness.record.audit_report import from_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.record.audit_report import AuditReport, Site

MAX_BASELINE_BYTES = 32 << 20
"""A report of 10,000 sites takes 8 MB."""


class SiteIdentity(NamedTuple):
    """What stays the same of a site while code around it moves."""

    file: str
    """Name of the file, without its folder: checkouts lie in different places."""
    function: str
    code: str
    """Source text of the line, with single spaces."""
    library: str
    """File name and function of the library's frame."""
    op: str
    kind: str
    phase: str


def identity_of(site: Site) -> SiteIdentity:
    """The identity of a site; what an audit does not know of it is empty."""
    where, _, function = (site.library or "").partition(" ")
    return SiteIdentity(
        _file_name(site.file or ""),
        site.function or "",
        " ".join((site.code or "").split()),
        f"{_file_name(where.rpartition(':')[0])} {function}".strip(),
        site.op,
        site.kind,
        site.phase,
    )


def _file_name(path: str) -> str:
    return PurePath(path.replace("\\", "/")).name


def read_baseline(path: str | Path) -> AuditReport:
    """A report that `gapless audit --json` wrote, also with text before it.

    Raises `UsageError` where there is none.
    """
    path = Path(path)
    try:
        text = read_regular(path, MAX_BASELINE_BYTES)
    except OSError as error:
        raise UsageError(
            f"The baseline {path} cannot be read ({error.strerror}); write one with "
            "`gapless audit TARGET --json > audit.json`."
        ) from error
    start = text.find(b"\n{\n")
    document = text if text.lstrip().startswith(b"{") else text[start + 1 :]
    try:
        return from_json(document)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} holds no audit report; write one with `gapless audit TARGET --json > "
            f"{shlex.quote(str(path))}`."
        ) from error


def new_sites(report: AuditReport, baseline: AuditReport) -> tuple[Site, ...]:
    """Sites of `report` that `baseline` lacks, most costly first.

    Equal lines of one function are only counted: one more than before is new.
    """
    known = Counter(identity_of(site) for site in baseline.sites)
    fresh = []
    for site in _by_cost(report.sites):
        identity = identity_of(site)
        if known[identity]:
            known[identity] -= 1
        else:
            fresh.append(site)
    return tuple(fresh)


def since_baseline(report: AuditReport, baseline: AuditReport) -> AuditReport:
    """The report with only those sites, findings and figures of sites that `baseline` lacks.

    `syncs_per_step` stays that of the whole step; `new_syncs_per_step` is that of the new sites.
    """
    sites = new_sites(report, baseline)
    places = {(site.file, site.line) for site in sites}
    return msgspec.structs.replace(
        report,
        sites=sites,
        new_syncs_per_step=sum(site.count_per_step * site.syncs_per_call for site in sites),
        findings=tuple(f for f in report.findings if (f.file, f.line) in places),
        redundant_groups=(),
        repeated_across_steps=(),
    )


def _by_cost(sites: Sequence[Site]) -> list[Site]:
    return sorted(
        sites, key=lambda s: (-(s.exposed_ms or 0.0), -s.count_per_step * s.syncs_per_call)
    )
