"""The sample package, built and installed into a fresh environment, at work in every verb."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.plugins.installed import Environment, install

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

pytestmark = pytest.mark.slow

TARGET = """
import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig

class LoudNorm(nn.Module):
    reads_norms = True

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        if self.reads_norms:
            self.seen = x.norm().item()
        return self.inner(x)

def build():
    config = LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=128,
    )
    model = AutoModelForCausalLM.from_config(config)
    model.model.norm = LoudNorm(model.model.norm)
    model = model.to("cuda")
    ids = torch.randint(0, 128, (1, 16)).to("cuda")
    def step():
        model(input_ids=ids, labels=ids).loss.backward()
    return step
"""
SMALL = ("--layers", "1", "--tokens", "64", "--no-store", "--json")


def document(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made = Environment(tmp_path_factory.mktemp("fresh"))
    made.install_sample(tmp_path_factory.mktemp("wheel"))
    return made


def test_list_shows_one_of_each(environment: Environment) -> None:
    done = environment.gapless("list", "--json")
    found = document(done)
    assert "sample-chat" in [one["name"] for one in found["scenarios"]]
    (chat,) = [one for one in found["scenarios"] if one["name"] == "sample-chat"]
    assert "quiet-norms" in chat["optimizations"]
    variants = [one for one in found["variants"] if one["optimization"] == "quiet-norms"]
    assert [(one["variant"], one["missing"]) for one in variants] == [
        ("loud", None),
        ("quiet", None),
    ]
    assert "MI325X" in found["gpus"]
    assert found["findings"] == ["norm-read"]
    assert found["notes"] == []
    assert done.stderr == ""


def test_bench_times_its_optimization_on_its_scenario(environment: Environment) -> None:
    done = environment.gapless(
        "bench", "sample-chat", "--arm", "quiet-norms=quiet", "--seconds", "1", "--device", "cpu",
        *SMALL,
    )  # fmt: skip
    record = document(done)
    assert {one["arm"] for one in record["comparisons"]} >= {"quiet-norms=quiet"}
    assert all(one["passed"] for one in record["parity"])


def test_model_runs_on_its_gpu(environment: Environment) -> None:
    done = environment.gapless(
        "model", "sample-chat", "--gpu", "MI325X", "--gpu", "MI300X", "--arm", "quiet-norms=quiet",
        "--fit", "narrow", "--adapter", "none", *SMALL,
    )  # fmt: skip
    runs = document(done)["runs"]
    assert [run["machine"]["device"] for run in runs] == ["emulated-mi325x", "emulated-mi300x"]
    assert all(run["status"] == "complete" for run in runs)


def test_audit_finds_its_kind_and_fix_turns_its_optimization_on(
    environment: Environment, tmp_path: Path
) -> None:
    target = tmp_path / "step.py"
    target.write_text(TARGET)
    found = document(environment.gapless("audit", f"{target}:build", "--fix", "--json"))
    (before,) = [one for one in found["before"]["findings"] if one["kind"] == "norm-read"]
    assert before["optimization"] == "quiet-norms=quiet"
    assert found["before"]["syncs_per_step"] == 1
    assert found["after"]["syncs_per_step"] == 0
    assert found["fixes"] == ["quiet-norms: quiet, its norms are read in each layer"]
    assert found["parity"]["largest_relative_difference"] == 0


def test_switched_off_it_is_gone(environment: Environment) -> None:
    found = document(environment.gapless("list", "--json", GAPLESS_PLUGINS_OFF="gapless-sample"))
    assert "sample-chat" not in [one["name"] for one in found["scenarios"]]
    assert "MI325X" not in found["gpus"]


def test_a_broken_package_beside_it_breaks_nothing(tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    install(
        environment.site_packages, "broken-one", "import nothing_of_this_name",
        scenarios="a = broken_one:A", optimizations="b = broken_one:B", gpus="c = broken_one:C",
        findings="d = broken_one:D",
    )  # fmt: skip
    done = environment.gapless("list", "--json")
    assert "gpt-oss-20b" in [one["name"] for one in document(done)["scenarios"]]
    warned = [line.split(" is left out")[0] for line in done.stderr.splitlines()]
    assert sorted(warned) == [f"Warning: the plug-in broken-one:{name}" for name in "abcd"]
