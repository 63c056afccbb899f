"""Audits that end badly, or run beside other work, leave everything as it was."""

from __future__ import annotations

import signal
import threading
from types import FunctionType
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from harness.audit.emulated.emulated_audit import EmulatedAudit, audit_callable
from harness.emulator.cuda.safe_interrupts import interrupts_at_safe_places
from harness.emulator.device import EmulatedDevice, active_device
from harness.emulator.tensors import device_memory as memory
from harness.errors import UsageError
from tests.emulator.test_device import surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    # An optimizer's first step imports the rest of torch.
    layer = nn.Linear(1, 1)
    layer(torch.ones(1)).backward()
    torch.optim.AdamW(layer.parameters()).step()
    with EmulatedDevice():
        torch.zeros(1, device="cuda")
    before, handler = surroundings(), signal.getsignal(signal.SIGINT)
    yield
    assert surroundings() == before
    assert signal.getsignal(signal.SIGINT) is handler
    assert active_device() is None


def step_until(done: threading.Event) -> Callable[[], Callable[[], None]]:
    def build() -> Callable[[], None]:
        layer, x = nn.Linear(4, 4, device="cuda"), torch.rand(2, 4, device="cuda")

        def step() -> None:
            layer(x).sum().item()
            assert done.wait(30)

        return step

    return build


def test_a_second_audit_in_another_thread_is_refused_and_the_first_goes_on() -> None:
    tried = threading.Event()
    refused: list[BaseException] = []

    def second() -> None:
        try:
            audit_callable(step_until(tried), build=True)
        except UsageError as error:
            refused.append(error)
        tried.set()

    def build() -> Callable[[], None]:
        threading.Thread(target=second).start()
        return step_until(tried)()

    assert audit_callable(build, build=True).syncs_per_step == 1
    assert "do not nest" in str(refused[0])


def test_cpu_work_in_another_thread_is_left_alone() -> None:
    stop, steps, failed = threading.Event(), [0], []

    def work() -> None:
        layer = nn.Linear(4, 4)
        optimizer = torch.optim.AdamW(layer.parameters())
        try:
            while not stop.is_set():
                layer(torch.rand(2, 4)).prod().backward()
                optimizer.step()
                steps[0] += 1
        except BaseException as error:
            failed.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        done = threading.Event()
        done.set()
        assert audit_callable(step_until(done), build=True).syncs_per_step == 1
    finally:
        stop.set()
        worker.join()
    assert not failed
    assert steps[0]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, StopIteration])
@pytest.mark.parametrize("place", ["tensor", "accumulate", "module", "unpack"])
def test_errors_in_backward_hooks(place: str, kind: type[BaseException]) -> None:
    error = kind()

    def fail(*_: Any) -> Any:
        raise error

    def run() -> None:
        layer = nn.Linear(3, 3, device="cuda")
        x = torch.rand(2, 3, device="cuda", requires_grad=True)
        if place == "accumulate":
            layer.weight.register_post_accumulate_grad_hook(fail)
        if place == "module":
            layer.register_full_backward_hook(fail)
        unpack = fail if place == "unpack" else lambda saved: saved
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, unpack):
            out = layer(x)
        if place == "tensor":
            out.register_hook(fail)
        out.sum().backward()

    with pytest.raises(kind) as caught, EmulatedAudit(boundary="explicit"):
        run()
    assert caught.value is error


@pytest.mark.parametrize("end", ["close", "forget"])
def test_a_generator_that_holds_an_audit(end: str) -> None:
    def steps() -> Iterator[None]:
        with EmulatedAudit(boundary="explicit") as audit:
            layer = nn.Linear(3, 3, device="cuda")
            while True:
                layer(torch.rand(2, 3, device="cuda")).sum().backward()
                audit.mark_step()
                yield

    running = steps()
    next(running)
    assert active_device() is not None
    if end == "close":
        running.close()
    del running
    assert active_device() is None


def interrupt_inside() -> str:
    signal.raise_signal(signal.SIGINT)
    return "went on"


def test_an_interrupt_comes_after_code_that_cannot_take_it() -> None:
    # As if it stood in the module of storages, whose finalisers would lose the interrupt.
    inside = FunctionType(
        interrupt_inside.__code__, {"__name__": memory.__name__, "signal": signal}
    )
    released = threading.Event()
    release = threading.Timer(20, released.set)
    release.start()
    with pytest.raises(KeyboardInterrupt), interrupts_at_safe_places():  # noqa: PT012
        assert inside() == "went on"
        released.wait()
    release.cancel()
    assert not released.is_set(), "the interrupt came only once the wait was over"
    with pytest.raises(KeyboardInterrupt), interrupts_at_safe_places():
        interrupt_inside()
