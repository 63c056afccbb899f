"""The exercises of CONTRIBUTING.md, to the letter, in a copy of the packages.

Each takes the files and lines from the page and puts them where the page says.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("gapless", "harness", "optimizations", "scenarios", "dashboard")
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
TARGET = """
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

def build():
    config = LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=12, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=128,
    )
    model = AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", dtype=torch.bfloat16
    ).to("cuda")
    ids = torch.randint(0, 128, (2, 16)).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    def step():
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    return step
"""


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def block(text: str, language: str) -> str:
    """The first block of code in this language."""
    found = re.search(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


class Copy:
    """The packages in a folder of their own, and what runs there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in PACKAGES:
            leave = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, ignore=leave)

    def write(self, path: str, text: str) -> None:
        assert not (self.folder / path).exists(), f"{path} is there already"
        (self.folder / path).write_text(text)

    def insert(self, path: str, after: str, line: str) -> None:
        file = self.folder / path
        before = file.read_text()
        assert before.count(after) == 1
        file.write_text(before.replace(after, f"{after}{line}"))

    def append(self, path: str, text: str) -> None:
        with (self.folder / path).open("a") as file:
            file.write(f"\n{text}")

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(self.folder)},
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def gapless(self, *words: str) -> dict[str, object]:
        output = self.run("-m", "gapless", *words, "--json")
        found: dict[str, object] = json.loads(output)
        return found


@pytest.mark.slow
def test_the_new_scenario_is_timed(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    published = (ROOT / "scenarios/configs/Qwen3-0.6B.json").read_text()
    copy.write("scenarios/configs/Qwen3-Other.json", published)
    line = '    packed_sft("qwen3-other", "Qwen3-Other", 2048),\n'
    copy.insert("scenarios/scenario_catalogue.py", "_ALL = (\n", line)
    record = copy.gapless(
        "bench", "qwen3-other", "--arm", "packed-metadata=cached", "--seconds", "1", "--layers",
        "1", "--tokens", "64", "--device", "cpu", "--no-store",
    )  # fmt: skip
    assert record["scenario"]["name"] == "qwen3-other"
    assert record["scenario"]["model"] == "Qwen3-Other"


@pytest.fixture(scope="module")
def with_optimization(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    copy = Copy(tmp_path_factory.mktemp("optimization"))
    text = section("Add an optimization")
    copy.write("optimizations/attention_kernel.py", block(text, "python"))
    copy.insert("optimizations/optimization_catalogue.py", "_OWN = (\n", block(text, "text"))
    return copy


def test_the_catalogue_takes_the_line_and_loads_no_torch(with_optimization: Copy) -> None:
    code = (
        "import sys; from optimizations.optimization_catalogue import names;"
        "print(*names(), 'torch' in sys.modules)"
    )
    assert with_optimization.run("-c", code).split() == [
        "attention-kernel", "packed-metadata", "checkpoint-reload", "moe-routing", "False",
    ]  # fmt: skip


@pytest.mark.slow
def test_the_new_optimization_is_listed(with_optimization: Copy) -> None:
    found = with_optimization.gapless("list")
    variants = [one for one in found["variants"] if one["optimization"] == "attention-kernel"]
    assert [(one["variant"], one["missing"]) for one in variants] == [
        ("eager", None), ("sdpa", None),
    ]  # fmt: skip
    assert all("attention-kernel" in one["optimizations"] for one in found["scenarios"])


@pytest.mark.slow
def test_the_new_optimization_is_timed(with_optimization: Copy) -> None:
    record = with_optimization.gapless(
        "bench", "qwen3-0.6b-packed-sft", "--arm", "attention-kernel=sdpa", "--seconds", "1",
        "--layers", "1", "--tokens", "256", "--device", "cpu", "--no-store",
    )  # fmt: skip
    assert {one["arm"] for one in record["comparisons"]} >= {"attention-kernel=sdpa"}
    assert all(one["passed"] for one in record["parity"])


@pytest.mark.slow
def test_the_new_optimization_is_modelled(with_optimization: Copy) -> None:
    found = with_optimization.gapless(
        "model", "qwen3-0.6b-packed-sft", "--gpu", "B200", "--arm", "attention-kernel=sdpa",
        "--fit", "narrow", "--adapter", "none", "--layers", "1", "--tokens", "64", "--no-store",
    )  # fmt: skip
    (run,) = found["runs"]
    assert run["status"] == "complete"


@pytest.mark.slow
def test_the_new_optimization_mends_the_finding_it_answers(
    with_optimization: Copy, tmp_path: Path
) -> None:
    target = tmp_path / "step.py"
    target.write_text(TARGET)
    found = with_optimization.gapless("audit", f"{target}:build", "--gpu", "B200", "--fix")
    (bound,) = [one for one in found["before"]["findings"] if one["kind"] == "launch-bound"]
    assert bound["optimization"] == "attention-kernel=sdpa"
    (fix,) = found["fixes"]
    assert fix.startswith("attention-kernel: sdpa, ")
    step_ms = [found[when]["modelled"]["step_ms"] for when in ("before", "after")]
    assert step_ms[1] < step_ms[0]


def test_the_new_gpu_takes_the_shares_of_its_architecture(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    copy.append("harness/clock/gpus.toml", block(section("Add a GPU"), "toml"))
    code = (
        "from harness.clock.costs import catalogue_costs as c; from harness.clock.gpus import "
        "find_gpu as f; print(dict(c(f('mi325x')).efficiency) == dict(c(f('mi300x')).efficiency),"
        "f('MI325X').memory_gb_per_s)"
    )
    assert copy.run("-c", code).split() == ["True", "6000"]


def test_the_new_kind_of_finding_claims_its_wait(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    text = section("Add a kind of finding")
    copy.write("harness/findings/accuracy_read.py", block(text, "python"))
    name, rule = block(text, "text").splitlines(keepends=True)
    catalogue = "harness/findings/finding_catalogue.py"
    copy.insert(catalogue, "from harness.findings import (\n", name)
    copy.insert(catalogue, "RULES: tuple[Rule, ...] = (\n", rule)
    (tmp_path / "step.py").write_text(
        "import torch\n"
        "def step():\n"
        "    hits = torch.zeros((), device='cuda')\n"
        "    accuracy = hits.item()\n"
        "    return hits.item() + 1\n"
    )
    report = copy.gapless("audit", "step.py:step")
    assert sorted((one["kind"], one["line"]) for one in report["findings"]) == [
        ("accuracy-read", 4), ("scalar-read", 5),
    ]  # fmt: skip
