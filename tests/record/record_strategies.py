"""Run files as hypothesis draws them: any that the schema allows, likely or not."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from msgspec import inspect

from harness.record.records import RunRecord

ODD_TEXT = st.sampled_from(
    [
        "",
        "a",
        "baseline",
        "batch",
        "2026-01-02T03:04:05Z",
        "\x1b[2J\u202e\n",
        "<b>|`",
        "/home/eve/x",
    ]
)
ODD_INTEGERS = st.sampled_from([0, 1, 2, 7, -1, 2**31, 2**53 + 1, -(2**63), 2**64 - 1])
ODD_NUMBERS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.3, 2e3, 5e-324, 1e-300, 1e99, -1e99, 3])
TOO_LARGE = st.sampled_from([2**64, -(2**63) - 1, 10**40, 1e101, -1e308])
"""Numbers that decode and that no record may hold."""


def documents_of(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """What JSON may hold where the schema says `kind`."""
    match kind:
        case inspect.StructType():
            fields = {field.encode_name: documents_of(field.type) for field in kind.fields}
            optional = {field.encode_name for field in kind.fields if not field.required}
            return st.fixed_dictionaries(
                {name: value for name, value in fields.items() if name not in optional},
                optional={name: value for name, value in fields.items() if name in optional},
            )
        case inspect.VarTupleType():
            return st.lists(documents_of(kind.item_type), max_size=3)
        case inspect.TupleType():
            return st.tuples(*map(documents_of, kind.item_types)).map(list)
        case inspect.DictType():
            return st.dictionaries(ODD_TEXT, documents_of(kind.value_type), max_size=3)
        case inspect.UnionType():
            return st.one_of(*map(documents_of, kind.types))
        case inspect.LiteralType():
            return st.sampled_from(kind.values)
        case inspect.StrType():
            return ODD_TEXT
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return ODD_INTEGERS
        case inspect.FloatType():
            return ODD_NUMBERS
        case inspect.NoneType():
            return st.none()
    raise TypeError(f"no strategy for {kind}")


def run_documents(run_id: str) -> st.SearchStrategy[dict[str, Any]]:
    """Documents of a run by that name whose samples take no byte."""
    fixed = {"id": run_id, "schema": 1, "samples_bytes": 0}
    return documents_of(inspect.type_info(RunRecord)).map(lambda found: {**found, **fixed})


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | ODD_INTEGERS | ODD_NUMBERS | TOO_LARGE | ODD_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXT, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def bent(draw: st.DrawFn, good: dict[str, Any]) -> bytes:
    """A good document with some values replaced or left out, and maybe cut or overwritten."""
    document = json.loads(json.dumps(good))
    for _ in range(draw(st.integers(1, 3))):
        place: Any = document
        while place:
            keys = sorted(place) if isinstance(place, dict) else range(len(place))
            key = draw(st.sampled_from(list(keys)))
            if isinstance(place[key], dict | list) and draw(st.booleans()):
                place = place[key]
                continue
            if draw(st.booleans()):
                place[key] = draw(JSON_VALUES)
            else:
                del place[key]
            break
    text = json.dumps(document).encode()
    at = draw(st.integers(0, len(text)))
    how = draw(st.sampled_from(["whole", "whole", "cut", "overwritten"]))
    if how == "cut":
        return text[:at]
    if how == "overwritten":
        return text[:at] + draw(st.binary(max_size=8)) + text[at + 1 :]
    return text
