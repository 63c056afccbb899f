"""Programs that do to the process what they like: a report, or one sentence and exit code 3."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gapless.cli.main import main

CHECKOUT = str(Path(__file__).resolve().parents[2])
FAULTS = Path(__file__).resolve().parents[2].parent / "shared" / "faults" / "scripts"
TRAINING = """
import torch
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step():
    loss = model(torch.randn(4, 8, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()

step()
"""
REPORTED = {
    "stdout redirected": "import sys, io; sys.stdout = sys.stderr = io.StringIO(); step()",
    "stdout closed": "import sys; sys.stdout.close(); step()",
    "stdout none": "import sys; sys.stdout = sys.stderr = None; step()",
    "descriptor closed": "import os; os.close(1); step()",
    "os._exit(0)": "import os; os._exit(0)",
    "folder changed": "import os; os.chdir('/'); step()",
    "folder removed": (
        "import os, tempfile; d = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d); step()"
    ),
    "sys emptied": (
        "import sys; del sys.modules['__main__']; sys.argv = None; sys.path = None; step()"
    ),
    "exit hook": "import atexit; atexit.register(lambda: step()); step()",
}
FAILED = {
    "message that raises": (
        "class E(Exception):\n  def __str__(self): raise RuntimeError\nraise E()",
        "raised E at",
    ),
    "no Exception": ("class E(BaseException): pass\nraise E('why')", "raised E at"),
    "generator's exit": ("raise GeneratorExit", "raised GeneratorExit at"),
    "steering text": ("raise ValueError('a\\nb\\n\\x1b[2Jc')", "a b \\x1b[2Jc"),
    "os._exit(4)": ("import os; os._exit(4)", "exited with status 4"),
    "memory": ("raise MemoryError", "raised MemoryError at"),
    "recursion": ("def f(): f()\nf()", "raised RecursionError at"),
}


@pytest.fixture(autouse=True)
def steady(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def script(text: str) -> str:
    Path("train.py").write_text(TRAINING + text + "\n")
    return "train.py"


def audit(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    before = (Path.cwd(), sys.argv, sys.path, list(sys.path), sys.stdout, sys.stderr, os._exit)
    code = main(["audit", *words])
    assert before == (Path.cwd(), sys.argv, sys.path, before[3], sys.stdout, sys.stderr, os._exit)
    shown = capfd.readouterr()
    assert "Traceback" not in shown.err
    return code, shown.out, shown.err


def audit_apart(_: object, *words: str) -> tuple[int, str, str]:
    """In a process of its own: what is closed there is pytest's own here."""
    done = subprocess.run(
        [sys.executable, "-m", "gapless", "audit", *words],
        env={**os.environ, "PYTHONPATH": CHECKOUT},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", REPORTED)
def test_a_report_comes_whatever_the_script_did(
    capfd: pytest.CaptureFixture[str], name: str
) -> None:
    run = audit_apart if "closed" in name else audit
    code, out, _ = run(capfd, script(REPORTED[name]))
    assert code == 0
    assert "loss.item()" in out


@pytest.mark.parametrize("name", FAILED)
def test_what_is_the_scripts_fault_is_one_sentence(
    capfd: pytest.CaptureFixture[str], name: str
) -> None:
    text, words = FAILED[name]
    code, _, err = audit(capfd, script(text))
    assert code == 3
    assert words in err
    assert err.count("\n") == 1


def test_a_file_lands_in_the_folder_the_user_was_in(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = script("import os; os.mkdir('elsewhere'); os.chdir('elsewhere'); step()")
    assert audit(capfd, target, "--timeline", "out.json.gz")[0] == 0
    assert gzip.decompress((tmp_path / "out.json.gz").read_bytes()).startswith(b"{")


def test_a_step_that_exits_has_failed(capfd: pytest.CaptureFixture[str]) -> None:
    Path("steps.py").write_text("import sys\ndef step():\n    sys.exit(0)\n")
    code, out, err = audit(capfd, "steps.py:step")
    assert (code, out) == (3, "")
    assert "raised SystemExit at" in err


def test_a_package_of_the_working_folder_is_found() -> None:
    folder = Path("project/inner")
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "b.py").write_text("import torch\ndef build():\n    return torch.zeros(1).item\n")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "gapless", "audit", "inner.b:build"],
        cwd="project",
        env={**os.environ, "PYTHONPATH": CHECKOUT},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_script_too_deep_to_read_is_its_own_fault(capfd: pytest.CaptureFixture[str]) -> None:
    Path("deep.py").write_text("x = " + "-" * 200_000 + "1\n")
    code, _, err = audit(capfd, "deep.py")
    assert code == 3
    assert err.count("\n") == 1


@pytest.mark.skipif(not FAULTS.is_dir(), reason="needs ../shared/faults beside the checkout")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((f"{name}.py", 0) for name in (
            "stdout_redirect", "osexit0", "chdir_deleted", "closestdout", "closestdout2",
            "stdout_none", "delmain", "chdir",
        )),
        *((f"{name}.py", 3) for name in ("exc_badstr", "baseexc", "genexit", "exc_multiline")),
        ("exitstep.py:build", 3),
    ],
)  # fmt: skip
def test_the_reported_scripts(capfd: pytest.CaptureFixture[str], name: str, expected: int) -> None:
    run = audit_apart if "closestdout" in name else audit
    code, out, err = run(capfd, str(FAULTS / name))
    assert code == expected
    assert ("loss.item()" in out or "l.item()" in out) == (code == 0)
    assert err.count("\n") == int(code != 0)
