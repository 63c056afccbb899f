"""The catalogue: published sizes, what narrow keeps, and names that are almost right."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.errors import UsageError
from scenarios.build_options import BuildOptions
from scenarios.configuration import changed, library_config
from scenarios.narrow import narrow, widths_for
from scenarios.scenario_catalogue import SCENARIOS, get
from scenarios.sizes import changed_sizes, describe, layer_types

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
    "llama3.1-8b-packed-sft": 8.030,
    "mistral-7b-packed-sft": 7.242,
    "gemma3-1b-packed-sft": 0.99989,
    "mixtral-8x7b": 46.70,
    "olmoe-1b-7b": 6.919,
    "deepseek-v3": 671.03,
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_full_size_has_the_published_number_of_parameters_and_needs_no_memory_on_meta(name):
    workload = get(name).build(BuildOptions(device="meta", fit="full", num_batches=1, tokens=512))
    record = workload.describe()
    assert record.num_parameters / 1e9 == pytest.approx(PUBLISHED_PARAMETERS[name], rel=1e-3)
    assert {p.device.type for p in workload.model.parameters()} == {"meta"}
    assert record.dtype == "bfloat16"
    assert set(record.narrowed) == {"num_tokens"}


# tokens, documents, hidden size and MLP width of the narrow builds of published claims.
NARROW = {
    "qwen3-0.6b-packed-sft": (1024, 32, 64, 128),
    "llama3.2-1b-packed-sft": (1024, 32, 64, 128),
    "qwen3-8b-packed-sft": (512, 24, 64, 128),
    "qwen3-14b-packed-sft": (512, 24, 64, 128),
    "qwen3-32b-packed-sft": (256, 16, 64, 128),
    "gpt-oss-20b": (256, 8, 64, 32),
    "gpt-oss-120b": (192, 8, 32, 16),
    "qwen3-30b-a3b": (128, 8, 32, 16),
}
SLIDING, FULL = "sliding_attention", "full_attention"
# window, kinds of the first layers, experts, experts per token, tied, as the model cards state.
FACTS = {
    "llama3.1-8b-packed-sft": (None, [FULL] * 6, None, None, False),
    "mistral-7b-packed-sft": (4096, [SLIDING] * 6, None, None, False),
    "gemma3-1b-packed-sft": (512, [*[SLIDING] * 5, FULL], None, None, True),
    "gpt-oss-20b": (128, [SLIDING, FULL] * 3, 32, 4, False),
    "qwen3-30b-a3b": (None, [FULL] * 6, 128, 8, False),
    "mixtral-8x7b": (None, [FULL] * 6, 8, 2, False),
    "olmoe-1b-7b": (None, [FULL] * 6, 64, 8, False),
    "deepseek-v3": (None, [FULL] * 6, 256, 8, False),
}


def narrowed(scenario, purpose="balanced"):
    """The published configuration of a scenario, and its narrow one."""
    real = library_config(scenario.facts)
    changes = narrow(scenario.facts, real, widths_for(real, purpose))
    return real, library_config(changed(scenario.facts, real, changes))


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda s: s.name)
@pytest.mark.parametrize("purpose", ["balanced", "activations"])
def test_narrow_keeps_what_coordination_depends_on(scenario, purpose):
    real, small = narrowed(scenario, purpose)
    before, after = describe(real), describe(small)
    kept = ("model_type", "num_layers", "num_experts", "num_experts_per_token", "layer_types")
    assert {name: before.get(name) for name in kept} == {name: after.get(name) for name in kept}
    assert layer_types(small) == layer_types(real)
    ratios = [sizes["num_heads"] / sizes["num_kv_heads"] for sizes in (before, after)]
    assert ratios[0] == ratios[1]
    changes = changed_sizes(before, after)
    assert changes["head_dim"] == (before["head_dim"], after["head_dim"])
    assert all(as_run < published for published, as_run in changes.values())


@pytest.mark.parametrize("name", NARROW)
def test_the_narrow_widths_of_published_claims_stay(name):
    real, small = narrowed(SCENARIOS[name])
    widths = widths_for(real, "balanced")
    mlp = describe(small).get("moe_intermediate_size", small.intermediate_size)
    assert (widths.tokens, widths.documents, small.hidden_size, mlp) == NARROW[name]
    assert (small.head_dim, small.vocab_size, small.num_key_value_heads) == (16, 512, 1)


@pytest.mark.parametrize("name", FACTS)
def test_the_configuration_is_the_published_one_also_when_narrowed(name):
    window, types, experts, chosen, tied = FACTS[name]
    real, small = narrowed(SCENARIOS[name])
    for config, expected in ((real, window), (small, window and 16)):
        sizes = describe(config)
        assert sizes.get("sliding_window") == expected
        assert list(layer_types(config)[:6]) == types
        assert (sizes.get("num_experts"), sizes.get("num_experts_per_token")) == (experts, chosen)
        assert sizes["tie_word_embeddings"] is tied


def test_five_windows_to_one_full_layer_survive_narrowing_and_fewer_layers():
    scenario = get("gemma3-1b-packed-sft")
    _, small = narrowed(scenario)
    period = [*[SLIDING] * 5, FULL]
    assert list(layer_types(small)) == [*period * 4, SLIDING, SLIDING]
    record = scenario.build(BuildOptions(device="meta", num_layers=8, tokens=64)).describe()
    assert record.config["layer_types"] == "5 sliding_attention, 1 full_attention"
    assert record.config["sliding_window"] == 16
    assert record.narrowed["sliding_window"] == (512, 16)


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
