"""Audits of Kineto traces: CUDA and ROCm, 2021 to today."""

from __future__ import annotations

from harness.audit.trace.annotate import annotate
from harness.audit.trace.hta_numbers import HtaNumbers, compat_hta
from harness.audit.trace.limits import TraceLimits
from harness.audit.trace.trace_files import audit_trace
from harness.audit.trace.trace_pair import AuditComparison, Compared, compare_audits

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
