"""Find, fix and prove coordination overhead in PyTorch training.

Public names load on first use, so that `import gapless` costs a few milliseconds and no torch.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.auditing import Audit as Audit
    from gapless.auditing import SyncAuditCallback as SyncAuditCallback
    from gapless.auditing import audit as audit
    from gapless.bench_run import bench as bench
    from gapless.optimizing import Optimized as Optimized
    from gapless.optimizing import optimize as optimize
    from harness.audit.emulated.intended import allow_sync as allow_sync
    from harness.errors import GaplessError as GaplessError
    from harness.record.audit_report import AuditReport as AuditReport
    from harness.record.records import RunRecord as RunRecord
    from harness.record.store import Store as Store
    from harness.workload import PackedDocuments as PackedDocuments

__version__ = "0.1.0"
__all__ = [
    "Audit",
    "AuditReport",
    "GaplessError",
    "Optimized",
    "PackedDocuments",
    "RunRecord",
    "Store",
    "SyncAuditCallback",
    "allow_sync",
    "audit",
    "bench",
    "optimize",
]

_MODULE_OF = {
    "Audit": "gapless.auditing",
    "AuditReport": "harness.record.audit_report",
    "GaplessError": "harness.errors",
    "Optimized": "gapless.optimizing",
    "PackedDocuments": "harness.workload",
    "RunRecord": "harness.record.records",
    "Store": "harness.record.store",
    "SyncAuditCallback": "gapless.auditing",
    "allow_sync": "harness.audit.emulated.intended",
    "audit": "gapless.auditing",
    "bench": "gapless.bench_run",
    "optimize": "gapless.optimizing",
}


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'gapless' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})


def _check_siblings() -> None:
    """The packages beside this one have generic names; refuse another project's in their place."""
    home = Path(__file__).resolve().parent.parent
    for name in ("harness", "optimizations", "scenarios", "dashboard"):
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise ImportError(
                f"gapless needs its package {name!r} beside it in {home}, and it is not there; "
                "install gapless again."
            )
        found = Path((spec.submodule_search_locations or [spec.origin or ""])[0]).resolve()
        if found != home / name:
            raise ImportError(
                f"gapless needs its own package {name!r} in {home}, but Python finds {found} "
                "first; rename or move that one, or run from another folder."
            )


_check_siblings()
