"""The code that a finding gives instead is made for the statement at its place."""

from __future__ import annotations

import runpy
from typing import TYPE_CHECKING

import pytest
import torch

from harness.audit.emulated.emulated_audit import EmulatedAudit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.record.finding import Finding


def findings_at(code: str, tmp_path: Path) -> list[Finding]:
    """Findings of a file with this function, `step(state)`, called with tensors on the device."""
    file = tmp_path / "written.py"
    file.write_text(f"import torch\n\n{code}")
    scope = runpy.run_path(str(file))

    def build() -> Callable[[], object]:
        state = {
            "loss": torch.ones((), device="cuda", requires_grad=True) * 2,
            "rows": torch.randn(4, 3, device="cuda", requires_grad=True) * 2,
            "mask": torch.tensor([True, False, True, False], device="cuda"),
            "parts": [torch.randn(2, device="cuda") for _ in range(3)],
        }
        return lambda: scope["step"](state)

    with EmulatedAudit(boundary="explicit", user_files=(str(file),)) as running:
        step = build()
        returned = step()
        running.mark_step()
        del returned
    return [f for f in running.report.findings if f.file == str(file)]


ADVICE = {
    "a check that raises": (
        "def step(s):\n    if not torch.isfinite(s['loss']): raise RuntimeError('diverged')\n",
        "failed |= ~torch.isfinite(s['loss'])  # a flag on the device",
    ),
    "an assertion": (
        "def step(s):\n    assert torch.isfinite(s['loss'])\n",
        "failed |= ~torch.isfinite(s['loss'])  # a flag on the device",
    ),
    "a loop that ends early": (
        "def step(s):\n    for t in range(3):\n        if s['loss'].item() > 9 or t > 7: break\n",
        "if t % 8 == 7 and (s['loss'].item() > 9 or t > 7): ...  # in every eighth iteration",
    ),
    "a line that is printed": (
        "def step(s):\n    return f\"loss {s['loss'].item():.3f}\"\n",
        "    return f\"loss {s['loss'].item():.3f}\"",
    ),
    "the same value read twice": (
        "def step(s):\n    best = s['loss'].item()\n    return best, s['loss'].item()\n",
        "best = s['loss'].detach()",
    ),
    "rows written by a mask": (
        "def step(s):\n    s['rows'][s['mask']] = s['rows'].mean()\n    return s\n",
        "s['rows'] = torch.where(s['mask'], s['rows'].mean(), s['rows'])",
    ),
    "several small copies": (
        "def step(s):\n    load = [part.tolist() for part in s['parts']]\n    return load\n",
        "load = torch.stack([part for part in s['parts']]).tolist()",
    ),
    "data computed in each step": (
        "def step(s):\n    x = torch.tensor(list(range(3)), device='cuda')\n    return x * 2\n",
        "x = torch.tensor(list(range(3))).pin_memory().to('cuda', non_blocking=True)",
    ),
    "a copy inside of more": (
        "def step(s):\n    s = {'loss': s['loss'].detach().cpu()}\n",
        "# drop the copy, and keep the rest of: s = {'loss': s['loss'].detach().cpu()}",
    ),
}


@pytest.mark.parametrize(("code", "line"), ADVICE.values(), ids=ADVICE)
def test_the_advice_is_made_for_the_statement(code: str, line: str, tmp_path: Path) -> None:
    findings = findings_at(code, tmp_path)
    assert any(line in finding.instead for finding in findings), [f.instead for f in findings]
    assert "rebuilt-metadata" not in {finding.kind for finding in findings}


def test_a_mask_without_a_gradient_is_not_said_to_have_one(tmp_path: Path) -> None:
    (forward,) = findings_at("def step(s):\n    return s['rows'][s['mask']]\n", tmp_path)
    assert "gradient" not in forward.why
    trained = "def step(s):\n    s['rows'].detach().requires_grad_()[s['mask']].sum().backward()\n"
    (both,) = findings_at(trained, tmp_path)
    assert "the gradient does it again" in both.why
