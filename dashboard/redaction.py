"""Takes out of records what tells who ran them and where: hosts, users, paths, commands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.record.attachments import ArmAudit
    from harness.record.records import RunRecord

REDACTED = "(redacted)"

_HOME = re.compile(r"(?:/home/|/Users/|[\\/]Users[\\/]|/export/home/|~)([A-Za-z0-9._-]{2,})")
_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")
_POSIX_PATH = re.compile(r"(?<![\w.:/])~?[\w.-]{0,32}(?:/[^\s/'\"<>:,;()]+){2,}/?")
_WINDOWS_PATH = re.compile(r"(?:\b[A-Za-z]:|\\)(?:[\\/][^\s\\/'\"<>:,;()]+)+")

T = TypeVar("T")


def redacted_run(record: RunRecord) -> RunRecord:
    """The same run without host name, user names, paths and command."""
    names = _names(record)
    machine = msgspec.structs.replace(record.machine, hostname=REDACTED)
    bare = msgspec.structs.replace(record, machine=machine, command=REDACTED)
    return _scrubbed(bare, type(record), names)


def redacted_audits(record: RunRecord, audits: Sequence[ArmAudit]) -> tuple[ArmAudit, ...]:
    """Audits of this run; of a source file its name is left, without its folders."""
    names = _names(record) | _users(audit.report.target for audit in audits)
    return tuple(_scrubbed(audit, type(audit), names) for audit in audits)


def scrub(text: str, names: Iterable[str] = ()) -> str:
    """Text without paths and addresses, and without these names; a file keeps its own name."""
    text = _URL.sub(REDACTED, text)
    text = _WINDOWS_PATH.sub(lambda m: re.split(r"[\\/]", m[0].rstrip("\\/"))[-1], text)
    text = _POSIX_PATH.sub(_file_name, text)
    for name in names:
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", REDACTED, text)
    return text


def _file_name(match: re.Match[str]) -> str:
    path = match[0]
    # `a/b/c` is a path only from a root or a home; `fwd/bwd/opt` is not.
    return path.rstrip("/").rsplit("/", 1)[-1] if path[0] in "/~." else path


def _names(record: RunRecord) -> set[str]:
    host = record.machine.hostname
    names = {host, host.split(".", 1)[0]} if len(host) > 2 else set()
    return names | _users(
        (record.command, record.scenario.weights, record.reason or "", *record.notes)
    )


def _users(texts: Iterable[str]) -> set[str]:
    return {name for text in texts for name in _HOME.findall(text)}


def _scrubbed(value: Any, kind: type[T], names: set[str]) -> T:
    return msgspec.convert(_walk(msgspec.to_builtins(value), sorted(names)), kind)


def _walk(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, str):
        return scrub(value, names)
    if isinstance(value, dict):
        return {_walk(key, names): _walk(item, names) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_walk(item, names) for item in value]
    return value
