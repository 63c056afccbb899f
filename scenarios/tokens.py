"""Turns documents into token ids: by a local tokenizer, or by bytes where there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from harness.errors import UsageError
from scenarios.build_options import RANDOM

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from scenarios.document_files import Document

BYTES = "bytes"


class Tokenizer(Protocol):
    """What packing needs of a tokenizer."""

    @property
    def name(self) -> str:
        """For the record: `bytes`, or the folder or hub id it came from."""
        ...

    @property
    def padding_id(self) -> int:
        """Id that fills the end of a row."""
        ...

    def encode(self, document: Document) -> list[int]:
        """Token ids of one document, its end marked."""
        ...


@dataclass(frozen=True)
class ByteTokenizer:
    """UTF-8 bytes as ids 0 to 255, then the end of a document, then padding."""

    name: str = BYTES
    end_id: int = 256
    padding_id: int = 257

    def encode(self, document: Document) -> list[int]:
        """One id a byte, then `end_id`."""
        return [*_plain(document).encode(), self.end_id]


@dataclass(frozen=True)
class LibraryTokenizer:
    """A tokenizer of the transformers library."""

    name: str
    tokenizer: PreTrainedTokenizerBase

    @property
    def padding_id(self) -> int:
        """Its padding id, else its end id, else 0."""
        for candidate in (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id):
            if isinstance(candidate, int):
                return candidate
        return 0

    def encode(self, document: Document) -> list[int]:
        """Chats go through the chat template where the tokenizer has one."""
        if not isinstance(document, str) and self.tokenizer.chat_template:
            messages = [{"role": turn.role, "content": turn.content} for turn in document]
            text = str(self.tokenizer.apply_chat_template(messages, tokenize=False))
            # The template has written the special tokens already.
            return self._ids(text, add_special_tokens=False)
        ids = self._ids(_plain(document), add_special_tokens=True)
        end_id = self.tokenizer.eos_token_id
        if isinstance(end_id, int) and ids[-1:] != [end_id]:
            ids.append(end_id)
        return ids

    def _ids(self, text: str, *, add_special_tokens: bool) -> list[int]:
        # Documents longer than the model's limit are split later; no warning about them here.
        encoded = self.tokenizer(text, add_special_tokens=add_special_tokens, verbose=False)
        return [int(token) for token in encoded["input_ids"]]


def load_tokenizer(name: str | None, weights: str) -> Tokenizer:
    """The tokenizer asked for, else that of the weights, else bytes.

    Raises `UsageError` where it cannot be loaded.
    """
    source = name or (BYTES if weights == RANDOM else weights)
    if source == BYTES:
        return ByteTokenizer()
    from transformers import AutoTokenizer

    from scenarios.hub import is_hub_id

    try:
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=not is_hub_id(source))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        # The last two where a file is JSON, but not of the shape that the library reads.
        raise UsageError(
            f"No tokenizer can be loaded from {source}; give `--tokenizer` a folder that has "
            "tokenizer.json and tokenizer_config.json, or `bytes`."
        ) from error
    return LibraryTokenizer(source, tokenizer)


def _plain(document: Document) -> str:
    """A chat as one `role: content` line for each turn."""
    if isinstance(document, str):
        return document
    return "\n".join(f"{turn.role}: {turn.content}" for turn in document)
