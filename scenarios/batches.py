"""From documents to packed batches on the host, and a summary of what they hold."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness.counts import counted
from harness.errors import UsageError
from harness.record.records import InputSummary
from scenarios.document_files import SAMPLE, read_documents
from scenarios.packing import Row, pack, position_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scenarios.tokens import Tokenizer

IGNORED_LABEL = -100
"""Label of a token that nothing predicts, as `cross_entropy` ignores it by default."""
POOL_FACTOR = 4
"""How many times the text needed is packed at once: best fit needs short documents to choose."""
SHORTEST_TOKENS = 2
"""A document cut shorter would have no token to predict."""


@dataclass(frozen=True, eq=False)
class HostBatch:
    """One packed row on the host; all id tensors are `int64[1, num_tokens]`."""

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    """Restart at 0 at each document."""
    labels: torch.Tensor
    """`input_ids`, but -100 at the first token of each document and on padding, so that no token
    is predicted from another document."""
    lengths: tuple[int, ...]
    """Tokens of each document; padding, where there is any, is the last document."""
    lengths_tensor: torch.Tensor
    """The same, `int32[num_documents]`."""
    num_predicted: int
    """Labels that are not ignored."""


def make_batches(
    *,
    data: str | None,
    tokenizer: Tokenizer,
    vocab_size: int,
    num_tokens: int,
    num_documents: int | None,
    num_batches: int,
    seed: int,
) -> tuple[tuple[HostBatch, ...], InputSummary]:
    """Packed batches of `num_tokens` each, the same for the same arguments.

    With `num_documents`, every document is cut by one factor so that about so many fit in a row,
    and the rows nearest to that number are taken. Text is repeated, reshuffled, where it is too
    short; ids past `vocab_size` are folded into it. Raises `UsageError` for unusable data.
    """
    generator = random.Random(seed)
    wanted_tokens = POOL_FACTOR * num_batches * num_tokens
    documents = _tokenize(
        data, tokenizer, wanted_tokens, POOL_FACTOR * num_batches * (num_documents or 1)
    )
    if num_documents is not None:
        documents = _shorten(documents, num_tokens / num_documents)
    pool = _fill_pool(documents, wanted_tokens, generator)
    rows = list(pack([len(document) for document in pool], num_tokens))
    if len(rows) > num_batches:
        # The emptiest row is what was left over: a longer run packs it with what follows.
        rows.remove(min(rows, key=lambda row: row.num_tokens))
    generator.shuffle(rows)
    if num_documents is not None:
        # Rows of few long documents and of many short ones both exist; take those as asked for.
        rows.sort(key=lambda row: abs(len(row.pieces) - num_documents))
    chosen = rows[:num_batches]
    batches = tuple(
        _batch(row, pool, num_tokens, vocab_size, tokenizer.padding_id) for row in chosen
    )
    if not all(batch.num_predicted for batch in batches):
        raise UsageError(
            f"The documents of {data or SAMPLE} are one token long by the tokenizer "
            f"{tokenizer.name}, so no token is predicted; give longer ones."
        )
    return batches, _summarize(data, tokenizer, chosen, num_tokens)


def check_documents(num_documents: int, num_tokens: int) -> None:
    """Raise `UsageError` where a batch of so many tokens cannot hold so many documents."""
    most = num_tokens // SHORTEST_TOKENS
    if num_documents > most:
        raise UsageError(
            f"{num_documents:,} documents do not fit into {num_tokens:,} tokens, which hold from 1 "
            f"to {most:,} of at least {SHORTEST_TOKENS} tokens; ask for fewer documents or more "
            "tokens."
        )


def _tokenize(
    data: str | None, tokenizer: Tokenizer, wanted_tokens: int, wanted_documents: int
) -> list[list[int]]:
    """The first documents of the data: enough of both, or all there are."""
    documents: list[list[int]] = []
    found = 0
    for document in read_documents(data):
        tokens = tokenizer.encode(document)
        documents.append(tokens)
        found += len(tokens)
        if found >= wanted_tokens and len(documents) >= wanted_documents:
            break
    if found < SHORTEST_TOKENS:
        held = counted(found, "token")
        raise UsageError(f"The data file {data} gives {held}; put more text in it.")
    return documents


def _shorten(documents: Sequence[list[int]], mean_tokens: float) -> list[list[int]]:
    factor = mean_tokens * len(documents) / sum(len(document) for document in documents)
    if factor >= 1:
        return list(documents)
    return [
        document[: max(SHORTEST_TOKENS, round(factor * len(document)))] for document in documents
    ]


def _fill_pool(
    documents: Sequence[list[int]], wanted_tokens: int, generator: random.Random
) -> list[list[int]]:
    pool: list[list[int]] = []
    found = 0
    while True:
        for document in generator.sample(list(documents), len(documents)):
            pool.append(document)
            found += len(document)
            if found >= wanted_tokens:
                return pool


def _batch(
    row: Row, pool: Sequence[list[int]], num_tokens: int, vocab_size: int, padding_id: int
) -> HostBatch:
    token_ids: list[int] = []
    labels: list[int] = []
    lengths = [piece.length for piece in row.pieces]
    for piece in row.pieces:
        tokens = pool[piece.document][piece.start : piece.start + piece.length]
        folded = [token % vocab_size for token in tokens]
        token_ids += folded
        labels += [IGNORED_LABEL, *folded[1:]]
    padding = num_tokens - len(token_ids)
    if padding:
        lengths.append(padding)
        token_ids += [padding_id % vocab_size] * padding
        labels += [IGNORED_LABEL] * padding
    return HostBatch(
        input_ids=torch.tensor([token_ids]),
        position_ids=torch.tensor([position_ids(lengths)]),
        labels=torch.tensor([labels]),
        lengths=tuple(lengths),
        lengths_tensor=torch.tensor(lengths, dtype=torch.int32),
        num_predicted=sum(label != IGNORED_LABEL for label in labels),
    )


def _summarize(
    data: str | None, tokenizer: Tokenizer, rows: Sequence[Row], num_tokens: int
) -> InputSummary:
    lengths = sorted(piece.length for row in rows for piece in row.pieces)
    return InputSummary(
        data=SAMPLE if data is None else data,
        tokenizer=tokenizer.name,
        num_batches=len(rows),
        num_tokens=num_tokens,
        num_documents_mean=len(lengths) / len(rows),
        document_tokens_min=lengths[0],
        document_tokens_median=statistics.median(lengths),
        document_tokens_p90=lengths[min(len(lengths) - 1, int(0.9 * len(lengths)))],
        document_tokens_max=lengths[-1],
        padding_share=1 - sum(lengths) / (len(rows) * num_tokens),
    )
