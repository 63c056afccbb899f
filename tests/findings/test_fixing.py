"""`gapless audit --fix` and the baseline gate, from the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gapless.cli.main import main
from tests.optimizations.tiny_models import tiny_model

if TYPE_CHECKING:
    from pathlib import Path

STEP = """import torch
from tests.optimizations.tiny_models import tiny_model

def build():
    model = tiny_model("{family}")
    {switch}
    model = model.to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ids = torch.arange(24, device="cuda")[None]

    def step():
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total = loss.item()
        return total

    return step
"""


def write(folder: Path, family: str, switch: str = "pass", name: str = "train.py") -> str:
    file = folder / name
    file.write_text(STEP.format(family=family, switch=switch))
    return f"{file}:build"


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, Any]:
    """Exit code, the text, and the JSON document at its end."""
    code = main(arguments)
    out = capsys.readouterr().out
    start = out.find("\n{\n")
    return code, out, json.loads(out[start:]) if start >= 0 else None


@pytest.mark.parametrize("family", ["mixtral", "qwen3-moe", "gpt-oss"])
def test_the_fix_removes_the_polling_and_changes_no_loss(
    family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = write(tmp_path, family, 'model.set_experts_implementation("eager")')

    code, text, result = run(["audit", target, "--fix", "--values", "--json"], capsys)

    assert code == 0
    before = {f["kind"] for f in result["before"]["findings"]}
    after = {f["kind"] for f in result["after"]["findings"]}
    assert "polling-loop" in before
    assert "polling-loop" not in after
    assert result["after"]["syncs_per_step"] < result["before"]["syncs_per_step"] / 4
    assert result["parity"]["num_losses"] == 2
    assert result["parity"]["largest_relative_difference"] < 1e-5
    assert "moe-routing: device-offsets" in result["fixes"][0]
    assert "Syncs before" in text


def test_nothing_to_fix_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", write(tmp_path, "llama"), "--fix"]) == 2
    assert "could turn on" in capsys.readouterr().err


def test_the_model_is_left_as_it_was() -> None:
    from gapless.fixing import watched

    model = tiny_model("mixtral")
    model.set_experts_implementation("eager")
    with watched({"moe-routing": "device-offsets"}) as seen:
        ids = model.dummy_inputs["input_ids"] % 40
        model(input_ids=ids, labels=ids)
        assert model.config._experts_implementation != "eager"
    assert model.config._experts_implementation == "eager"
    assert len(seen.losses) == 1
    assert [choice.variant for choice in seen.choices] == ["device-offsets"]


def test_the_gate_passes_what_is_known_and_fails_on_what_is_new(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = write(tmp_path, "llama")
    main(["audit", target, "--json"])
    baseline = tmp_path / "audit.json"
    baseline.write_text(capsys.readouterr().out)
    gate = ["--baseline", str(baseline), "--fail-on", "new", "--json"]

    source = (tmp_path / "train.py").read_text()
    (tmp_path / "train.py").write_text("# moved\n\n" + source)
    code, _, known = run(["audit", target, *gate], capsys)
    assert (code, known["sites"]) == (0, [])

    (tmp_path / "train.py").write_text(
        source.replace(
            "        return total", "        worst = int(ids.max())\n        return total"
        )
    )
    code, _, new = run(["audit", target, *gate], capsys)
    assert code == 1
    assert [site["code"] for site in new["sites"]] == ["worst = int(ids.max())"]
    assert main(["audit", target, "--baseline", str(baseline)]) == 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--fail-on", "new"], "needs --baseline"),
        (["--fail-on", "old"], "there is new"),
        (["--baseline", "nowhere.json"], "cannot be read"),
    ],
)
def test_bad_usage_is_one_sentence(
    more: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", write(tmp_path, "llama"), *more]) == 2
    assert words in capsys.readouterr().err
