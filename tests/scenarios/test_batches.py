"""Packed batches: what the model is given matches the documents it came from."""

from __future__ import annotations

import json

import pytest
import torch

from harness.errors import UsageError
from scenarios.batches import IGNORED_LABEL, check_documents, make_batches
from scenarios.build_options import BuildOptions
from scenarios.scenario_catalogue import get
from scenarios.tokens import ByteTokenizer


def batches_of(data=None, **changes):
    arguments = {
        "tokenizer": ByteTokenizer(),
        "vocab_size": 512,
        "num_tokens": 256,
        "num_documents": 8,
        "num_batches": 3,
        "seed": 0,
    }
    return make_batches(data=data, **(arguments | changes))


def write_documents(path, texts):
    path.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts), encoding="utf-8")
    return str(path)


def test_a_batch_is_one_full_row_whose_positions_restart_at_each_document():
    batches, _ = batches_of()
    for batch in batches:
        assert batch.input_ids.shape == batch.position_ids.shape == batch.labels.shape == (1, 256)
        assert sum(batch.lengths) == 256
        assert batch.lengths_tensor.tolist() == list(batch.lengths)
        assert batch.lengths_tensor.dtype == torch.int32
        documents = torch.tensor([0, *batch.lengths[:-1]]).cumsum(0)
        assert (batch.position_ids[0] == 0).nonzero().flatten().tolist() == documents.tolist()


def test_no_label_crosses_a_document_or_sits_on_padding(tmp_path):
    data = write_documents(tmp_path / "a.jsonl", ["a" * 20, "b" * 30])
    batches, summary = batches_of(data, num_tokens=64, num_documents=None)
    for batch in batches:
        ids, labels = batch.input_ids[0].tolist(), batch.labels[0].tolist()
        start = 0
        for length in batch.lengths:
            document = labels[start : start + length]
            assert document[0] == IGNORED_LABEL
            if ids[start] == ByteTokenizer().padding_id:
                assert set(document) == {IGNORED_LABEL}
            else:
                assert document[1:] == ids[start + 1 : start + length]
            start += length
        assert batch.num_predicted == sum(label != IGNORED_LABEL for label in labels)
    assert summary.padding_share == pytest.approx(
        sum((batch.input_ids == ByteTokenizer().padding_id).sum().item() for batch in batches)
        / (3 * 64)
    )
    assert summary.padding_share > 0


def test_text_survives_packing(tmp_path):
    texts = ["The first document.", "Zwölf Boxkämpfer.", "third"]
    data = write_documents(tmp_path / "a.jsonl", texts)
    batches, _ = batches_of(data, num_tokens=128, num_documents=None)
    seen = set()
    for batch in batches:
        for part in batch.input_ids[0].split(list(batch.lengths)):
            tokens = part.tolist()
            if tokens[0] != ByteTokenizer().padding_id:
                assert tokens[-1] == ByteTokenizer().end_id
                seen.add(bytes(tokens[:-1]).decode())
    assert seen == set(texts)


def test_a_document_longer_than_the_row_is_split_not_lost(tmp_path):
    text = "".join(chr(ord("a") + i % 26) for i in range(150))
    data = write_documents(tmp_path / "a.jsonl", [text])
    batches, summary = batches_of(data, num_tokens=64, num_documents=None, num_batches=4)
    assert summary.document_tokens_max == 64
    pieces = {
        bytes(t for t in batch.input_ids[0, : batch.lengths[0]].tolist() if t < 256).decode()
        for batch in batches
    }
    assert all(piece in text for piece in pieces)


def test_the_number_of_documents_asked_for_is_met_closely():
    for wanted in (4, 8, 32):
        _, summary = batches_of(num_tokens=1024, num_documents=wanted, num_batches=4)
        assert wanted * 0.8 < summary.num_documents_mean < wanted * 1.25


def test_batches_draw_on_many_documents_even_where_the_first_alone_would_do():
    batches, _ = batches_of(num_tokens=64, num_documents=4, num_batches=8)
    documents = set()
    for batch in batches:
        documents |= {tuple(part.tolist()) for part in batch.input_ids[0].split(batch.lengths)}
    assert len(documents) > 10


def test_the_same_seed_gives_the_same_batches_and_another_gives_others():
    first, again, other = (batches_of(seed=seed)[0] for seed in (1, 1, 2))
    assert all(torch.equal(a.input_ids, b.input_ids) for a, b in zip(first, again, strict=True))
    assert any(not torch.equal(a.input_ids, b.input_ids) for a, b in zip(first, other, strict=True))


def test_ids_are_folded_into_a_smaller_vocabulary():
    batches, _ = batches_of(vocab_size=100)
    assert all(int(batch.input_ids.max()) < 100 for batch in batches)
    assert all(int(batch.labels.max()) < 100 for batch in batches)


def test_the_summary_describes_the_batches():
    batches, summary = batches_of()
    assert (summary.data, summary.tokenizer) == ("sample", "bytes")
    assert summary.num_batches == len(batches) == 3
    assert summary.num_tokens == 256
    assert (
        summary.document_tokens_min
        <= summary.document_tokens_median
        <= summary.document_tokens_p90
        <= summary.document_tokens_max
    )
    assert 0 <= summary.padding_share < 0.5


def test_too_little_text_is_an_error_that_names_the_file(tmp_path):
    class Nothing(ByteTokenizer):
        def encode(self, document):
            return []

    data = write_documents(tmp_path / "a.jsonl", ["a"])
    with pytest.raises(UsageError, match=r"a\.jsonl gives 0 tokens"):
        batches_of(data, tokenizer=Nothing())


def test_documents_of_one_token_are_an_error_not_a_loss_that_is_no_number(tmp_path):
    class Letters(ByteTokenizer):
        def encode(self, document):
            return list(document.encode())

    data = write_documents(tmp_path / "letters.jsonl", ["a", "b", "c"])
    with pytest.raises(UsageError, match=r"letters\.jsonl are one token long"):
        batches_of(data, tokenizer=Letters(), num_documents=None)


def test_more_documents_than_tokens_hold_are_refused_with_the_range() -> None:
    check_documents(1024, 2048)
    with pytest.raises(UsageError, match=r"5,000 documents .* hold from 1 to 1,024 of at least 2"):
        check_documents(5000, 2048)
    with pytest.raises(UsageError, match="do not fit into 64 tokens"):
        get("qwen3-0.6b-packed-sft").build(BuildOptions(tokens=64, documents=33, num_layers=1))
