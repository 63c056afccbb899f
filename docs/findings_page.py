"""Writes docs/findings.md: what the audit finds today in stock transformers.

python -m docs.findings_page            write it again
python -m docs.findings_page --check    exit 1 where it is stale, and write nothing
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from docs.stock_models import SPARSE, Setting, audit_setting, settings
from harness.audit.growth import Sizes, fit_growth
from harness.boundary.atomic_files import replace_file
from harness.origin import below_packages
from harness.tables.grid import Table, to_markdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.record.finding import Finding

PAGE = Path(__file__).resolve().with_name("findings.md")
DENSE_SIZES = (Sizes(2), Sizes(4))
SPARSE_SIZES = (Sizes(2, 4), Sizes(4, 4), Sizes(2, 8))
_LONGEST_CODE = 90


class Line(NamedTuple):
    """One finding of one setting."""

    kind: str
    file: str
    line: int
    code: str
    waits: str
    """How the waits per step grow; `0` for work that makes nobody wait."""
    times: str
    """How often it happens per step."""
    also: tuple[int, ...] = ()
    """Further lines of the file that belong to it."""


def lines_of(setting: Setting) -> list[Line]:
    """The findings of one setting, dearest first, with how they grow."""
    sizes = SPARSE_SIZES if setting.family in SPARSE else DENSE_SIZES
    reports = {one: audit_setting(setting, one) for one in sizes}
    waits: defaultdict[tuple[str, str, int], dict[Sizes, float]] = defaultdict(
        lambda: dict.fromkeys(sizes, 0.0)
    )
    times: defaultdict[tuple[str, str, int], dict[Sizes, float]] = defaultdict(
        lambda: dict.fromkeys(sizes, 0.0)
    )
    first: dict[tuple[str, str, int], Finding] = {}
    for one, report in reports.items():
        for finding in report.findings:
            if finding.file is None:
                continue  # of the step as a whole: a small model says nothing about its speed
            key = (finding.kind, below_packages(finding.file or ""), finding.line or 0)
            first.setdefault(key, finding)
            waits[key][one] += finding.syncs_per_step
            times[key][one] += finding.count_per_step
    return [
        Line(
            *key,
            finding.code or "",
            str(fit_growth(waits[key])),
            str(fit_growth(times[key])) + (" (each step)" if finding.across_steps else ""),
            tuple(line for line in finding.lines if line != finding.line),
        )
        for key, finding in first.items()
    ]


def findings_page(only: Iterable[Setting] | None = None) -> str:
    """The whole page, or that of some settings."""
    parts = [_head()]
    by_family: defaultdict[str, dict[Line, list[Setting]]] = defaultdict(dict)
    for setting in settings() if only is None else only:
        lines = lines_of(setting)
        by_family[setting.family].setdefault(Line("", "", 0, "", "", ""), []).append(setting)
        for line in lines:
            by_family[setting.family].setdefault(line, []).append(setting)
    for family, lines_and_settings in by_family.items():
        every = lines_and_settings.pop(Line("", "", 0, "", "", ""))
        parts += [f"## {family}", section(lines_and_settings, every)]
    return "\n\n".join(parts) + "\n"


def section(lines: dict[Line, list[Setting]], every: Sequence[Setting]) -> str:
    """The table of one family: one row a line of source, with the settings that show it."""
    rows = sorted(
        lines.items(), key=lambda item: (item[0].waits == "0", item[0].file, item[0].line)
    )
    table = to_markdown(
        Table(
            columns=("Kind", "Where", "Waits per step", "Times per step", "With"),
            rows=tuple(
                (line.kind, f"{line.file}:{line.line}", line.waits, line.times, _with(where, every))
                for line, where in rows
            ),
        )
    )
    code = [
        f"- `{line.file.rpartition('/')[2]}:{line.line}`{_also(line.also)}: `{_short(line.code)}`"
        for line, _ in rows
    ]
    clean = [s for s in every if not any(s in where for where in lines.values())]
    if clean:
        code.append(f"- Nothing is found with {'; '.join(map(_name, clean))}.")
    return table + "\n\n" + "\n".join(dict.fromkeys(code))


def _head() -> str:
    versions = ", ".join(f"{n} {importlib.metadata.version(n)}" for n in ("transformers", "torch"))
    return f"""# What the audit finds in stock transformers

Written by `python -m docs.findings_page` with {versions}, on an emulated H100: counts come \
from the rules for CUDA, not from a GPU. Small models of each family train one step with \
activation checkpointing, which runs each layer's forward twice.

`L` layers, `E_hit` experts that are hit in a layer. Batches: *plain* gives no mask and no \
positions, *padded* a mask with zeros, *packed* position_ids of two documents. *With* names the \
attention, and then the batch or the implementation of the experts.

`1 (each step)`: done once in a step, before the layers, but on buffers and constants alone, so \
that each step does it again. Positions and rotary embeddings are such: no layer and no recompute \
builds them again."""


def _with(where: Sequence[Setting], every: Sequence[Setting]) -> str:
    return "all" if len(where) == len(every) else "; ".join(map(_name, where))


def _name(setting: Setting) -> str:
    parts = [setting.attention, f"{setting.experts} experts" if setting.experts else setting.batch]
    return " ".join(parts)


def _also(lines: Sequence[int]) -> str:
    return f" (with {', '.join(map(str, lines))})" if lines else ""


def _short(code: str) -> str:
    code = code.replace("`", "'")
    return code if len(code) <= _LONGEST_CODE else code[: _LONGEST_CODE - 3] + "..."


def main(arguments: Sequence[str]) -> int:
    """Write or check the page; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args(arguments)
    page = findings_page()
    if not asked.check:
        replace_file(PAGE, page)
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page:
        return 0
    sys.stderr.write("docs/findings.md is stale: run `python -m docs.findings_page`.\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
