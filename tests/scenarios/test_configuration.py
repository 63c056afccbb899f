"""Any causal language model's config.json: what is read, what is built, and what is refused."""

from __future__ import annotations

import json

import pytest
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from harness.errors import GaplessError, UsageError
from scenarios.build import stock_attention
from scenarios.build_options import BuildOptions
from scenarios.configuration import CONFIGS, library_config, read_facts, shipped
from scenarios.scenario_catalogue import Scenario, get
from scenarios.sizes import check_asked, describe_built, layer_types, pattern

SMALL = {"num_hidden_layers": 3, "vocab_size": 1000, "hidden_size": 256, "intermediate_size": 512}
HEADS = {"num_attention_heads": 8, "num_key_value_heads": 2}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 64}
MODELS = {
    "llama": {**SMALL, **HEADS},
    "gemma3_text": {**SMALL, **HEADS, "head_dim": 32, "sliding_window": 64},
    "mistral": {**SMALL, **HEADS, "sliding_window": 64},
    "phi3": {**SMALL, **HEADS, "sliding_window": 64, "pad_token_id": 900},
    "olmo2": {**SMALL, **HEADS, "eos_token_id": 999},
    "qwen2_moe": {**SMALL, **HEADS, **EXPERTS, "num_experts": 8},
    "deepseek_v3": {
        **SMALL,
        **EXPERTS,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "n_routed_experts": 16,
        "n_group": 4,
        "topk_group": 2,
        "first_k_dense_replace": 1,
    },
    "gpt2": {"n_layer": 2, "n_embd": 128, "n_head": 4, "vocab_size": 1000, "n_positions": 128},
}


def scenario_of(facts) -> Scenario:
    config = library_config(facts)
    return Scenario(
        name="own",
        family="packed-sft",
        model="own",
        facts=dict(facts),
        attention=stock_attention(config),
        full_tokens=64,
    )


def build(facts, **options):
    return scenario_of(facts).build(
        BuildOptions(**{"tokens": 64, "documents": 4, "num_batches": 1} | options)
    )


@pytest.mark.parametrize("model_type", MODELS)
def test_a_model_of_each_type_trains_and_its_record_is_what_was_built(model_type, tmp_path):
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"model_type": model_type, **MODELS[model_type]}))
    workload = build(read_facts(str(path)))
    workload.forward()
    workload.backward()
    assert all(p.grad is not None for p in workload.model.parameters())
    record, config = workload.describe(), workload.model.config
    assert record.config == describe_built(workload.model)
    assert record.config["num_layers"] == config.num_hidden_layers
    assert record.config["vocab_size"] == workload.model.get_input_embeddings().num_embeddings
    assert record.config["hidden_size"] == config.hidden_size == 64
    assert record.checkpointing


@pytest.mark.parametrize("model", ["Gemma-3-1B", "Mistral-7B", "gpt-oss-20b", "Llama-3.1-8B"])
def test_every_layer_computes_with_the_window_that_the_record_says(model, monkeypatch):
    facts = shipped(model)
    workload = build(facts, num_layers=6)
    windows = {}

    def recording(module, *arguments, sliding_window=None, **more):
        windows[module.layer_idx] = sliding_window
        return ALL_ATTENTION_FUNCTIONS["sdpa"](module, *arguments, **more)

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, "recording", recording)
    workload.model.config._attn_implementation = "recording"
    workload.forward()
    record = workload.describe().config
    kinds = layer_types(workload.model.config)
    assert pattern(kinds) == record.get("layer_types", "full_attention")
    window = record.get("sliding_window")
    assert windows == {i: window if "sliding" in kind else None for i, kind in enumerate(kinds)}


def test_layers_with_experts_are_counted_in_the_built_model():
    record = build({"model_type": "deepseek_v3", **MODELS["deepseek_v3"]}).describe().config
    assert (record["num_experts"], record["num_layers"]) == (16, 3)
    assert record["num_sparse_layers"] == 2
    # Fewer layers than are dense at first leave one that has experts.
    shallow = get("deepseek-v3").build(BuildOptions(device="meta", num_layers=2, tokens=64))
    assert shallow.describe().config["num_sparse_layers"] == 1


def test_more_layers_repeat_the_pattern_and_listed_layers_that_are_gone_are_left_out():
    facts = {**shipped("Qwen3-30B-A3B"), "mlp_only_layers": [1, 40]}
    record = build(facts, device="meta", num_layers=4).describe().config
    assert record["num_sparse_layers"] == 3
    deep = build(shipped("gpt-oss-20b"), device="meta", num_layers=30).describe().config
    assert deep["layer_types"] == "1 sliding_attention, 1 full_attention"


def test_what_the_class_derives_is_derived_again(tmp_path):
    published = library_config({"model_type": "deepseek_v3", **MODELS["deepseek_v3"]})
    published.save_pretrained(tmp_path)
    assert "qk_head_dim" in json.loads((tmp_path / "config.json").read_text())
    workload = build(read_facts(str(tmp_path)))
    assert workload.model.config.qk_head_dim == 32
    workload.forward()


def test_the_language_model_is_taken_out_of_one_that_sees_too(tmp_path):
    text = {**MODELS["gemma3_text"], "model_type": "gemma3_text"}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gemma3", "text_config": text}))
    assert build(read_facts(str(tmp_path))).describe().config["model_type"] == "gemma3_text"


def test_a_record_that_is_not_what_was_built_is_an_error():
    workload = build({"model_type": "llama", **MODELS["llama"]})
    with pytest.raises(GaplessError, match=r"asked for hidden_size=128 and was built with 64"):
        check_asked(workload.model.config, {"hidden_size": 128})
    workload.model.config.tie_word_embeddings = True
    with pytest.raises(GaplessError, match=r"tie_word_embeddings=True, and the built model has F"):
        describe_built(workload.model)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "cannot be read as JSON"),
        ("[1]", "holds no JSON object"),
        ('{"hidden_size": 4}', "names no model_type"),
        ('{"model_type": "starfish"}', "knows no model_type 'starfish'"),
        ('{"model_type": "bert"}', "The bert model of .* is no causal language model"),
        ('{"model_type": "t5"}', "is an encoder-decoder"),
        ('{"model_type": "vit"}', "is no causal language model"),
        ('{"model_type": "llama", "hidden_size": "wide"}', "refuses this llama configuration"),
    ],
)
def test_what_is_no_configuration_of_a_language_model_is_one_sentence(content, sentence, tmp_path):
    path = tmp_path / "own.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=sentence) as caught:
        read_facts(str(path))
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_an_unreachable_hub_are_named(monkeypatch, tmp_path):
    with pytest.raises(UsageError, match=r"no configuration at .*gone\.json"):
        read_facts(str(tmp_path / "gone.json"))
    with pytest.raises(UsageError, match=r"no configuration at .*config\.json"):
        read_facts(str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match=r"no file or folder no-such-owner/no-such-model"):
        read_facts("no-such-owner/no-such-model")


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_every_configuration_that_ships_is_one(path):
    read, real = library_config(read_facts(str(path))), library_config(shipped(path.stem))
    assert read.to_dict() == real.to_dict()
