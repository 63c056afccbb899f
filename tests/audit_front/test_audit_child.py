"""With a real GPU in the process, an emulated audit runs in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gapless.audit_child import audit_in_child
from gapless.program_audit import audit_program
from harness.errors import WorkloadError

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import sys
import torch
assert sys.argv[1:] == ["--lr", "0.1"], sys.argv
net = torch.nn.Linear(2, 2).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = net(torch.ones(1, 2, device="cuda")).sum()
    loss.backward()
    opt.step()
    loss.item()
"""


def test_a_child_gives_the_same_report(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    words = [str(script), "--lr", "0.1"]
    report = audit_in_child(words, steps=None, skip=None, gpu="A100")
    assert report == audit_program(words, steps=None, skip=None, gpu="A100")
    assert report.syncs_per_step == 1


def test_a_child_leaves_this_process_as_it_was(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    code = (
        "import sys, torch; from gapless.audit_child import audit_in_child; "
        "audit_in_child([sys.argv[1], '--lr', '0.1'], steps=None, skip=None); "
        "print(torch._C._get_privateuse1_backend_name())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(script)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "privateuseone"


@pytest.mark.parametrize(
    ("body", "said"), [("1 / 0", "ZeroDivisionError"), ("import os; os._exit(7)", "status 7")]
)
def test_a_child_that_fails_says_so(tmp_path: Path, body: str, said: str) -> None:
    script = tmp_path / "bad.py"
    script.write_text(body, encoding="utf-8")
    with pytest.raises(WorkloadError, match=said):
        audit_in_child([str(script)], steps=None, skip=None)
