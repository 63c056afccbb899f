"""The catalogue: published sizes, what narrow keeps, and names that are almost right."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.errors import UsageError
from scenarios.build_options import BuildOptions
from scenarios.narrow import changed_sizes, narrow_sizes, widths_for
from scenarios.scenario_catalogue import SCENARIOS, get

# Parameters of each published model, in billions, as its model card states them.
PUBLISHED_PARAMETERS = {
    "qwen3-0.6b-packed-sft": 0.596,
    "qwen3-8b-packed-sft": 8.19,
    "qwen3-14b-packed-sft": 14.77,
    "qwen3-32b-packed-sft": 32.76,
    "llama3.2-1b-packed-sft": 1.236,
    "gpt-oss-20b": 20.91,
    "gpt-oss-120b": 116.83,
    "qwen3-30b-a3b": 30.53,
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_full_size_has_the_published_number_of_parameters_and_needs_no_memory_on_meta(name):
    workload = get(name).build(BuildOptions(device="meta", fit="full", num_batches=1, tokens=512))
    record = workload.describe()
    assert record.num_parameters / 1e9 == pytest.approx(PUBLISHED_PARAMETERS[name], rel=1e-3)
    assert {p.device.type for p in workload.model.parameters()} == {"meta"}
    assert record.dtype == "bfloat16"
    assert set(record.narrowed) == {"num_tokens"}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda s: s.name)
@pytest.mark.parametrize("purpose", ["balanced", "activations"])
def test_narrow_keeps_what_coordination_depends_on(scenario, purpose):
    real = scenario.sizes
    narrow = narrow_sizes(real, widths_for(scenario.model, purpose))
    assert narrow.num_layers == real.num_layers
    assert narrow.num_experts == real.num_experts
    assert narrow.num_experts_per_token == real.num_experts_per_token
    assert narrow.layer_types == real.layer_types
    assert narrow.num_heads / narrow.num_kv_heads == real.num_heads / real.num_kv_heads
    changed = changed_sizes(real, narrow)
    assert changed["head_dim"] == (real.head_dim, narrow.head_dim)
    assert all(as_run < published for published, as_run in changed.values())


def test_gpt_oss_alternates_sliding_and_full_attention_from_a_sliding_first_layer():
    types = get("gpt-oss-20b").sizes.layer_types
    assert types[:3] == ("sliding_attention", "full_attention", "sliding_attention")
    assert len(types) == 24


def test_the_batches_of_the_b200_rows_are_the_recovered_ones():
    tokens = [SCENARIOS[f"qwen3-{size}-packed-sft"].full_tokens for size in ("8b", "14b", "32b")]
    assert tokens == [49_152, 49_152, 24_576]


def test_an_unknown_name_gets_its_neighbours():
    with pytest.raises(UsageError, match=r"did you mean qwen3-14b-packed-sft\?$"):
        get("Qwen3-14B")
    with pytest.raises(UsageError, match=r"did you mean .*qwen3-14b-packed-sft"):
        get("qwen3-14b")
    with pytest.raises(UsageError, match=r"there are qwen3-0\.6b-packed-sft"):
        get("zzz")


def test_the_catalogue_is_immutable_and_cheap_to_import():
    with pytest.raises(TypeError):
        SCENARIOS["x"] = get("gpt-oss-20b")
    code = (
        "import sys, scenarios.scenario_catalogue, scenarios.published;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'pyarrow')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({"tokens": 0}, r"tokens"),
        ({"fit": "wide"}, r"fit='wide'"),
        ({"colour": 1}, r"colour"),
        ({"learning_rate": -1.0}, r"learning_rate"),
    ],
)
def test_bad_options_name_the_field(values, wanted):
    with pytest.raises(UsageError, match=wanted):
        BuildOptions.from_mapping(values)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (BuildOptions(device="warp"), "no device 'warp'"),
        (BuildOptions(attention="no-such"), "attention `no-such`"),
        (BuildOptions(weights="/nowhere/at-all"), "/nowhere/at-all"),
        (BuildOptions(weights="/nowhere", num_layers=2), "leave out num_layers"),
        (BuildOptions(tokenizer="/nowhere/at-all"), "No tokenizer can be loaded"),
        (BuildOptions(data="/nowhere.jsonl"), "does not exist"),
    ],
    ids=["device", "attention", "weights", "sizes", "tokenizer", "data"],
)
def test_what_cannot_be_built_is_one_sentence(options, wanted):
    with pytest.raises(UsageError, match=wanted) as caught:
        get("qwen3-0.6b-packed-sft").build(options)
    assert "\n" not in str(caught.value)
