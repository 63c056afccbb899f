"""Each kind of target takes its options, refuses the others, and says where its times come from."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from gapless.cli.audit_kinds import kind_of, kinds_of
from gapless.cli.main import main
from harness.errors import UsageError

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="audits are live on a machine with a GPU"
)

SHIPPED = sorted((Path(__file__).parents[2] / "results").glob("*/trace-*.json.gz"))
STEP = """
    import torch

    def build():
        model = torch.nn.Sequential(torch.nn.Linear(4, 4)).cuda()
        x = torch.ones(2, 4, device="cuda")

        def step():
            loss = model(x).sum()
            loss.item()
            return loss.detach().item()

        return step
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("steps.py").write_text(textwrap.dedent(STEP))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*words: str) -> tuple[int, str, str]:
        code = main(["audit", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["steps.py:build"], "a callable"),
        (["package.module:step"], "a callable"),
        (["steps.py"], "a script"),
        (["trace.json"], "a trace"),
        (["t.json.gz"], "a trace"),
        (["."], "a folder of traces"),
        (["a.json", "b.json.gz"], "a pair of traces"),
    ],
)
def test_a_target_has_one_kind(words: list[str], kind: str) -> None:
    assert kind_of(words) == kind


def test_a_model_is_named_in_place_of_a_target() -> None:
    assert kind_of([], scenario="gpt-oss-20b") == "a scenario"
    assert kind_of([], config="config.json") == "a configuration"
    for named in ({}, {"scenario": "a", "config": "b"}):
        with pytest.raises(UsageError, match="Name one thing to audit"):
            kind_of([], **named)


def test_the_help_lists_options_by_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--help"]) == 0
    sections = capsys.readouterr().out.split("\n\n")
    for name, flag in (
        ("layers", "--layers"),
        ("without", "--without"),
        ("annotate", "--annotate"),
    ):
        (section,) = [text for text in sections if flag in text]
        assert section.startswith(f"For {kinds_of(name)}:")
    assert kinds_of("annotate") == "a trace"
    assert kinds_of("top") == "every target but a pair of traces"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["steps.py:build", "--layers", "3"],
            "--layers is for a scenario or a configuration, and steps.py:build is a",
        ),
        (["steps.py:build", "--no-checkpointing"], "--no-checkpointing is for a scenario or"),
        (
            ["t.json", "--gpu", "B200"],
            "--gpu is for a callable, a script, a scenario or a configuration, and t",
        ),
        (["t.json", "--without", "x.py:3"], "--without is for a callable, a script, a scenario or"),
        (["t.json", "--timeline", "x.json"], "and t.json is a trace; leave --timeline out"),
        (["t.json", "--on", "B200"], "--on is for"),
        (["--scenario", "gpt-oss-20b", "--annotate", "x"], "is for a trace, and gpt-oss-20b is a"),
        (["--scenario", "gpt-oss-20b", "--compat", "hta"], "--compat is for a trace, and"),
        (["--scenario", "gpt-oss-20b", "--tensorboard", "x"], "--tensorboard is for a callable, a"),
        (["a.json", "b.json", "--top", "3"], "--top is for every target but a pair of traces"),
        ([".", "--compat", "hta"], "--compat is for a trace, and . is a folder of traces"),
        (["steps.py:build", "--values", "--shapes"], "--values and --shapes exclude each other"),
        (["steps.py:build", "--values", "--routing", "skewed"], "--routing is for shapes only"),
        (["steps.py:build", "--fix", "--on", "A100"], "--on has no effect beside --fix"),
        (["steps.py:build", "--all", "--top", "3"], "--top has no effect beside --all"),
        (["steps.py:build", "--steps", "1", "--steps", "2"], "--steps is given 2 times"),
        (["steps.py:build", "--tensorboard", "x"], "keeps a trace of a real GPU"),
        (["t.json", "--compat", "hta", "--annotate", "x"], "--annotate has no effect beside"),
    ],
)
def test_what_has_no_effect_is_one_sentence_and_exit_code_2(
    run: Any, words: list[str], says: str
) -> None:
    code, out, error = run(*words)
    assert (code, out) == (2, "")
    assert says in error
    assert error.count("\n") == 1


def test_on_a_real_gpu_options_of_the_emulated_one_are_refused(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gapless.program_audit.should_be_live", lambda gpu: gpu is None)
    monkeypatch.setattr("gapless.program_audit.audit_on_gpu", lambda *_, **__: pytest.fail("ran"))
    for words in (["--without", "steps.py:3"], ["--shapes"], ["--seed", "0"], ["--races"]):
        code, _, error = run("steps.py:build", *words)
        assert code == 2
        assert f"{words[0]} is for an emulated GPU, and steps.py:build runs on the GPU" in error
        assert "add --gpu H100" in error
    line = STEP.splitlines().index("            loss.item()") + 1
    assert run("steps.py:build", "--gpu", "A100", "--without", f"steps.py:{line}")[0] == 0


def test_a_timeline_reads_back_as_modelled(run: Any) -> None:
    code, _, _ = run("steps.py:build", "--timeline", "t.json.gz")
    assert code == 0
    assert run("t.json.gz", "--annotate", "drawn.json.gz")[0] == 0
    for trace in ("t.json.gz", "drawn.json.gz"):
        _, text, _ = run(trace)
        assert "(trace, modelled)" in text
        assert "Times are modelled by the emulator's clock; nothing was measured." in text
        _, printed, _ = run(trace, "--json")
        found = json.loads(printed)
        assert (found["source"], found["times"]) == ("trace", "modelled")
        assert "measured" not in {finding["ranked_by"] for finding in found["findings"]}
    _, text, _ = run("t.json.gz", "drawn.json.gz")
    assert "modelled by the emulator's clock, not measured" in text
    _, printed, _ = run("t.json.gz", "t.json.gz", "--json")
    assert (json.loads(printed)["times_a"], json.loads(printed)["times_b"]) == ("modelled",) * 2
    _, printed, _ = run("t.json.gz", "--compat", "hta", "--json")
    assert json.loads(printed)["times"] == "modelled"


@pytest.mark.skipif(not SHIPPED, reason="no records ship with this copy")
def test_a_shipped_timeline_reads_back_as_modelled(run: Any) -> None:
    smallest = min(SHIPPED, key=lambda path: path.stat().st_size)
    _, printed, _ = run(str(smallest), "--json")
    assert json.loads(printed)["times"] == "modelled"


def test_a_folder_with_modelled_and_measured_ranks_says_which(run: Any) -> None:
    assert run("steps.py:build", "--timeline", "rank0.json")[0] == 0
    document = json.loads(Path("rank0.json").read_text())
    del document["source"]
    Path("ranks").mkdir()
    Path("rank0.json").rename("ranks/rank0.json")
    Path("ranks/rank1.json").write_text(json.dumps(document))
    _, printed, _ = run("ranks", "--json")
    found = json.loads(printed)
    assert found["times"] == "modelled"
    assert any("not measured: ranks/rank0.json" in note for note in found["notes"])


def test_against_a_baseline_the_count_is_of_the_whole_step(run: Any) -> None:
    _, printed, _ = run("steps.py:build", "--json")
    Path("audit.json").write_text(printed)
    against = ("steps.py:build", "--baseline", "audit.json")
    code, text, _ = run(*against, "--fail-on", "new")
    assert code == 0
    assert "1 step, 2 syncs per step, 0 new" in text
    assert "Nothing that the baseline lacks makes the host wait." in text
    _, printed, _ = run(*against, "--json")
    found = json.loads(printed)
    assert (found["syncs_per_step"], found["new_syncs_per_step"], found["sites"]) == (2, 0, [])

    source = Path("steps.py").read_text()
    Path("steps.py").write_text(source.replace("loss.item()\n", "loss.item(); x.max().item()\n", 1))
    code, text, _ = run(*against, "--fail-on", "new")
    assert code == 1
    assert "3 syncs per step, 2 new" in text


def test_races_that_were_looked_for_are_told_also_where_there_is_none(run: Any) -> None:
    assert "--races found no memory that two streams use" in run("steps.py:build", "--races")[1]
    assert "--races" not in run("steps.py:build")[1]


def test_a_place_in_a_plain_sequence_of_layers_is_not_called_a_star(run: Any) -> None:
    Path("steps.py").write_text(
        "import torch\nclass Reads(torch.nn.Module):\n"
        "    def forward(self, x):\n        return x * x.sum().item()\n"
        "model = torch.nn.Sequential(Reads(), Reads())\n"
        "def step():\n    model(torch.ones(2, device='cuda'))\n"
    )
    text = run("steps.py:step")[1]
    assert "steps.py:4 in" in text
    assert "[*]" not in text
