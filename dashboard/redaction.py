"""Records for others to see: only what an export needs is kept, everything else is dropped.

Each text of a record, an audit or a timeline is judged by a rule for its field, and a field without
a rule is dropped; so a field that a later version adds stays at home until somebody decides. Kept
are figures, the names of models, GPUs, scenarios, arms and fixes where they look like such names,
places in public libraries, of own files the name without its folder, and sentences of gapless.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import inspect

from dashboard.redaction_rules import REDACTED, RULES, Rule, arm, dropped, name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.record.attachments import ArmAudit
    from harness.record.records import RunRecord, Sample

S = TypeVar("S", bound=msgspec.Struct)


@dataclass(frozen=True)
class Known:
    """What is shown whatever its form."""

    public: frozenset[str]
    """Texts that everybody knows."""
    arms: Mapping[str, str]
    """Arm -> its name, or its number where the name is not for showing."""


_RUN_ID = re.compile(r"(\d{8}T\d{6}Z)-(.*)-([0-9a-f]{6})")


def redacted_run(record: RunRecord, public: frozenset[str] = frozenset()) -> RunRecord:
    """The same run without what tells who ran it and where.

    `public` holds texts that are known to everybody, such as the published claims; they are kept.
    """
    shown = redacted(record, _known(record, public))
    return msgspec.structs.replace(shown, id=_run_id(record.id, shown))


def redacted_audits(
    record: RunRecord, audits: Sequence[ArmAudit], public: frozenset[str] = frozenset()
) -> tuple[ArmAudit, ...]:
    """Audits of this run; of a source file its name is left, without its folders."""
    known = _known(record, public)
    return tuple(redacted(audit, known) for audit in audits)


def redacted_samples(record: RunRecord, samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Samples of this run, their arms named as `redacted_run` names them."""
    known = _known(record, frozenset())
    names = {t: known.arms.get(t) or arm(t) or REDACTED for t in {s.arm for s in samples}}
    return tuple(msgspec.structs.replace(s, arm=names[s.arm]) for s in samples)


def redacted(value: S, known: Known) -> S:
    """Any struct of a record, an audit or a timeline, field by field."""
    changes = {
        field.name: _judged(
            getattr(value, field.name),
            field.type,
            RULES.get((type(value).__name__, field.name), dropped),
            known,
        )
        for field in _fields(type(value))
    }
    return msgspec.structs.replace(value, **changes)


def _known(record: RunRecord, public: frozenset[str]) -> Known:
    arms = dict.fromkeys(one.name for one in record.arms)
    return Known(public, {t: arm(t) or f"arm {n}" for n, t in enumerate(arms, start=1)})


def _judged(value: Any, kind: inspect.Type, rule: Rule, known: Known) -> Any:
    if isinstance(value, msgspec.Struct):
        return redacted(value, known)
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        if value in known.public or value in _words(kind):
            return value
        shown = known.arms.get(value) if rule is arm else None
        shown = shown or rule(value)
        # A field that must hold text says that something was there.
        return shown if shown is not None or _may_be_none(kind) else REDACTED
    if isinstance(value, tuple):
        inner = kind.item_type if isinstance(kind, inspect.VarTupleType) else inspect.AnyType()
        judged = [_judged(item, inner, rule, known) for item in value]
        return tuple(item for item in judged if item is not None and item != REDACTED)
    if isinstance(value, dict):
        pairs = {_judged(key, kind, rule, known): item for key, item in value.items()}
        pairs.pop(REDACTED, None)
        return {key: _judged(item, kind, rule, known) for key, item in pairs.items()}
    return value


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    return found.fields


def _words(kind: inspect.Type) -> tuple[Any, ...]:
    """The texts of a field that may hold only these."""
    if isinstance(kind, inspect.UnionType):
        return tuple(word for one in kind.types for word in _words(one))
    return tuple(kind.values) if isinstance(kind, inspect.LiteralType) else ()


def _may_be_none(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.UnionType) and any(
        isinstance(one, inspect.NoneType) for one in kind.types
    )


def _run_id(run_id: str, shown: RunRecord) -> str:
    """The id, made of the names that are left where its own are not for showing."""
    parts = _RUN_ID.fullmatch(run_id)
    if parts is None:
        return "run"
    if name(parts[2].replace("_", "-")) is not None:
        return run_id
    slug = re.sub(r"[^a-z0-9._]+", "-", f"{shown.scenario.name}-{shown.machine.device}".lower())
    return f"{parts[1]}-{slug.strip('-')}-{parts[3]}"
