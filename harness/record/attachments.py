"""What a run may store beside its record: audits of its arms, and their traces."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from harness.boundary.foreign_text import one_line, visible_struct
from harness.record.audit_report import AuditReport
from harness.record.records import Record
from harness.record.soundness import unsound

if TYPE_CHECKING:
    from collections.abc import Sequence

AUDITS_FILE = "audits.json"
MAX_AUDITS_BYTES = 32 << 20
MAX_TRACE_BYTES = 256 << 20


class ArmAudit(Record, frozen=True, kw_only=True):
    """The audit of one arm's step."""

    arm: str
    report: AuditReport


@dataclass
class Attachments:
    """What one run stores beside its record; filled while the run goes on."""

    audits: list[ArmAudit] = field(default_factory=list)
    traces: dict[str, bytes] = field(default_factory=dict)
    """Arm -> gzipped Kineto trace of its inspected steps."""


def trace_file(position: int) -> str:
    """Name of the trace of the arm at `position` in `RunRecord.traced_arms`."""
    return f"trace-{position}.json.gz"


def encode_audits(audits: Sequence[ArmAudit]) -> bytes:
    """The bytes of `audits.json`."""
    return msgspec.json.encode(audits)


def decode_audits(content: bytes) -> tuple[ArmAudit, ...]:
    """Read what `encode_audits` wrote. Raises `ValueError` on anything else."""
    try:
        audits = _DECODER.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"it holds something else than audits ({one_line(str(error))})") from error
    if not audits:
        raise ValueError("it holds no audit")
    wrong = unsound(msgspec.to_builtins(audits), "audits")
    if wrong is not None:
        raise ValueError(one_line(wrong))
    return visible_struct(audits)


_DECODER = msgspec.json.Decoder(tuple[ArmAudit, ...])
