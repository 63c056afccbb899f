"""Arms parsed from text and laid out as ladder, leave-one-out and grid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.arms import grid, ladder, leave_one_out, parse_arms
from harness.errors import UsageError
from harness.workload import Variant

CHOICES = {
    "packed-metadata": (
        Variant("per-layer", "baseline", "Rebuilt in each layer."),
        Variant("cached", "published", "Once a batch."),
        Variant("collator", "beyond", "No read."),
    ),
    "checkpoint-reload": (
        Variant("plain", "reference", "No offload."),
        Variant("single-buffer", "baseline", "Copy, wait, compute."),
        Variant("double-buffer", "published", "Two buffers."),
    ),
    "moe-routing": (
        Variant("where-loop", "baseline", "One read an expert."),
        Variant("argsort", "published", "One read a layer."),
    ),
}


def test_baseline_comes_first_and_names_only_what_is_toggled() -> None:
    arms = parse_arms(["packed-metadata=cached"], CHOICES)
    assert [(arm.name, arm.role) for arm in arms] == [
        ("baseline", "baseline"),
        ("packed-metadata=cached", "arm"),
    ]
    assert arms[0].variants == {"packed-metadata": "per-layer"}


def test_name_follows_the_catalogue_not_the_order_typed() -> None:
    one = parse_arms(["moe-routing=argsort , packed-metadata=cached"], CHOICES)
    other = parse_arms(["packed-metadata=cached,moe-routing=argsort"], CHOICES)
    assert one == other
    assert one[1].name == "packed-metadata=cached,moe-routing=argsort"


def test_settings_hold_in_every_arm_that_does_not_say_otherwise() -> None:
    arms = parse_arms(
        ["checkpoint-reload=double-buffer", "packed-metadata=cached"],
        CHOICES,
        settings={"packed-metadata": "collator"},
    )
    assert [arm.variants["packed-metadata"] for arm in arms] == ["collator", "collator", "cached"]
    assert arms[1].name == "checkpoint-reload=double-buffer"


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["packed-metdata=cached"], "takes packed-metadata, checkpoint-reload, moe-routing"),
        (["moe-routing=fast"], "choose one of where-loop, argsort"),
        (["moe-routing"], "write OPTIMIZATION=VARIANT"),
        (["moe-routing="], "write OPTIMIZATION=VARIANT"),
        (["moe-routing=argsort,"], "write OPTIMIZATION=VARIANT"),
        (["moe-routing=argsort,moe-routing=where-loop"], "sets moe-routing twice"),
        (["moe-routing=argsort", " moe-routing = argsort "], "Two arms are the same"),
        (["baseline", "baseline"], "Two arms are the same, baseline"),
        (["baseline", "moe-routing=where-loop"], "Two arms are the same, baseline"),
    ],
)
def test_what_cannot_be_read_names_the_part_and_the_choices(
    texts: list[str], sentence: str
) -> None:
    with pytest.raises(UsageError, match=r"^[^\n]*$") as caught:
        parse_arms(texts, CHOICES)
    assert sentence in str(caught.value)


def test_ladder_adds_one_published_fix_a_step() -> None:
    assert [arm.name for arm in ladder(CHOICES)] == [
        "baseline",
        "packed-metadata=cached",
        "packed-metadata=cached,checkpoint-reload=double-buffer",
        "packed-metadata=cached,checkpoint-reload=double-buffer,moe-routing=argsort",
    ]


def test_leave_one_out_has_all_and_all_but_each() -> None:
    arms = leave_one_out(CHOICES)
    assert [arm.name for arm in arms] == [
        "baseline",
        "packed-metadata=cached,checkpoint-reload=double-buffer,moe-routing=argsort",
        "checkpoint-reload=double-buffer,moe-routing=argsort",
        "packed-metadata=cached,moe-routing=argsort",
        "packed-metadata=cached,checkpoint-reload=double-buffer",
    ]


def test_leave_one_out_of_one_says_what_to_use_instead() -> None:
    with pytest.raises(UsageError, match=r"needs two optimizations or more.*--arm"):
        leave_one_out({"moe-routing": CHOICES["moe-routing"]})


def test_grid_has_every_combination_once() -> None:
    arms = grid(CHOICES)
    assert len({arm.name for arm in arms}) == 8
    assert arms[0].role == "baseline"
    assert {arm.name for arm in ladder(CHOICES)} <= {arm.name for arm in arms}
    assert {arm.name for arm in leave_one_out(CHOICES)} <= {arm.name for arm in arms}


variants = st.fixed_dictionaries(
    {},
    optional={
        name: st.sampled_from([variant.name for variant in choices])
        for name, choices in CHOICES.items()
    },
)


@given(st.lists(variants, max_size=5))
def test_a_name_reads_back_as_the_same_arm(changes: list[dict[str, str]]) -> None:
    texts = [",".join(f"{k}={v}" for k, v in change.items()) for change in changes if change]
    try:
        arms = parse_arms(texts, CHOICES)
    except UsageError:
        return  # two of the drawn arms are the same
    again = parse_arms([arm.name for arm in arms], CHOICES)
    assert [arm.name for arm in again] == [arm.name for arm in arms]
    assert all(set(arm.variants) == set(arms[0].variants) for arm in arms)
