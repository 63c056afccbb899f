"""Text that must stay text, and a way to put it into every field of a record."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)

PAYLOADS = (
    "<script>window.__hit=1</script>",
    "<img src=x onerror=window.__hit=1>",
    "</script><script>window.__hit=1</script>",
    "<a href='javascript:window.__hit=1'>x</a>",
    "[x](javascript:window.__hit=1) ![y](https://evil.example/z.png)",
    "`code` **bold** :material/bug_report: :red[x] $\\frac{1}{2}$ | cell",
    "'\"><svg/onload=window.__hit=1>",
    "%{customdata} {{7*7}} ${7*7} \u202e\u0000end",
)

# Words with a meaning of their own: an enumeration, the id that names the folder, a day.
KEPT = {
    "id", "created_utc", "status", "source", "role", "phase", "kind", "verdict", "method", "fit",
    "quantity", "times",
}  # fmt: skip


def poisoned(value: T, payload: str) -> T:
    """The same struct with the payload in front of every text, so that names stay distinct."""
    return msgspec.convert(_walk(msgspec.to_builtins(value), payload, ""), type(value))


def _walk(value: Any, payload: str, name: str) -> Any:
    if isinstance(value, str):
        return value if name in KEPT else f"{payload}{value}"
    if isinstance(value, dict):
        return {key: _walk(item, payload, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_walk(item, payload, name) for item in value]
    return value
