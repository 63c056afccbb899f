"""`gapless audit --fix` and the baseline gate, from the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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
    """Exit code, the text, and with `--json` the document that it is."""
    code = main(arguments)
    out = capsys.readouterr().out
    return code, out, json.loads(out) if "--json" in arguments else None


@pytest.mark.parametrize("family", ["mixtral", "qwen3-moe", "gpt-oss"])
def test_the_fix_removes_the_polling_and_changes_no_loss(
    family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = write(tmp_path, family, 'model.set_experts_implementation("eager")')

    code, _, result = run(["audit", target, "--fix", "--values", "--json"], capsys)

    assert code == 0
    before = {f["kind"] for f in result["before"]["findings"]}
    after = {f["kind"] for f in result["after"]["findings"]}
    assert "polling-loop" in before
    assert "polling-loop" not in after
    assert result["after"]["syncs_per_step"] < result["before"]["syncs_per_step"] / 4
    assert result["parity"]["num_losses"] == 2
    assert result["parity"]["largest_relative_difference"] < 1e-5
    assert "moe-routing: device-offsets" in result["fixes"][0]


def test_nothing_to_fix_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", write(tmp_path, "llama"), "--fix"]) == 2
    assert "could turn on" in capsys.readouterr().err


PACKED = """import torch
import torch.nn.functional as F
from tests.optimizations.tiny_models import tiny_model

class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = tiny_model("qwen3", "flash_attention_2").to(torch.bfloat16)
        self.body.activation_checkpointing_enable({"use_reentrant": False})

    def forward(self, ids, positions):
        return self.body(input_ids=ids, position_ids=positions).logits.float()

def build():
    model = Tagger().to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ids = torch.arange(24, device="cuda")[None]
    positions = torch.cat([torch.arange(n) for n in (5, 7, 12)])[None].to("cuda")

    def step():
        loss = F.cross_entropy(model(ids, positions)[0], ids[0])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seen = loss.item()
        return seen

    return step
"""


def test_a_packed_step_of_one_s_own_finds_its_documents_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text(PACKED)
    code, text, result = run(
        ["audit", f"{tmp_path / 'train.py'}:build", "--fix", "--values", "--json"], capsys
    )

    def in_attention(side: str) -> float:
        return sum(
            site["count_per_step"] * site["syncs_per_call"]
            for site in result[side]["sites"]
            if "modeling_flash_attention_utils" in (site["library"] or "")
        )

    assert code == 0
    # Two layers with a recompute: 5 in forward, 5 again, 2 in backward.
    assert (in_attention("before"), in_attention("after")) == (24, 0)
    assert result["after"]["syncs_per_step"] == result["before"]["syncs_per_step"] - 24 + 1
    assert result["parity"] == {"num_losses": 2, "largest_relative_difference": 0.0}
    assert "document boundaries for flash attention" in result["fixes"][0]
    (own,) = [line for line in result["left"] if "train.py" in line]
    assert "scalar-read" in own
    assert "code of the target" in own
    assert "Instead: seen = loss.detach()" in own
    assert own in " ".join(text.split())


SAVES = """import torch
from torch.utils.checkpoint import checkpoint

def build():
    torch.manual_seed(0)
    layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(4)]).to("cuda")
    x = torch.randn(4, 8, device="cuda")

    def step():
        h = x
        for layer in layers:
            with torch.autograd.graph.save_on_cpu({pinned}):
                h = checkpoint(layer, h, use_reentrant=False).tanh()
        h.sum().backward()
        layers.zero_grad()

    return step
"""


def test_what_autograd_saves_on_the_cpu_goes_through_pinned_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = torch.autograd.graph.save_on_cpu.__init__
    (tmp_path / "train.py").write_text(SAVES.format(pinned=""))
    target = f"{tmp_path / 'train.py'}:build"
    code, _, result = run(["audit", target, "--fix", "--values", "--json"], capsys)

    assert code == 0
    # Of each layer, its input and its output: to the host and back.
    assert result["before"]["syncs_per_step"] == 16
    assert result["after"]["syncs_per_step"] == 0
    assert result["parity"] == {"num_losses": 2, "largest_relative_difference": 0.0}
    assert "save_on_cpu: copies through pinned memory" in result["fixes"][0]
    assert torch.autograd.graph.save_on_cpu.__init__ is before


def test_saves_that_are_pinned_already_leave_nothing_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text(SAVES.format(pinned="pin_memory=True"))
    assert main(["audit", f"{tmp_path / 'train.py'}:build", "--fix"]) == 2
    assert "found nothing that --fix could mend" in capsys.readouterr().err


def test_experts_of_one_s_own_are_left_with_the_reason_and_the_remedy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["audit", "examples/moe_polling_loop.py:build_before", "--fix"]) == 2
    said = capsys.readouterr().err
    assert "polling-loop at examples/moe_polling_loop.py" in said
    assert "code of the target, which --fix does not rewrite" in said
    assert "Instead: expert_of_row, order = torch.sort(picked.flatten(), stable=True)" in said


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_documents_are_those_that_transformers_finds(lengths: list[int], first: int) -> None:
    from transformers.modeling_flash_attention_utils import prepare_fa_kwargs_from_position_ids

    positions = torch.cat([torch.arange(first, first + n) for n in lengths])[None]
    (expected, _), (longest, _) = prepare_fa_kwargs_from_position_ids(positions)
    (seen,) = documents_of([{"input_ids": positions, "position_ids": positions}])

    assert torch.equal(seen["cu_seq_lens_q"], expected)
    assert torch.equal(seen["cu_seq_lens_k"], expected)
    assert seen["max_length_q"] == seen["max_length_k"] == int(longest)


def test_a_row_without_positions_is_one_document() -> None:
    (seen,) = documents_of([{"input_ids": torch.zeros(1, 7, dtype=torch.long)}])
    assert (seen["cu_seq_lens_q"].tolist(), seen["max_length_q"]) == ([0, 7], 7)


def documents_of(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The keyword arguments that a module gets when it is called with `calls`."""
    from optimizations.flash_documents import FlashDocuments

    class Model(torch.nn.Module):
        def forward(self, **kwargs: Any) -> None:
            seen.append(kwargs)

    seen: list[dict[str, Any]] = []
    model = Model()
    documents = FlashDocuments(model)
    for call in calls:
        model(**call)
    documents.detach()
    model(**calls[0])
    assert seen.pop() == calls[0]
    return seen


def test_calls_in_which_transformers_looks_for_no_documents_are_left_alone() -> None:
    ids = torch.zeros(1, 4, dtype=torch.long)
    calls = [
        {"input_ids": ids.expand(2, 4)},
        {"input_ids": ids, "attention_mask": torch.ones(1, 4)},
        {"input_ids": ids[:, :1]},
        {"input_ids": ids, "cu_seq_lens_q": torch.tensor([0, 4])},
    ]
    for given_, seen in zip(calls, documents_of(calls), strict=True):
        assert seen.keys() == given_.keys()


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
        (["--fail-on", "old"], "choose new"),
        (["--baseline", "nowhere.json"], "cannot be read"),
    ],
)
def test_bad_usage_is_one_sentence(
    more: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", write(tmp_path, "llama"), *more]) == 2
    assert words in capsys.readouterr().err
