"""Registers the device once per process under PyTorch's PrivateUse1 key.

PyTorch offers no way to take the registration back, so it is made at the first audit and kept; the
hook says that no such device is available while no audit is running, so that
`torch.accelerator.is_available()` answers as before.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.utils import backend_registration

from harness.emulator.cuda import backward_errors
from harness.errors import UsageError

BACKEND_NAME = "gaplessgpu"


_PRIVATE_USE = torch._C._autograd.DeviceType.PrivateUse1


class _State:
    """What the registered objects answer; changed only by `set_available`."""

    available = False


class _Hooks(torch._C._acc.PrivateUse1Hooks):
    def is_available(self) -> bool:
        return _State.available

    def has_primary_context(self, device_index: int) -> bool:
        return _State.available

    def is_built(self) -> bool:
        return _State.available


class _DeviceGuard(torch._C._acc.DeviceGuard):
    def type_(self) -> Any:
        # The engine asks this while it unwinds from an error, with the error still set; a call that
        # returns in that state aborts the process. So the error is put aside first.
        backward_errors.put_aside()
        return _PRIVATE_USE


class _DeviceModule:
    """What torch asks of `torch.<backend>`; user code asks `torch.cuda` instead."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return _State.available

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1 if _State.available else 0

    def _is_in_bad_fork(self) -> bool:
        return False

    def _lazy_init(self) -> None:
        return None

    def manual_seed_all(self, seed: int) -> None:
        """The one generator is the CPU's, seeded by torch itself."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)

    def set_device(self, device: Any) -> None:
        """There is one device."""


@cache
def emulated_device() -> torch.device:
    """The PrivateUse1 device, registered at the first call.

    Raises `UsageError` where another backend holds the slot.
    """
    name = torch._C._get_privateuse1_backend_name()
    if name != "privateuseone":
        raise UsageError(
            f"The emulated device needs PyTorch's PrivateUse1 slot, which {name!r} already holds "
            "in this process; run the audit in a process that does not import that backend."
        )
    backend_registration._setup_privateuseone_for_python_backend(
        rename=BACKEND_NAME,
        backend_module=_DeviceModule(),
        hook=_Hooks(),
        device_guard=_DeviceGuard(),
    )
    return torch.device(BACKEND_NAME, 0)


def set_available(available: bool) -> None:
    """Say whether the device can be used now."""
    _State.available = available
