"""A finding as lines of text, for the terminal and the notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.record.finding import Finding


def finding_lines(finding: Finding, short: Callable[[str], str]) -> Iterator[str]:
    """Where and why, then what to write instead. `short` makes a path readable."""
    where = "" if finding.file is None else f" at {short(finding.file)}:{finding.line}"
    rank = f"{finding.severity}, by {_basis(finding)}"
    unsure = "" if finding.confidence == "high" else f", {finding.confidence} confidence"
    yield f"{finding.kind}{where} ({rank}{unsure}): {finding.why}"
    for line in finding.instead:
        yield f"    {line}"
    if finding.optimization is not None:
        yield f"  {finding.optimization} does it for models of transformers (--fix)."
    yield f"  Not worth it: {finding.unless}"


def _basis(finding: Finding) -> str:
    if finding.ranked_by == "count":
        return "count alone"
    if finding.exposed_ms is None and finding.launch_ms is not None:
        return f"{finding.ranked_by} launch time"
    return f"{finding.ranked_by} exposed time"
