"""Text of others, made harmless to read: traces, records, file names and errors may hold anything.

Everything printed goes through here. What a character would do to a terminal or to the order of a
line, such as an escape sequence, a C1 control or a change of direction, is shown as its escape.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

LONGEST_NAME = 4_000
"""Characters. Kernels of template libraries reach 3,000."""


def visible(text: str) -> str:
    """The text with every character that has no glyph as its escape; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(char if _is_shown(char) or char in "\n\t" else _escape(char) for char in text)


def visible_name(text: str) -> str:
    """The same of a name, cut where it is longer than any real one."""
    return visible(text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}...")


def one_line(text: str) -> str:
    """The same without line ends: every run of blanks is one."""
    return visible(" ".join(text.split()))


def visible_values(value: Any) -> Any:
    """Dicts, sequences and plain values with every text in them `visible`, keys as well."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible_values(key): visible_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [visible_values(item) for item in value]
    return value


def visible_struct(value: T) -> T:
    """A struct, or a tuple of structs of one type, with every text in it `visible`."""
    if isinstance(value, tuple):
        return tuple(visible_struct(item) for item in value)  # type: ignore[return-value]
    plain = msgspec.to_builtins(value)
    shown = visible_values(plain)
    return value if shown == plain else msgspec.convert(shown, type(value))


def json_text(document: object) -> str:
    """Any of our values as indented JSON, in characters that a terminal shows: the others are
    JSON's own escapes, so that a reader of JSON gets the same texts."""
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    if text.replace("\n", "").isprintable():
        return text
    # Outside of strings JSON has no such character, and inside every escape is allowed.
    return "".join(
        char if _is_shown(char) or char == "\n" else json.dumps(char)[1:-1] for char in text
    )


def _is_shown(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()
