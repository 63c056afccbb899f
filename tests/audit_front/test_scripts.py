"""Whole training scripts run unchanged on the emulated GPU, and their waits are known."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from harness.audit.emulated.emulated_script import audit_script
from harness.errors import UsageError, WorkloadError

if TYPE_CHECKING:
    from harness.record.audit_report import AuditReport

SCRIPTS = Path(__file__).parent / "scripts"
LAYERS = 3

# TRL and peft use an option whose new name this transformers prefers.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*gradient_checkpointing. is deprecated:FutureWarning"
)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(name: str, *arguments: str, **settings: Any) -> AuditReport:
    return audit_script(str(SCRIPTS / name), arguments, **settings)


def syncs(report: AuditReport, *, in_library: str = "", code: str = "") -> float:
    return sum(
        site.count_per_step * site.syncs_per_call
        for site in report.sites
        if in_library in (site.library or "") and code in (site.code or "")
    )


def write(text: str) -> str:
    Path("script.py").write_text(text)
    return "script.py"


@pytest.mark.parametrize("mode", ["values", "shapes"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_trainer_in_one_file(mode: Any, dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = run("single_file_gpt.py", "--dtype", dtype, "--out", "kept", mode=mode)
    assert report.steps == 3  # of four: the first comes with the set-up
    assert report.syncs_per_step == 1  # a fused optimizer takes found_inf on the device
    assert [site.code for site in report.sites if site.syncs_per_call] == [
        'print(f"iter {iteration}: loss {loss.item() * 2:.3f}")'
    ]
    assert Path("kept/checkpoint.pt").is_file()
    assert "NVIDIA H100" in capsys.readouterr().out
    assert any("torch.compile was asked for" in note for note in report.notes)
    saved = torch.load("kept/checkpoint.pt")["model"]["head.weight"]
    assert saved.device.type == "cpu"
    assert type(saved) is torch.Tensor


def test_steps_and_skip_choose_and_the_script_is_left_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = run("single_file_gpt.py", "--iters", "50", steps=2, skip=1)
    assert report.steps == 2
    assert capsys.readouterr().out.count("iter ") == 2
    assert not Path("out").exists()


def test_the_process_is_as_it_was() -> None:
    main, argv, path = sys.modules["__main__"], list(sys.argv), list(sys.path)
    run("single_file_gpt.py", steps=1)
    assert sys.modules["__main__"] is main
    assert sys.argv == argv
    assert sys.path == path
    assert not torch.cuda.is_available() or torch.version.cuda
    sys.modules.pop("corpus")


def test_data_parallel_training_over_nccl() -> None:
    """NCCL itself needs real GPUs, in a build for CUDA as in one for the CPU."""
    before = torch.distributed.is_nccl_available()
    report = run("ddp.py")
    assert report.steps == 2
    assert syncs(report, code="total.item()") == 1
    assert any("gloo in place of NCCL" in note for note in report.notes)
    assert torch.distributed.is_nccl_available() is before


def test_a_hugging_face_trainer() -> None:
    pytest.importorskip("accelerate")
    report = run("hf_trainer.py", "plain")
    assert report.steps == 2
    # Two tensors of the batch, pinned but copied in a blocking way.
    assert syncs(report, in_library="send_to_device") == 2
    assert {site.file for site in report.sites} == {str((SCRIPTS / "hf_trainer.py").resolve())}


def test_what_the_collator_of_a_packed_batch_leaves_out_is_read_in_each_layer() -> None:
    pytest.importorskip("accelerate")
    without = run("hf_trainer.py", "packed")
    given = run("hf_trainer.py", "packed-metadata")
    flash = "modeling_flash_attention_utils"
    # In each layer: is it packed, where documents begin, their upload, and the two longest lengths;
    # the lengths again in backward.
    assert syncs(without, in_library=flash) == LAYERS * (5 + 2)
    assert syncs(given, in_library=flash) == 0
    assert any("stand-in for flash-attn" in note for note in given.notes)


@pytest.mark.parametrize("how", ["workers", "save"])
def test_a_hugging_face_trainer_with_workers_or_checkpoints(how: str) -> None:
    pytest.importorskip("accelerate")
    report = run("hf_trainer.py", how)
    assert report.steps == 2
    if how == "save":
        assert Path("out/checkpoint-2/model.safetensors").is_file()
        assert syncs(report, in_library="safetensors") > 0


@pytest.mark.parametrize("attention", ["sdpa", "flash_attention_2"])
def test_trl_packs_without_reads_in_the_layers(attention: str) -> None:
    trl = pytest.importorskip("trl", minversion="1.0")
    if attention == "flash_attention_2" and trl.__version__.startswith("1.0."):
        pytest.skip("this trl leaves the lengths of documents out of the batch")
    report = run("trl_sft.py", attention)
    assert report.steps == 2
    assert syncs(report, in_library="modeling_flash_attention_utils") == 0
    assert syncs(report, in_library="sft_trainer") > 0


def test_a_script_that_raises_is_named_with_its_line() -> None:
    script = write("import torch\ndef f():\n    raise ValueError('bad batch')\nf()\n")
    with pytest.raises(WorkloadError, match=r"ValueError at .*script\.py:3 in f: bad batch"):
        audit_script(script)


def test_a_script_that_does_not_parse() -> None:
    with pytest.raises(WorkloadError, match=r"SyntaxError at .*script\.py:1"):
        audit_script(write("def\n"))


@pytest.mark.parametrize(("code", "says"), [("3", "status 3"), ("'no data'", "'no data'")])
def test_a_script_that_exits_with_an_error(code: str, says: str) -> None:
    with pytest.raises(WorkloadError, match=says):
        audit_script(write(f"import sys\nsys.exit({code})\n"))


def test_a_script_that_exits_as_it_should() -> None:
    report = audit_script(write("import sys, torch\ntorch.ones(2).cuda().sum().item()\nsys.exit()"))
    assert report.syncs_per_step == 2
    assert any("took no optimizer step" in note for note in report.notes)


def test_a_script_that_is_not_there() -> None:
    with pytest.raises(UsageError, match=r"no script missing\.py"):
        audit_script("missing.py")


def test_an_except_clause_of_the_script_does_not_swallow_the_end() -> None:
    script = write(
        "import torch\n"
        "m = torch.nn.Linear(2, 2).cuda()\n"
        "o = torch.optim.SGD(m.parameters(), lr=0.1)\n"
        "for i in range(100):\n"
        "    try:\n"
        "        m(torch.ones(1, 2, device='cuda')).sum().backward()\n"
        "        o.step()\n"
        "    except Exception:\n"
        "        pass\n"
        "raise SystemExit('the audit should have ended')\n"
    )
    assert audit_script(script, steps=2).steps == 2
