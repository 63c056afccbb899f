"""A claim whose conditions are not published is modelled in several set-ups and shows a range."""

from __future__ import annotations

import msgspec

from dashboard.rows import claim_entries as claims
from tests.dashboard import synthetic


def test_several_modelled_setups_of_one_gpu_answer_with_their_range() -> None:
    few = synthetic.record(2, source="modelled", gpu="B200")
    summary = few.scenario.input
    assert summary is not None
    many = msgspec.structs.replace(
        few,
        id=f"{few.id}1",
        scenario=msgspec.structs.replace(
            few.scenario, input=msgspec.structs.replace(summary, num_documents_mean=240.0)
        ),
        comparisons=tuple(
            msgspec.structs.replace(found, speedup=found.speedup - 0.5) for found in few.comparisons
        ),
    )
    alone = next(e for e in claims.claim_entries([few]) if e.source == "modelled")
    both = next(e for e in claims.claim_entries([few, many]) if e.source == "modelled")
    assert alone.speedup is not None
    assert (both.low, both.high) == (alone.speedup - 0.5, alone.speedup)
    assert both.text.count(" to ") == 1
    assert both.against_published == "within"
