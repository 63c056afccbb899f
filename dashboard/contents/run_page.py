"""Run: one run whole, down to its raw record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from dashboard.charts.arm_charts import resource_chart, speedup_chart, time_chart
from dashboard.charts.sample_chart import samples_chart
from dashboard.charts.style import encodings_used
from dashboard.contents.blocks import Badges, Code, Download, Head, Heading, Text, chart, grid
from dashboard.contents.site_blocks import audit_blocks
from dashboard.rows import arm_rows, run_facts
from dashboard.rows.listed import rows_csv
from harness.counts import counted
from harness.errors import StoreError
from harness.record.records import PHASES, Parity, Sample
from harness.tables.grid import to_csv
from harness.tables.run_tables import headline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.contents.blocks import Block, Tone
    from dashboard.snapshot import Snapshot
    from harness.record.records import Phase, RunRecord

HEAD = Head("run", "Run", "Run", "What exactly was run, and can I trust it?")
MAX_RUNS = 500


@dataclass(frozen=True)
class RunChoices:
    """What somebody chose on this page."""

    phase: Phase | None = None
    """Of the samples; the main one where none is chosen."""
    max_points: int = run_facts.MAX_DRAWN_SAMPLES
    with_files: bool = False
    """Offer all samples and the record as files."""


def run_page(
    found: Snapshot, record: RunRecord, choices: RunChoices | None = None
) -> tuple[Block, ...]:
    """One run, from its verdicts to its raw record."""
    choices = choices or RunChoices()
    samples, problems = _samples(found, record)
    return (
        *before_samples(record, samples, choices),
        *problems,
        *of_samples(record, samples, choices),
        *after_samples(found, record, choices),
    )


def phases_of(found: Snapshot, record: RunRecord) -> tuple[Phase, ...]:
    """The phases that were timed, the main one first; empty where no sample can be read."""
    samples, _ = _samples(found, record)
    if not samples:
        return ()
    main = run_facts.main_phase(samples)
    timed = {sample.phase for sample in samples}
    return (main, *(phase for phase in PHASES if phase in timed and phase != main))


def _samples(found: Snapshot, record: RunRecord) -> tuple[tuple[Sample, ...], tuple[Block, ...]]:
    try:
        return found.attached.samples(record.id), ()
    except StoreError as error:
        return (), (Text(str(error), "warning"),)


def _facts(record: RunRecord) -> list[Block]:
    badges: list[tuple[str, Tone]] = [
        (record.status, "good" if record.status == "complete" else "error"),
        (record.source, "info" if record.source == "measured" else "warning"),
    ]
    if record.steadiness.throttle_reasons:
        badges.append(("throttled", "error"))
    if record.parity:
        passed = all(check.passed for check in record.parity)
        badges.append(("parity holds", "good") if passed else ("parity fails", "error"))
    blocks: list[Block] = [
        Text(f"{headline(record)} · {record.id}", "quiet"),
        Badges(tuple(badges)),
    ]
    if record.reason:
        blocks.append(Text(f"{record.status}: {record.reason}", "error"))
    blocks += [Text(warning, "warning") for warning in record.steadiness.warnings]
    blocks += [Text(note) for note in record.notes]
    return [*blocks, Code(record.command, "Command to repeat it")]


def before_samples(
    record: RunRecord, samples: Sequence[Sample], choices: RunChoices
) -> list[Block]:
    """What was run, and what each arm changed."""
    blocks = _facts(record)
    rows = arm_rows.arm_rows(record)
    if not rows:
        return blocks
    strips = arm_rows.strips(record, samples) if len(samples) <= choices.max_points else {}
    blocks += [
        Heading("Speedup"),
        Text(encodings_used([row.source for row in rows]), "quiet"),
        chart("run-speedup", speedup_chart(rows, strips), arm_rows.in_words(rows)),
        grid("arms", arm_rows.COLUMNS.table(rows), csv=rows_csv(arm_rows.ArmRow, rows)),
        Heading("Time"),
        chart("run-time", time_chart(rows), "Time of each arm in each phase."),
    ]
    resources = resource_chart(rows)
    if resources is not None:
        words = "Change of each from the baseline."
        blocks += [Heading("Tokens/s, memory, energy"), chart("run-resources", resources, words)]
    return blocks


def of_samples(record: RunRecord, samples: Sequence[Sample], choices: RunChoices) -> list[Block]:
    """Every sample of one phase, warm-ups too."""
    blocks: list[Block] = [Heading("Samples in the order they were taken")]
    phase = choices.phase or run_facts.main_phase(samples)
    drawn = run_facts.thinned(samples, phase, choices.max_points)
    if not drawn:
        return [*blocks, Text(f"This run left no samples of the phase {phase}.", "info")]
    words = f"{counted(len(drawn), 'sample')} in order."
    blocks.append(chart("run-samples", samples_chart(drawn), words))
    if choices.with_files:
        csv = rows_csv(Sample, samples)
        blocks.append(Download("CSV of all samples", f"{record.id}-samples.csv", csv))
    return blocks


def after_samples(found: Snapshot, record: RunRecord, choices: RunChoices) -> list[Block]:
    """Parity, the sites of its syncs, where it ran, and the record itself."""
    blocks: list[Block] = []
    if record.parity:
        table = run_facts.PARITY_COLUMNS.table(record.parity)
        csv = rows_csv(Parity, record.parity)
        blocks += [Heading("Parity"), grid("parity", table, csv=csv)]
    if record.audited_arms:
        blocks.append(Heading("Where in the model it waits"))
        try:
            blocks += audit_blocks(found.attached.audits(record.id))
        except StoreError as error:
            blocks.append(Text(str(error), "warning"))
    environment = run_facts.environment_table(record)
    csv = to_csv(environment.columns, environment.rows)
    blocks += [Heading("Environment"), grid("environment", environment, csv=csv)]
    encoded = msgspec.json.encode(msgspec.structs.replace(record, samples=None))
    if not choices.with_files:
        return [*blocks, Code(encoded.decode(), "Raw record", is_folded=True)]
    raw = msgspec.json.format(encoded, indent=2).decode()
    return [
        *blocks,
        Code(raw, "Raw record", is_folded=True),
        Download("Download run.json", f"{record.id}.json", raw, "application/json"),
    ]
