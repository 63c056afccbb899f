"""Puts a scenario together: sizes, model, batches, workload and the record of what was built."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from harness.errors import UsageError
from harness.record.records import InputSummary, ScenarioRecord
from harness.workload import PACKED_ATTENTION
from scenarios.batches import make_batches
from scenarios.build import (
    prepare_training,
    pretrained_model,
    random_model,
    stock_attention,
)
from scenarios.build_options import RANDOM
from scenarios.causal_lm import ModelWorkload
from scenarios.models import loaded_sizes
from scenarios.narrow import changed_sizes, narrow_sizes, widths_for
from scenarios.tokens import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from scenarios.build_options import BuildOptions
    from scenarios.models import ModelSizes
    from scenarios.scenario_catalogue import Scenario

FULL_LOSS_CHUNK_TOKENS = 4096
"""At full size: 2.5 GB of float32 logits at a time with a vocabulary of 151,936."""


@dataclass(frozen=True)
class _Plan:
    """Every choice made, before anything is built."""

    sizes: ModelSizes
    num_tokens: int
    num_documents: int | None
    attention: str
    dtype: torch.dtype
    checkpointing: bool
    loss_chunk_tokens: int
    device: torch.device


def build_workload(scenario: Scenario, options: BuildOptions) -> ModelWorkload:
    """The workload of `scenario` as `options` ask; raises `UsageError` where they cannot be met."""
    plan = _plan(scenario, options)
    tokenizer = load_tokenizer(options.tokenizer, options.weights)
    attention = plan.attention
    attached = options.attached_attention
    if attention in (PACKED_ATTENTION if attached is None else attached):
        # Until an optimization that offers it is attached, the model has the library's attention.
        attention = stock_attention(plan.sizes.model_type)
    if options.weights == RANDOM:
        model = random_model(
            plan.sizes,
            device=plan.device,
            dtype=plan.dtype,
            attention=attention,
            seed=options.seed,
        )
    else:
        model = pretrained_model(
            options.weights,
            plan.sizes.model_type,
            device=plan.device,
            dtype=plan.dtype,
            attention=attention,
        )
    prepare_training(model, checkpointing=plan.checkpointing, adapter=options.adapter)
    batches, summary = make_batches(
        data=options.data,
        tokenizer=tokenizer,
        vocab_size=model.config.vocab_size,
        num_tokens=plan.num_tokens,
        num_documents=plan.num_documents,
        num_batches=options.num_batches,
        seed=options.seed,
    )
    return ModelWorkload(
        model,
        batches,
        _record(scenario, options, plan, model, summary),
        device=plan.device,
        learning_rate=options.learning_rate,
        loss_chunk_tokens=plan.loss_chunk_tokens,
    )


def _plan(scenario: Scenario, options: BuildOptions) -> _Plan:
    device = _device(options.device)
    sizes = scenario.sizes
    num_tokens, num_documents = scenario.full_tokens, None
    loss_chunk_tokens = FULL_LOSS_CHUNK_TOKENS
    dtype = torch.bfloat16
    if options.fit == "narrow":
        widths = widths_for(scenario.model, options.purpose)
        sizes = narrow_sizes(sizes, widths)
        num_tokens, num_documents = widths.tokens, widths.documents
        loss_chunk_tokens = 0
        # CPUs without bfloat16 units emulate it several times slower than float32.
        dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    if options.weights != RANDOM and (options.num_layers or options.hidden_size):
        raise UsageError(
            f"Loaded weights fix the sizes of the model at {options.weights}; "
            "leave out num_layers and hidden_size, or use random weights."
        )
    if options.num_layers is not None:
        sizes = replace(sizes, num_layers=options.num_layers)
    if options.hidden_size is not None:
        sizes = replace(sizes, hidden_size=options.hidden_size)
    if options.num_experts is not None:
        sizes = _with_experts(sizes, options.num_experts)
    return _Plan(
        sizes=sizes,
        num_tokens=options.tokens or num_tokens,
        num_documents=options.documents or num_documents,
        attention=options.attention or scenario.attention,
        dtype=dtype if options.dtype is None else getattr(torch, options.dtype),
        checkpointing=(
            scenario.checkpointing if options.checkpointing is None else options.checkpointing
        ),
        loss_chunk_tokens=(
            loss_chunk_tokens if options.loss_chunk_tokens is None else options.loss_chunk_tokens
        ),
        device=device,
    )


def _with_experts(sizes: ModelSizes, num_experts: int) -> ModelSizes:
    chosen = sizes.num_experts_per_token
    if chosen is None:
        raise UsageError("num_experts is for models with experts, and this one is dense.")
    if num_experts < chosen:
        raise UsageError(f"num_experts={num_experts} is less than the {chosen} a token visits.")
    return replace(sizes, num_experts=num_experts)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"There is no device {name!r}; use cpu, cuda, cuda:1 or meta.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"This machine has no CUDA device for {name!r}; use cpu.")
    return device


def _record(
    scenario: Scenario,
    options: BuildOptions,
    plan: _Plan,
    model: PreTrainedModel,
    summary: InputSummary,
) -> ScenarioRecord:
    sizes = plan.sizes
    if options.weights != RANDOM:
        sizes = loaded_sizes(scenario.sizes, model.config)
    narrowed = changed_sizes(scenario.sizes, sizes)
    if plan.num_tokens != scenario.full_tokens:
        narrowed["num_tokens"] = (scenario.full_tokens, plan.num_tokens)
    parameters = list(model.parameters())
    return ScenarioRecord(
        name=scenario.name,
        family=scenario.family,
        model=scenario.model,
        fit=options.fit,
        dtype=str(plan.dtype).removeprefix("torch."),
        attention=plan.attention,
        checkpointing=plan.checkpointing,
        weights=options.weights,
        adapter=options.adapter,
        seed=options.seed,
        config=sizes.describe(),
        narrowed=narrowed,
        num_parameters=sum(parameter.numel() for parameter in parameters),
        num_trainable_parameters=sum(
            parameter.numel() for parameter in parameters if parameter.requires_grad
        ),
        input=summary,
    )
