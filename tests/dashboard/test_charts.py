"""Charts: valid Plotly, distinct sources, and hostile text stays text."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import plotly.graph_objects as go
import pytest

from dashboard.charts import arm_charts as ab
from dashboard.charts import claim_chart as claims
from dashboard.charts import interval_bars as bars
from dashboard.charts import lane_chart as lanes
from dashboard.charts import modelled_charts as whatif
from dashboard.charts import sample_chart as run
from dashboard.charts import style
from dashboard.charts import sync_charts as syncs
from dashboard.rows import arm_rows as ab_rows
from dashboard.rows import claim_entries as claim_rows
from dashboard.rows import lane_rows, sync_rows
from dashboard.rows import modelled_rows as whatif_rows
from dashboard.rows import run_facts as run_rows
from harness.audit.trace.load import load_trace
from tests.dashboard import synthetic
from tests.dashboard.payloads import PAYLOADS, poisoned

if TYPE_CHECKING:
    from harness.record.records import RunRecord

TRACE = Path(__file__).parents[1] / "trace" / "data" / "a100_control_step1010.json.gz"


def every_figure(made: RunRecord) -> dict[str, style.Figure]:
    """All charts of one run, by name."""
    taken = synthetic.samples(1)
    rows = ab_rows.arm_rows(made)
    # A hostile record renames its arms, and the samples keep the names of the harmless one.
    names = {old.name: new.name for old, new in zip(synthetic.ARMS, made.arms, strict=True)}
    taken = [msgspec.structs.replace(s, arm=names[s.arm]) for s in taken]
    sites = sync_rows.site_rows(*(audit.report for audit in synthetic.AUDITS))
    timeline = lane_rows.timeline_of(load_trace(TRACE))
    assert timeline is not None
    modelled = whatif_rows.whatif_rows([msgspec.structs.replace(made, source="modelled")])
    resources = ab.resource_chart(rows)
    assert resources is not None
    return {
        "claims": claims.claims_chart(claim_rows.claim_entries([made])),
        "speedup": ab.speedup_chart(rows, ab_rows.strips(made, taken)),
        "overview": ab.overview_chart([row for row in rows if row.phase == "batch"]),
        "time": ab.time_chart(rows),
        "resources": resources,
        "ladder": ab.steps_chart(ab_rows.ladder_rows(made, taken, "batch")),
        "counts": syncs.counts_chart(sync_rows.count_rows(made)),
        "tree": syncs.module_tree(sites),
        "sites": syncs.sites_chart(sites, "modelled"),
        "lanes": lanes.timeline_chart([("before", timeline), ("after", timeline)], 0.0, 30.0),
        "whatif": whatif.whatif_chart(modelled),
        "map": whatif.whatif_map(modelled, ["H100"]),
        "samples": run.samples_chart(run_rows.thinned(taken, "batch")),
    }


def test_modules_are_told_from_the_one_that_holds_all_sites() -> None:
    row = sync_rows.site_rows(synthetic.AUDITS[0].report, None)[0]
    rows = [
        msgspec.structs.replace(row, place=name, module=f"model.layers.{name}", before=count)
        for name, count in (("attention", 3.0), ("mlp", 1.0))
    ]
    tree = syncs.module_tree(rows)["data"][0]
    assert tree["labels"][0] == "model.layers"
    assert tree["values"][0] == 4
    assert set(tree["parents"]) == {"", "model.layers", *(f"model.layers/{r.place}" for r in rows)}
    alone = syncs.module_tree([msgspec.structs.replace(row, module="-")])["data"][0]
    assert alone["labels"] == ["all", alone["labels"][1]]


def test_before_and_after_share_a_shade_for_the_same_idle_of_one_sync() -> None:
    row = sync_rows.site_rows(synthetic.AUDITS[0].report, None)[0]
    row = msgspec.structs.replace(
        row, before=4.0, exposed_before_ms=8.0, after=1.0, exposed_after_ms=3.0
    )
    before, after = (syncs.module_tree([row], after=late)["data"][0]["marker"] for late in (0, 1))
    assert set(before["colors"]) == {2.0}
    assert set(after["colors"]) == {3.0}
    assert before["cmax"] == after["cmax"] == 3.0


def test_every_chart_is_valid_plotly_and_holds_something() -> None:
    for name, figure in every_figure(synthetic.record(1)).items():
        checked = go.Figure(figure)
        assert len(checked.data) > 0, name
        assert checked.layout.height == figure["layout"]["height"]


def test_sources_are_told_apart_without_colour() -> None:
    marks = {
        source: (encoding.pattern, encoding.fill == style.NO_FILL)
        for source, encoding in style.ENCODING.items()
    }
    assert len(set(marks.values())) == 2 + (marks["measured"] != marks["published"]), marks
    published, modelled, measured = (
        style.bar_marker(source) for source in ("published", "modelled", "measured")
    )
    assert modelled["pattern"]["shape"]
    assert not published["pattern"]["shape"]
    assert published["color"] == style.NO_FILL != measured["color"]
    colours = [encoding.line for encoding in style.ENCODING.values()]
    for one, other in combinations(colours, 2):
        assert one != other


@pytest.mark.parametrize("ground", ["#ffffff", "#0e1117"])
def test_lines_and_words_have_enough_contrast_on_both_pages(ground: str) -> None:
    for encoding in style.ENCODING.values():
        assert contrast(encoding.line, ground) >= 3
    theme = "light" if ground == "#ffffff" else "dark"
    assert contrast(style.INK[theme], ground) >= 4.5


def contrast(one: str, other: str) -> float:
    bright, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_bars_keep_clear_of_words_however_many_there_are() -> None:
    many = tuple(bars.Bar(f"arm {n}", "+1.0%", 0.01, "measured", strip=(0.01,)) for n in range(40))
    figure = bars.interval_bars([bars.Band("a", many), bars.Band("b", many)], axis="x")
    words = [note["y"] for note in figure["layout"]["annotations"]]
    drawn = [y for trace in figure["data"] if trace["type"] == "bar" for y in trace["y"]]
    nearest = min(abs(word - bar) for word in words for bar in drawn)
    assert nearest >= (bars.TEXT_LINE_PX + bars.BAR_PX) / 2 - 1
    assert figure["layout"]["height"] >= max(drawn) + bars.BAR_PX


def test_intervals_end_where_the_row_says() -> None:
    rows = ab_rows.arm_rows(synthetic.record(1))
    figure = ab.overview_chart([row for row in rows if row.phase == "batch"])
    trace = figure["data"][0]
    row = next(r for r in rows if r.arm == "packed-metadata=cached" and r.phase == "batch")
    assert trace["x"][0] + trace["error_x"]["array"][0] == pytest.approx(row.high)
    assert trace["x"][0] - trace["error_x"]["arrayminus"][0] == pytest.approx(row.low)
    band = next(s for s in figure["layout"]["shapes"] if s["type"] == "rect")
    assert (band["x0"], band["x1"]) == (row.noise_low, row.noise_high)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_hostile_text_in_any_field_stays_text(payload: str) -> None:
    for name, figure in every_figure(poisoned(synthetic.record(1), payload)).items():
        for text in _texts(figure):
            bare = text.replace("<b>", "").replace("</b>", "").replace("<br>", "")
            bare = bare.replace("<extra>", "").replace("</extra>", "")
            assert "<" not in bare, (name, text)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in _texts(item)]
    return []


def test_one_long_modelled_range_does_not_shrink_what_was_measured() -> None:
    entries = claim_rows.claim_entries([synthetic.record(1)])
    phase = [e for e in entries if e.claim == entries[0].claim]
    modelled = msgspec.structs.replace(
        phase[0], source="modelled", speedup=0.2, low=0.1, high=50.0, text="+10% to +5,000%"
    )
    shown = claims.claims_chart([*phase, modelled])["layout"]
    ends = [end for e in phase for end in (e.speedup, e.high) if end is not None]
    assert shown["xaxis"]["range"][1] == pytest.approx(1.5 * max(ends))
    assert [note["text"] for note in shown["annotations"]].count("<b>▶</b>") == 1
    assert any("+5,000%" in note["text"] for note in shown["annotations"])
    assert "range" not in claims.claims_chart(phase)["layout"]["xaxis"]


def test_a_cell_of_several_set_ups_holds_their_range() -> None:
    made = msgspec.structs.replace(synthetic.record(1, gpu="H100"), source="modelled")
    row = next(row for row in whatif_rows.whatif_rows([made]) if row.phase == "batch")
    rows = [msgspec.structs.replace(row, setup=s, speedup=v) for s, v in (("a", 0.0), ("b", 3.0))]
    (trace,) = whatif.whatif_map(rows, [row.gpu, "B200"])["data"]
    assert trace["text"] == [["+0.0%<br>to +300%", ""]]
    assert trace["z"] == [[pytest.approx(1.0), None]]
