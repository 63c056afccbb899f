"""Inputs beside the checkout that once gave wrong answers: code for CUDA runs, and is counted."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.audit.emulated.emulated_audit import audit_target
from harness.audit.emulated.emulated_script import audit_script

if TYPE_CHECKING:
    from harness.record.audit_report import AuditReport

FOLDER = Path(__file__).parents[3] / "shared" / "faults" / "audit"
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="the folder with the shared faults is not beside the checkout"
)
MODES = pytest.mark.parametrize("mode", ["values", "shapes"])

RIGHT = {
    "fail_01": 0, "fail_02": 2, "fail_04": 1, "fail_05": 1, "fail_06": 1, "fail_07": 0,
    "more_01": 1, "more_03": 8, "more_05": 0, "r07_compiled_block_with_tolist": 3,
    "r18_fsdp2_clip_and_log": 1, "r19b_ddp_plain": 0, "r21b_empty_like_pinned": 0,
    "r29_host_buffers_like_grads": 4,
}  # fmt: skip
"""File -> syncs of a step. `fail_02` saves and loads in one of its two steps: 4 in all."""


def audited(name: str, mode: Any) -> AuditReport:
    path = FOLDER / f"{name}.py"
    if "\ndef build(" in path.read_text(encoding="utf-8"):
        return audit_target(f"{path}:build", mode=mode)
    return audit_script(str(path), mode=mode)


@MODES
@pytest.mark.parametrize("name", RIGHT)
def test_the_count_is_right(name: str, mode: str) -> None:
    report = audited(name, mode)
    assert report.syncs_per_step == RIGHT[name]
    assert "gaplessgpu" not in repr(report)


@MODES
def test_sites_are_where_they_belong(mode: str) -> None:
    host_buffers = audited("r29_host_buffers_like_grads", mode)
    assert [site.code for site in host_buffers.sites] == ["b.copy_(p.grad)"]
    compiled = audited("r07_compiled_block_with_tolist", mode)
    assert {site.code for site in compiled.sites} == {
        "for n in sizes.tolist():",
        "if (h.abs().amax() > 1e4):",
        "return loss.item()",
    }


@MODES
@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type:UserWarning")
def test_surfaces_that_raised_raise_no_more(mode: Any) -> None:
    said = io.StringIO()
    with redirect_stdout(said):
        audit_script(str(FOLDER / "fail_08.py"), mode=mode)
    assert said.getvalue() == ""
