"""Reads documents from a .jsonl, .parquet or .txt file, lazily and with errors that name the line.

A document is a text, or a chat of `messages` that the tokenizer renders. Reading stops when the
caller has enough, so a large file is not read whole.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLE = "sample"
"""Name under which records show the text that ships with the project."""


@dataclass(frozen=True)
class Message:
    """One turn of a chat."""

    role: str
    content: str


Document = str | tuple[Message, ...]
MAX_LINE_BYTES = 64 << 20


def read_documents(data: str | None) -> Iterator[Document]:
    """Documents of a file in order, or of the shipped sample for `None`; blank ones are left out.

    Raises `UsageError` that names the file, the line or row, and the mend.
    """
    if data is None:
        with resources.as_file(resources.files("scenarios") / "data" / "sample.jsonl") as path:
            yield from _read_jsonl(path)
        return
    path = Path(data)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise UsageError(
            f"The data file {path} {what}; give the path of a .jsonl, .parquet or .txt file."
        )
    readers = {".jsonl": _read_jsonl, ".parquet": _read_parquet, ".txt": _read_text}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UsageError(
            f"The data file {path} ends in {path.suffix or 'no suffix'!r}; "
            "convert it to .jsonl, .parquet or .txt and name it so."
        )
    num_documents = 0
    for document in reader(path):
        num_documents += 1
        yield document
    if num_documents == 0:
        raise UsageError(f"The data file {path} holds no text; put at least one document in it.")


def _read_jsonl(path: Path) -> Iterator[Document]:
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise UsageError(
                f"{path}, line {number} is not valid JSON ({error.msg} at column {error.colno}); "
                "write one JSON object a line."
            ) from error
        except RecursionError as error:
            raise UsageError(
                f"{path}, line {number} is nested too deep to read; write one JSON object a line."
            ) from error
        yield from _document(value, f"{path}, line {number}")


def _read_text(path: Path) -> Iterator[Document]:
    """Paragraphs, apart by blank lines, are the documents of a plain text."""
    paragraph: list[str] = []
    for _, line in _lines(path):
        if line.strip():
            paragraph.append(line.rstrip("\r\n"))
        elif paragraph:
            yield "\n".join(paragraph)
            paragraph = []
    if paragraph:
        yield "\n".join(paragraph)


def _read_parquet(path: Path) -> Iterator[Document]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise UsageError(
            f"{path} is not a readable Parquet table ({_first_line(error)}); "
            "write it again with pandas or pyarrow."
        ) from error
    with table:
        columns = [name for name in ("text", "messages") if name in table.schema_arrow.names]
        if not columns:
            raise UsageError(
                f"{path} has no column `text` or `messages`, only "
                f"{', '.join(table.schema_arrow.names) or 'none'}; rename the one with the text."
            )
        number = 0
        try:
            for batch in table.iter_batches(batch_size=1024, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield from _document(row, f"{path}, row {number}")
        except (pa.ArrowException, OSError) as error:
            raise UsageError(
                f"{path} breaks off after row {number} ({_first_line(error)}); write it again."
            ) from error


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines, decoded one by one so that a bad byte is reported with its line."""
    with path.open("rb") as file:
        lines = iter(lambda: file.readline(MAX_LINE_BYTES + 1), b"")
        for number, raw in enumerate(lines, start=1):
            if len(raw) > MAX_LINE_BYTES:
                raise UsageError(
                    f"{path}, line {number} is longer than {MAX_LINE_BYTES >> 20} MiB; "
                    "write one document a line."
                )
            try:
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise UsageError(
                    f"{path}, line {number} is not UTF-8 (byte {error.start + 1} of the line); "
                    "save the file as UTF-8."
                ) from error


def _document(value: object, where: str) -> Iterator[Document]:
    """The document of one line or row, or nothing where it is blank."""
    if not isinstance(value, dict):
        raise UsageError(
            f"{where} is not a JSON object; write it as "
            '{"text": "..."} or {"messages": [{"role": "user", "content": "..."}]}.'
        )
    text, messages = value.get("text"), value.get("messages")
    if isinstance(text, str):
        if text.strip():
            yield text
    elif isinstance(messages, list):
        if messages:
            yield tuple(_message(message, where) for message in messages)
    else:
        fields = ", ".join(str(name) for name in value) or "none"
        raise UsageError(
            f"{where} has neither a `text` string nor a `messages` list (its fields: {fields}); "
            "rename the field that holds the text."
        )


def _message(value: object, where: str) -> Message:
    if isinstance(value, dict):
        role, content = value.get("role"), value.get("content")
        if isinstance(role, str) and isinstance(content, str):
            return Message(role, content)
    raise UsageError(
        f"{where} has a message without `role` and `content` strings; "
        'write each as {"role": "user", "content": "..."}.'
    )


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
