"""Reading text: every format gives the same documents, and every bad file says where and how."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from harness.errors import UsageError
from scenarios.document_files import Message, read_documents

CHAT = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]


def write_jsonl(path, values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return str(path)


def test_the_shipped_sample_is_varied_prose_and_chat_without_repeats():
    documents = list(read_documents(None))
    assert len(documents) >= 60
    texts = [d if isinstance(d, str) else "\n".join(m.content for m in d) for d in documents]
    assert len(set(texts)) == len(texts)
    lengths = sorted(len(text) for text in texts)
    assert lengths[0] < 150
    assert lengths[-1] > 3000
    assert any(isinstance(d, str) for d in documents)
    assert any(isinstance(d, tuple) for d in documents)
    paragraphs = [p for text in texts for p in text.split("\n") if len(p) > 80]
    assert len(set(paragraphs)) == len(paragraphs)


def test_jsonl_gives_texts_and_chats_and_skips_blank_ones(tmp_path):
    path = write_jsonl(
        tmp_path / "a.jsonl", [{"text": "one"}, {"messages": CHAT}, {"text": " "}, {"text": "é"}]
    )
    assert list(read_documents(path)) == [
        "one",
        (Message("user", "Why?"), Message("assistant", "Because.")),
        "é",
    ]


def test_parquet_gives_what_the_same_jsonl_gives(tmp_path):
    texts, chats = [{"text": "one"}, {"text": "two"}], [{"messages": CHAT}]
    for rows in (texts, chats):
        parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
        from_table = list(read_documents(str(tmp_path / "a.parquet")))
        assert from_table == list(read_documents(write_jsonl(tmp_path / "a.jsonl", rows)))


def test_text_paragraphs_are_documents_and_a_byte_order_mark_is_no_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufefffirst line\r\nsecond line\r\n\r\n\r\nnext".encode())
    assert list(read_documents(str(path))) == ["first line\nsecond line", "next"]


def test_reading_is_lazy_so_that_a_large_file_is_not_read_whole(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "good"}\nnot json\n', encoding="utf-8")
    documents = read_documents(str(path))
    assert next(documents) == "good"
    with pytest.raises(UsageError, match="line 2"):
        next(documents)


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("a.jsonl", b"", "holds no text"),
        ("a.txt", b" \n\n", "holds no text"),
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', r"line 2 is not valid JSON .*one JSON object"),
        ("a.jsonl", b'{"text": "a"}\n\n{"body": "a"}\n', r"line 3 .*its fields: body.*rename"),
        ("a.jsonl", b'{"text": 7}\n', "line 1 has neither"),
        ("a.jsonl", b"[1]\n", "line 1 is not a JSON object"),
        ("a.jsonl", b'{"messages": [{"role": "user"}]}\n', "line 1 has a message without"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', r"line 2 is not UTF-8 \(byte 11"),
        ("a.txt", b"good\n\xc3\x28\n", "line 2 is not UTF-8"),
        ("a.parquet", b"PAR1 but not really", "not a readable Parquet table"),
        ("a.parquet", b"", "not a readable Parquet table"),
        ("a.csv", b"text\na\n", "convert it to .jsonl, .parquet or .txt"),
        ("noend", b"a", "no suffix"),
    ],
)
def test_a_bad_file_is_named_with_its_line_and_the_mend(tmp_path, name, content, wanted):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UsageError, match=wanted) as caught:
        list(read_documents(str(path)))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_a_folder_and_a_foreign_table_are_named(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        list(read_documents(str(tmp_path / "none.jsonl")))
    with pytest.raises(UsageError, match="is a folder"):
        list(read_documents(str(tmp_path)))
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.Table.from_pylist([{"body": "a"}]), path)
    with pytest.raises(UsageError, match="no column `text` or `messages`, only body"):
        list(read_documents(str(path)))
    parquet.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    with pytest.raises(UsageError, match="holds no text"):
        list(read_documents(str(path)))


def test_a_parquet_table_cut_short_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    rows = [{"text": f"document {i} " * 50} for i in range(500)]
    parquet.write_table(pa.Table.from_pylist(rows), path, compression="none")
    raw = path.read_bytes()
    footer = raw[-8:]
    size = int.from_bytes(footer[:4], "little")
    # Data pages zeroed, footer kept: opening works, reading does not.
    path.write_bytes(raw[:4] + bytes(len(raw) - 12 - size) + raw[-8 - size :])
    with pytest.raises(UsageError, match=r"breaks off after row 0|not a readable"):
        list(read_documents(str(path)))
