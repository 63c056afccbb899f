"""`gapless.audit` as a block and as a decorator, what it shows, and what it leaves behind."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

import gapless
from harness.errors import UsageError

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="audits are live on a machine with a GPU"
)


def build() -> Any:
    model = torch.nn.Linear(4, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        x = torch.ones(2, 4, device="cuda")
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with gapless.allow_sync("the progress bar"):
            loss.item()
        if loss > 0:
            pass

    return step


def test_a_block_counts_by_line_and_lists_intended_waits_apart() -> None:
    with gapless.audit() as a:
        build()()
    assert a.report.syncs_per_step == 1
    (site,) = a.report.sites
    assert (site.kind, site.code, site.function) == (
        "bool_branch",
        "if loss > 0:",
        "build.<locals>.step",
    )
    reasons = {site.intended for site in a.report.intended}
    assert reasons == {"the progress bar", "the model moves to the device"}


def test_a_model_that_moves_again_is_counted() -> None:
    model = torch.nn.Linear(4, 4)
    with gapless.audit() as a:
        model.cuda()
        model.cpu()
        model.cuda()
    assert sum(s.count_per_step for s in a.report.sites if s.kind == "pageable_h2d") == 2


def test_all_steps_of_a_block_are_averaged() -> None:
    with gapless.audit() as a:
        step = build()
        for _ in range(3):
            step()
    assert (a.report.steps, a.report.syncs_per_step) == (3, 1)


def test_a_step_that_a_scaler_skips_is_a_step() -> None:
    with gapless.audit() as a:
        model = torch.nn.Linear(4, 4).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for factor in (1.0, float("inf"), 1.0):
            loss = model(torch.ones(2, 4, device="cuda")).sum() * factor
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert a.report.steps == 3
    assert {site.kind: site.count_per_step for site in a.report.sites} == {"found_inf_read": 1}


def test_steps_without_an_optimizer_are_marked_by_hand() -> None:
    with gapless.audit() as a:
        for _ in range(4):
            torch.ones(2, device="cuda").sum().item()
            a.step()
    assert (a.report.steps, a.report.syncs_per_step) == (4, 1)


def test_a_decorated_function_is_audited_for_so_many_calls_and_then_left_alone() -> None:
    steps: list[Any] = []

    @gapless.audit(steps=2, skip=1)
    def train() -> bool:
        if not steps:
            steps.append(build())
        steps[0]()
        torch.ones(2, device="cuda")
        return torch.cuda.is_available()

    assert [train() for _ in range(3)] == [True, True, True]
    assert not torch.cuda.is_available()
    assert (train.audit.report.steps, train.audit.report.syncs_per_step) == (2, 1)  # type: ignore[attr-defined]


def test_asking_for_the_report_ends_a_decorated_audit() -> None:
    @gapless.audit(steps=5)
    def read() -> None:
        torch.ones(2, device="cuda").sum().item()

    read()
    assert read.audit.report.syncs_per_step == 1  # type: ignore[attr-defined]
    assert not torch.cuda.is_available()


def test_what_the_step_raises_passes_through_and_nothing_stays() -> None:
    before = torch.nn.Module.__call__, torch.Tensor.to, torch.cuda.is_available

    def divide() -> None:
        torch.ones(2, device="cuda").sum().item()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), gapless.audit():
        divide()
    assert before == (torch.nn.Module.__call__, torch.Tensor.to, torch.cuda.is_available)

    @gapless.audit(steps=3)
    def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert before == (torch.nn.Module.__call__, torch.Tensor.to, torch.cuda.is_available)


def test_text_frame_json_and_notebook_show_the_same_sites() -> None:
    with gapless.audit() as a:
        build()()
    text = str(a)
    assert "1 step, 1 sync per step" in text
    assert "if loss > 0:" in text
    assert "the progress bar" in text
    frame = a.to_frame()
    assert list(frame["kind"]) == ["bool_branch"]
    document = json.loads(a.to_json())
    assert document["syncs_per_step"] == 1
    assert document["sites"][0]["code"] == "if loss > 0:"
    assert "if loss &gt; 0:" in a._repr_html_()


def test_an_empty_frame_has_its_columns() -> None:
    with gapless.audit() as a:
        torch.ones(2, device="cuda")
    assert "count_per_step" in a.to_frame().columns
    assert "Nothing makes the host wait." in str(a)


def test_a_step_on_the_cpu_says_why_nothing_was_found() -> None:
    with gapless.audit() as a:
        torch.ones(2).sum().item()
    assert "Nothing ran on the emulated GPU" in str(a)


def test_misuse_says_what_to_do() -> None:
    with pytest.raises(UsageError, match="choose auto, gpu or emulated"):
        gapless.audit(on="tpu")  # type: ignore[arg-type]
    with gapless.audit() as a:
        with pytest.raises(UsageError, match="after the `with` block"):
            _ = a.report
        with pytest.raises(UsageError, match="do not nest"), gapless.audit():
            pass
        with pytest.raises(UsageError, match="runs on the emulated"), gapless.audit(on="gpu"):
            pass
    with pytest.raises(UsageError, match="inside the `with` block"):
        a.step()
    with pytest.raises(UsageError, match="has none"), gapless.audit(on="gpu"):
        pass
    with pytest.raises(UsageError, match="no GPU named"), gapless.audit(gpu="H1000"):
        pass


def test_audits_in_one_process_leave_no_hooks_and_no_memory() -> None:
    import gc
    import resource

    from torch.optim import optimizer

    def once() -> None:
        with gapless.audit():
            build()()

    for _ in range(5):
        once()
    gc.collect()
    hooks = len(optimizer._global_optimizer_pre_hooks), len(optimizer._global_optimizer_post_hooks)
    objects = len(gc.get_objects())
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(40):
        once()
    gc.collect()
    after = len(optimizer._global_optimizer_pre_hooks), len(optimizer._global_optimizer_post_hooks)
    assert after == hooks
    assert len(gc.get_objects()) - objects < 40 * 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kb < 30_000


def test_the_callback_answers_every_event_of_a_trainer_and_waits_for_a_gpu() -> None:
    callback = gapless.SyncAuditCallback(steps=1, skip=0)
    for event in ("on_init_end", "on_train_begin", "on_log", "on_save", "on_fit_start", "setup"):
        assert getattr(callback, event)(None, None, None) is None
    callback.on_step_begin(None, None, None)
    callback.on_step_end(None, None, None)
    callback.on_train_end()
    assert callback.report is None
    assert not hasattr(callback, "no_such_event")


def test_a_decorator_without_parentheses_counts_the_first_call() -> None:
    @gapless.audit
    def step() -> float:
        return float(torch.ones(2, device="cuda").sum())

    assert step() == 2.0
    assert step.audit.report.syncs_per_step == 1


def test_a_notebook_gets_the_text_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    with gapless.audit() as audit:
        torch.ones(2, device="cuda").sum().item()
    assert "1 sync per step" in str(audit)
    assert "1 sync per step" in audit._repr_html_()
    assert capsys.readouterr().out == ""


def test_code_without_a_file_gets_its_findings() -> None:
    source = "def step():\n    torch.ones(4, device='cuda').sum().item()\n"
    scope = {"torch": torch}
    exec(source, scope)
    audited = gapless.audit(steps=2)(scope["step"])
    for _ in range(2):
        audited()
    assert [f.kind for f in audited.audit.report.findings] == ["rebuilt-metadata", "scalar-read"]
