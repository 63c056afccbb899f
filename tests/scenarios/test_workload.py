"""The workload: a stock model trains on packed rows, and documents never see each other."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from harness.errors import UsageError
from harness.workload import PackedDocuments, Workload
from scenarios.build_options import BuildOptions
from scenarios.scenario_catalogue import get

FAMILIES = [
    "qwen3-0.6b-packed-sft",
    "llama3.2-1b-packed-sft",
    "gpt-oss-20b",
    "qwen3-30b-a3b",
    "gemma3-1b-packed-sft",
    "mixtral-8x7b",
    "deepseek-v3",
]


def build(name="qwen3-0.6b-packed-sft", **options):
    small = {"num_layers": 2, "tokens": 64, "documents": 4, "num_batches": 2}
    return get(name).build(BuildOptions(**(small | options)))


def gradients(workload):
    workload.forward()
    workload.backward()
    return {name: p.grad.clone() for name, p in workload.model.named_parameters()}


def calls_during(workload, monkeypatch, action):
    """Arguments of every call of the model while `action` runs."""
    forward, calls = workload.model.forward, []

    def recording(**arguments):
        calls.append(arguments)
        return forward(**arguments)

    with monkeypatch.context() as patch:
        patch.setattr(workload.model, "forward", recording)
        action()
    return calls


def layers_checkpointed(workload):
    return [layer.gradient_checkpointing for layer in workload.model.model.layers]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_stock_model_of_each_family_takes_a_step_and_learns(name):
    workload = build(name, num_batches=1, learning_rate=1e-2)
    assert isinstance(workload, Workload)
    assert workload.model.training
    assert all(layers_checkpointed(workload))
    losses = []
    for _ in range(4):
        loss = workload.forward()
        assert loss.ndim == 0
        losses.append(loss.item())
        workload.backward()
        assert all(p.grad is not None for p in workload.model.parameters())
        workload.optimizer_step()
        assert all(p.grad is None for p in workload.model.parameters())
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_document_sees_no_other_document_of_its_row(name, monkeypatch):
    workload = build(name)
    call = {}
    monkeypatch.setattr(
        workload.model,
        "forward",
        lambda *a, f=workload.model.forward, **k: call.update(k) or f(**k),
    )
    workload.forward()
    documents = call["packed_documents"]
    assert len(documents.lengths) > 1
    first = documents.lengths[0]
    arguments = {key: value for key, value in call.items() if key != "labels"}
    before = workload.model(**arguments).logits
    arguments["input_ids"] = arguments["input_ids"].clone()
    arguments["input_ids"][0, :first] = (arguments["input_ids"][0, :first] + 1) % 256
    after = workload.model(**arguments).logits
    assert not torch.allclose(before[0, :first], after[0, :first])
    torch.testing.assert_close(before[0, first:], after[0, first:])


def test_every_forward_gets_new_tensors_and_a_new_identity_of_its_documents(monkeypatch):
    workload = build()

    def three_forwards():
        workload.forward()
        workload.forward()
        workload.select_batch(3)
        workload.forward()

    calls = calls_during(workload, monkeypatch, three_forwards)
    first, second, other = calls
    assert isinstance(first["packed_documents"], PackedDocuments)
    assert first["packed_documents"] is not second["packed_documents"]
    assert first["packed_documents"].lengths == second["packed_documents"].lengths
    assert first["input_ids"].data_ptr() != second["input_ids"].data_ptr()
    assert torch.equal(first["input_ids"], second["input_ids"])
    assert not torch.equal(first["input_ids"], other["input_ids"])
    for call in calls:
        lengths = call["packed_documents"].lengths
        assert sum(lengths) == workload.num_tokens == call["input_ids"].shape[1]
        assert call["packed_documents"].lengths_on_device.tolist() == list(lengths)


@pytest.mark.parametrize("name", ["qwen3-0.6b-packed-sft", "gpt-oss-20b"])
def test_the_chunked_loss_is_the_librarys_loss(name):
    whole, chunked = build(name, loss_chunk_tokens=0), build(name, loss_chunk_tokens=24)
    torch.testing.assert_close(whole.forward(), chunked.forward())
    expected, got = gradients(whole), gradients(chunked)
    assert expected.keys() == got.keys()
    for parameter in expected:
        torch.testing.assert_close(got[parameter], expected[parameter], rtol=1e-4, atol=1e-6)


def test_checkpointing_changes_no_gradient_and_can_be_left_out():
    with_it, without = build(checkpointing=True), build(checkpointing=False)
    assert not any(layers_checkpointed(without))
    expected, got = gradients(without), gradients(with_it)
    for parameter in expected:
        torch.testing.assert_close(got[parameter], expected[parameter])


def test_the_same_seed_builds_the_same_workload():
    first, again, other = build(seed=3), build(seed=3), build(seed=4)
    assert torch.equal(first.forward(), again.forward())
    assert not torch.equal(first.forward(), other.forward())
    assert first.describe() == again.describe()


def test_backward_without_forward_is_refused():
    workload = build()
    with pytest.raises(RuntimeError, match="needs a forward"):
        workload.backward()
    workload.forward()
    workload.backward()
    with pytest.raises(RuntimeError, match="needs a forward"):
        workload.backward()


def test_the_record_says_what_was_narrowed():
    record = build("gpt-oss-20b", num_layers=None).describe()
    assert record.narrowed["hidden_size"][0] == 2880
    assert record.narrowed["num_tokens"] == (4096, 64)
    assert "num_experts" not in record.narrowed
    assert "num_layers" not in record.narrowed
    assert record.config["num_experts"] == 32
    assert record.input.num_tokens == 64
    assert record.attention == "eager"
    assert record.num_trainable_parameters == record.num_parameters
    assert build().describe().narrowed["num_layers"] == (28, 2)


def test_bfloat16_trains_too():
    workload = build(dtype="bfloat16")
    assert {p.dtype for p in workload.model.parameters()} == {torch.bfloat16}
    workload.forward()
    workload.backward()
    workload.optimizer_step()
    assert torch.isfinite(workload.forward())


@pytest.mark.parametrize("name", ["qwen3-0.6b-packed-sft", "qwen3-30b-a3b"])
def test_lora_trains_adapters_only_under_checkpointing(name):
    pytest.importorskip("peft", reason="the adapter tests need peft")
    workload = build(name, adapter="lora")
    workload.forward()
    workload.backward()
    trained = {n for n, p in workload.model.named_parameters() if p.grad is not None}
    assert trained
    assert all("lora_" in parameter for parameter in trained)
    record = workload.describe()
    assert record.adapter == "lora"
    assert 0 < record.num_trainable_parameters < record.num_parameters / 2


def test_lora_without_peft_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with pytest.raises(UsageError, match=r"needs peft.*pip install"):
        build(adapter="lora")


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory):
    """A small Qwen3 with a word tokenizer that has a chat template, as a local folder."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("saved")
    build(seed=11).model.save_pretrained(folder)
    words = {word: i for i, word in enumerate(["<unk>", "<eos>", "<user>", "hello", "there"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>")
    fast.chat_template = "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}<eos>"
    fast.save_pretrained(folder)
    return folder


def test_saved_weights_and_their_tokenizer_are_used(saved_model, tmp_path):
    data = tmp_path / "a.jsonl"
    chat = {"messages": [{"role": "user", "content": "hello there"}]}
    data.write_text(json.dumps(chat) + "\n" + json.dumps({"text": "there hello"}) + "\n")
    workload = build(
        num_layers=None, weights=str(saved_model), data=str(data), tokens=16, documents=None
    )
    expected = build(seed=11).model.state_dict()
    loaded = workload.model.state_dict()
    assert expected.keys() == loaded.keys()
    assert all(torch.equal(loaded[key], expected[key]) for key in expected)
    record = workload.describe()
    assert record.weights == record.input.tokenizer == str(saved_model)
    assert record.config["num_layers"] == 2
    assert torch.isfinite(workload.forward())


def test_a_chat_goes_through_the_template_and_a_text_gets_its_end(saved_model):
    from scenarios.document_files import Message
    from scenarios.tokens import load_tokenizer

    tokenizer = load_tokenizer(str(saved_model), "random")
    assert tokenizer.encode((Message("user", "hello there"),)) == [2, 3, 4, 1]
    assert tokenizer.encode("there hello") == [4, 3, 1]
    assert tokenizer.padding_id == 1
    assert load_tokenizer("bytes", str(saved_model)).name == "bytes"


def test_weights_of_another_architecture_are_refused(saved_model):
    with pytest.raises(UsageError, match=r"are of a qwen3 model and this scenario is of llama"):
        build("llama3.2-1b-packed-sft", num_layers=None, weights=str(saved_model))


def test_a_hub_id_that_cannot_be_reached_is_named():
    with pytest.raises(UsageError, match=r"no-such-owner/no-such-model"):
        build(num_layers=None, weights="no-such-owner/no-such-model", tokenizer="bytes")


@pytest.mark.gpu
def test_a_step_runs_on_a_gpu_from_pinned_batches():
    workload = build(device="cuda", attention="eager", checkpointing=False)
    workload.forward()
    assert workload.model.device.type == "cuda"
    workload.backward()
    workload.optimizer_step()
    assert torch.isfinite(workload.forward())


def test_damaged_weights_and_tokenizers_are_named(saved_model, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(saved_model, damaged)
    (damaged / "model.safetensors").write_bytes(b"not tensors at all")
    with pytest.raises(UsageError, match=r"No model can be loaded from .*damaged"):
        build(num_layers=None, weights=str(damaged), tokenizer="bytes")
    (damaged / "tokenizer_config.json").write_text("[]")
    with pytest.raises(UsageError, match=r"No tokenizer can be loaded from .*damaged"):
        build(tokenizer=str(damaged))
