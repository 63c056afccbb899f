"""Advice drops what waits and nothing else: no call with effects, no library's line."""

from __future__ import annotations

import ast
import linecache
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from harness.audit.emulated.emulated_audit import EmulatedAudit
from harness.findings.effects import CALCULATIONS, effects
from harness.findings.finding_catalogue import with_findings
from harness.findings.statement import statement_at
from harness.record.audit_report import AuditReport, Site
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.finding import Finding


def findings_at(code: str, file: Path, step: str = "step") -> list[Finding]:
    """What an audit finds in `file` when its function `step` has run once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(code)
    linecache.checkcache(str(file))
    scope: dict[str, Any] = {"torch": torch, "nn": nn}
    exec(compile(code, str(file), "exec"), scope)
    with EmulatedAudit(boundary="explicit", user_files=(str(file),)) as running:
        running.record(False)
        model = nn.Linear(4, 4).cuda()
        model(torch.ones(2, 4, device="cuda")).sum().backward()
        state = {
            "model": model,
            "parameters": list(model.parameters()),
            "hist": torch.zeros(3, device="cuda"),
            "loss": torch.ones((), device="cuda"),
        }
        running.record(True)
        scope[step](state)
        running.mark_step()
    return [f for f in running.report.findings if f.file == str(file)]


CLIP = "torch.nn.utils.clip_grad_norm_(s['parameters'], 1.0)"
KEPT = {
    "clipping whose norm is unused": (f"norm = {CLIP}.item()", f"{CLIP}  # the call alone"),
    "clipping whose norm is dropped": (f"{CLIP}.item()", f"{CLIP}  # the call alone"),
    "an update in place": ("s['hist'].add_(1).cpu()", "s['hist'].add_(1)  # the call alone"),
    "an update inside of an index": (
        "x = s['hist'][s['hist'].add_(1).long()].tolist()",
        "s['hist'].add_(1)  # the call alone",
    ),
    "a forward pass": (
        "out = s['model'](torch.ones(2, 4, device='cuda')).detach().cpu()",
        "s['model'](torch.ones(2, 4, device='cuda'))  # the call alone",
    ),
    "a name bound on the way": (
        "(h := s['hist'] + 1).cpu(); s['h'] = h",
        "(h := (s['hist'] + 1))  # the call alone",
    ),
    "nothing but a copy": ("s['hist'].detach().cpu()", "# delete: s['hist'].detach().cpu()"),
    "a name nobody reads": ("x = s['loss'].item()", "# delete: x = s['loss'].item()"),
}


@pytest.mark.parametrize(("line", "expected"), KEPT.values(), ids=KEPT)
def test_what_a_line_does_besides_its_read_goes_on(
    line: str, expected: str, tmp_path: Path
) -> None:
    findings = findings_at(f"def step(s):\n    {line}\n", tmp_path / "train.py")
    (finding,) = (f for f in findings if f.kind == "unneeded-copy")
    assert finding.instead == (expected,)


READ_ELSEWHERE = {
    "a global": "def step(s):\n    global norm\n    norm = s['loss'].item()\n",
    "a closure made before": (
        "def step(s):\n    def log(): return norm\n    norm = s['loss'].item()\n    return log()\n"
    ),
    "all locals": "def step(s):\n    norm = s['loss'].item()\n    return locals()\n",
    "the same line": "def step(s):\n    norm = s['loss'].item(); s['n'] = norm\n",
    "the next turn": (
        "def step(s):\n    norm = 0\n    for _ in range(2):\n        s['n'] = norm\n"
        "        norm = s['loss'].item()\n"
    ),
}


@pytest.mark.parametrize("code", READ_ELSEWHERE.values(), ids=READ_ELSEWHERE)
def test_a_value_that_may_be_read_is_not_called_unneeded(code: str, tmp_path: Path) -> None:
    findings = findings_at(code, tmp_path / "train.py")
    assert findings
    assert all(f.kind == "scalar-read" for f in findings)


def test_a_module_that_moves_to_the_host_is_no_unneeded_copy(tmp_path: Path) -> None:
    code = "def step(s):\n    s['model'].cpu()\n    m = s['model'].to('cpu')\n"
    findings = findings_at(code, tmp_path / "train.py")
    assert findings
    assert all(f.kind == "serialized-copy" for f in findings)


STAYS = {
    "a step inside of a print": (
        'print(f\'loss {s["model"](s["hist"][:1].expand(4)).sum().item()}\')',
        "value = s['model'](s['hist'][:1].expand(4))  # in every step",
    ),
    "a test that updates": (
        "for t in range(3):\n        if s['hist'].add_(1).sum() > 99: break",
        "# call in every turn what the test calls; look at its result if t % 8 == 7",
    ),
    "a synchronise inside of a call": (
        "print(torch.cuda.synchronize())",
        "# drop the synchronise, and keep the rest of: print(torch.cuda.synchronize())",
    ),
    "a synchronise alone": (
        "torch.cuda.current_stream().synchronize()",
        "# delete: torch.cuda.current_stream().synchronize()",
    ),
    "an emptied cache inside of a choice": (
        "s['model'].zero_grad() if torch.cuda.empty_cache() else None",
        (
            "# drop empty_cache(), and keep the rest of: "
            "s['model'].zero_grad() if torch.cuda.empty_cache() else None"
        ),
    ),
    "a forward pass of data from the host": (
        "y = s['model'](torch.tensor([1.0, 2.0, 3.0, 4.0]).cuda())",
        "y = s['model'](value)",
    ),
    "a body that does more than choose": (
        "if s['loss'] > 0:\n        s['n'] = 1\n        out = 2",
        "# torch.where where a tensor depends on it; both sides are computed then",
    ),
}


@pytest.mark.parametrize(("line", "expected"), STAYS.values(), ids=STAYS)
def test_other_advice_keeps_calls_with_effects_too(
    line: str, expected: str, tmp_path: Path
) -> None:
    findings = findings_at(f"def step(s):\n    {line}\n", tmp_path / "train.py")
    assert any(expected in f.instead for f in findings), [f.instead for f in findings]


ONLY_SYNCS = {
    SyncKind.D2H_COPY: "x.cpu()",
    SyncKind.SCALAR_READ: "x.item()",
    SyncKind.PAGEABLE_H2D: "x.cuda()",
    SyncKind.EXPLICIT_SYNCHRONIZE: "torch.cuda.synchronize()",
    SyncKind.EVENT_SYNCHRONIZE: "event.synchronize()",
    SyncKind.EMPTY_CACHE: "torch.cuda.empty_cache()",
}


@pytest.mark.parametrize("where", ["user", "installed", "library of a user's line"])
@pytest.mark.parametrize(("kind", "line"), ONLY_SYNCS.items())
def test_a_line_is_deleted_only_where_it_is_the_users(
    kind: SyncKind, line: str, where: str, tmp_path: Path
) -> None:
    folder = tmp_path / "site-packages" / "transformers" if where == "installed" else tmp_path
    file = folder / "code.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"def f(x, event):\n    {line}\n")
    site = Site(
        op="aten::x",
        kind=kind,
        phase="forward",
        count_per_step=1,
        syncs_per_call=1,
        unread_per_step=1 if kind in (SyncKind.D2H_COPY, SyncKind.PAGEABLE_H2D) else None,
        file=str(file),
        line=2,
        library=f"{file}:2 f" if where == "library of a user's line" else None,
    )
    report = AuditReport(
        source="emulated", target="t", device="H100", steps=1, syncs_per_step=1, sites=(site,)
    )
    (finding,) = with_findings(report).findings
    deletes = [line for line in finding.instead if "delete" in line]
    if where == "user" and kind is not SyncKind.PAGEABLE_H2D:
        assert deletes == [f"# delete: {line}"]
    else:
        assert not deletes


EXPRESSIONS = {
    "x.detach().float().cpu()": [],
    "x[i + 1].item()": [],
    "f(x).item()": ["f(x)"],
    "x.add_(1).item()": ["x.add_(1)"],
    "f(g(x)).item() + h(y)": ["f(g(x))", "h(y)"],
    "(f(x) if a else y).item()": ["f(x) if a else y"],
    "(a or b).item()": [],
    "[f(part) for part in x]": ["[f(part) for part in x]"],
    "(lambda: f(x))": [],
    "(n := x).item()": ["(n := x)"],
    "float(f(x))": ["f(x)"],
}


@pytest.mark.parametrize(("text", "expected"), EXPRESSIONS.items())
def test_effects_are_the_outermost_calls_that_may_do_more(text: str, expected: list[str]) -> None:
    found = effects(ast.parse(text, mode="eval").body)
    assert [ast.unparse(node) for node in found] == expected


def test_a_reduction_is_no_effect_where_only_its_result_matters() -> None:
    node = ast.parse("loss.mean().item()", mode="eval").body
    assert [ast.unparse(part) for part in effects(node)] == ["loss.mean()"]
    assert not list(effects(node, CALCULATIONS))


def test_names_read_after_a_statement_leave_out_what_came_before(tmp_path: Path) -> None:
    file = tmp_path / "names.py"
    file.write_text("def f(a, b):\n    c = a\n    d = c.item()\n    return b\n")
    statement = statement_at(str(file), 3)
    assert statement is not None
    assert statement.names_read_after() == {"b"}
