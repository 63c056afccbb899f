"""From plain data to a workload and its optimizations."""

from __future__ import annotations

import json

import pytest

from gapless.factory import build, make_spec, outline
from harness.errors import UsageError
from scenarios.build_options import BuildOptions
from scenarios.scenario_catalogue import get

TINY = BuildOptions(num_layers=1, tokens=64, documents=2, num_batches=1)


def test_a_spec_survives_json_and_builds_what_it_names() -> None:
    spec = make_spec(get("llama3.2-1b-packed-sft"), TINY, ("packed-metadata",))
    workload, optimizations = build(json.loads(json.dumps(spec)))
    assert workload.num_tokens == 64
    assert list(optimizations) == ["packed-metadata"]
    assert workload.describe().attention == "sdpa-mask"


@pytest.mark.parametrize(
    ("scenario", "optimizations", "attention"),
    [
        ("qwen3-8b-packed-sft", ("packed-metadata",), None),
        ("qwen3-8b-packed-sft", ("checkpoint-reload",), "sdpa"),
        ("gpt-oss-20b", ("moe-routing",), None),
        ("gpt-oss-20b", ("packed-metadata", "moe-routing"), "sdpa-mask"),
    ],
)
def test_attention_follows_whether_packed_metadata_is_toggled(
    scenario: str, optimizations: tuple[str, ...], attention: str | None
) -> None:
    spec = make_spec(get(scenario), TINY, optimizations)
    assert spec["options"]["attention"] == attention


def test_a_bad_spec_is_a_usage_error() -> None:
    spec = make_spec(get("gpt-oss-20b"), TINY, ("moe-routing",))
    with pytest.raises(UsageError, match="cannot be built from this description"):
        build({**spec, "extra": 1})
    with pytest.raises(UsageError, match="no scenario 'gone'"):
        build({**spec, "scenario": "gone"})


def test_the_outline_of_a_failed_build_says_what_was_asked_for() -> None:
    record = outline(get("gpt-oss-20b"), BuildOptions(fit="full", dtype="bfloat16"))
    assert (record.model, record.fit, record.dtype) == ("gpt-oss-20b", "full", "bfloat16")
    assert record.config == {}
