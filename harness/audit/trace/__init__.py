"""Audits of Kineto traces: CUDA and ROCm, 2021 to today."""

from __future__ import annotations

from harness.audit.trace.annotate import annotate
from harness.audit.trace.compare import AuditComparison, Compared, compare_audits
from harness.audit.trace.compat import HtaNumbers, compat_hta
from harness.audit.trace.entry import audit_trace
from harness.audit.trace.limits import TraceLimits

__all__ = [
    "AuditComparison",
    "Compared",
    "HtaNumbers",
    "TraceLimits",
    "annotate",
    "audit_trace",
    "compare_audits",
    "compat_hta",
]
