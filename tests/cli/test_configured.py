"""A model's own configuration in place of a scenario: bench, model and audit run it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gapless.arms import parse_arms
from gapless.bench_run import applicable, variants_of
from gapless.cli.main import main
from gapless.configured import choose_scenario, configured
from gapless.factory import build, make_spec
from gapless.modelled import model_scenario
from harness.errors import UsageError
from scenarios.build_options import BuildOptions

if TYPE_CHECKING:
    from pathlib import Path

GEMMA = {
    "model_type": "gemma3_text",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "num_hidden_layers": 6,
    "vocab_size": 1000,
    "sliding_window": 64,
}
MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "num_local_experts": 4,
    "vocab_size": 1000,
}


def written(folder: Path, facts: dict[str, object], name: str = "My Model.json") -> str:
    path = folder / name
    path.write_text(json.dumps(facts))
    return str(path)


@pytest.mark.parametrize(
    ("facts", "family", "attention", "optimizations"),
    [
        (GEMMA, "packed-sft", "sdpa-mask", ("packed-metadata", "checkpoint-reload")),
        (MIXTRAL, "moe", "sdpa", ("packed-metadata", "checkpoint-reload", "moe-routing")),
        ({**GEMMA, "model_type": "gemma2"}, "packed-sft", "eager", ("checkpoint-reload",)),
        (
            {"model_type": "mamba", "num_hidden_layers": 2, "hidden_size": 64},
            "packed-sft",
            "eager",
            ("checkpoint-reload",),
        ),
    ],
    ids=["windows", "experts", "capped logits", "no attention"],
)
def test_the_optimizations_say_whether_they_apply(
    facts: dict[str, object],
    family: str,
    attention: str,
    optimizations: tuple[str, ...],
    tmp_path: Path,
) -> None:
    scenario = configured(written(tmp_path, facts))
    assert scenario.name == "my-model"
    assert (scenario.family, scenario.attention) == (family, attention)
    assert applicable(scenario) == optimizations


def test_the_name_is_that_of_the_folder_and_never_that_of_a_published_scenario(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "gpt-oss-20b"
    folder.mkdir()
    written(folder, GEMMA, "config.json")
    assert choose_scenario(None, str(folder)).name == "gpt-oss-20b-config"
    with pytest.raises(UsageError, match="leave out the name or --config"):
        choose_scenario("gpt-oss-20b", str(folder))


def test_a_configuration_crosses_the_process_boundary(tmp_path: Path) -> None:
    scenario = configured(written(tmp_path, GEMMA))
    options = BuildOptions(tokens=64, documents=2, num_batches=1)
    spec = json.loads(json.dumps(make_spec(scenario, options, ("packed-metadata",))))
    workload, _ = build(spec)
    record = workload.describe()
    assert (record.name, record.attention) == ("my-model", "sdpa-mask")
    assert record.config["layer_types"] == "5 sliding_attention, 1 full_attention"
    assert record.narrowed["sliding_window"] == (64, 16)


def test_bench_plans_and_model_and_audit_run_a_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, MIXTRAL)
    assert main(["bench", "--config", path, "--ladder", "--dry-run"]) == 0
    assert "moe-routing=argsort" in capsys.readouterr().out
    assert main(["audit", "--config", path, "--tokens", "64"]) == 0
    assert "my-model (moe-routing=where-loop) on emulated H100" in capsys.readouterr().out
    scenario = configured(path)
    arms = parse_arms(["moe-routing=argsort"], variants_of(applicable(scenario)))
    record = model_scenario(scenario, arms, "B200", {"fit": "full", "tokens": 64}, store=None)
    assert record.status == "complete"
    assert record.scenario.config["num_experts"] == 4
