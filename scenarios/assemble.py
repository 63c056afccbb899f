"""Puts a scenario together: sizes, model, batches, workload and the record of what was built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from harness.errors import UsageError
from harness.record.records import InputSummary, ScenarioRecord
from harness.workload import PACKED_ATTENTION
from scenarios.batches import check_documents, make_batches
from scenarios.build import (
    prepare_training,
    pretrained_model,
    random_model,
    stock_attention,
)
from scenarios.build_options import RANDOM, BuildOptions
from scenarios.causal_lm import ModelWorkload
from scenarios.configuration import changed, library_config
from scenarios.narrow import narrow, resize, widths_for
from scenarios.sizes import changed_sizes, check_asked, describe, describe_built
from scenarios.tokens import load_tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import PreTrainedConfig, PreTrainedModel

    from scenarios.scenario_facts import ScenarioFacts

FULL_LOSS_CHUNK_TOKENS = 4096
"""At full size: 2.5 GB of float32 logits at a time with a vocabulary of 151,936."""


@dataclass(frozen=True)
class _Plan:
    """Every choice made, before anything is built."""

    published: PreTrainedConfig
    changes: Mapping[str, Any]
    """Fields of the published configuration that are built otherwise."""
    config: PreTrainedConfig
    """What is built."""
    num_tokens: int
    num_documents: int | None
    attention: str
    dtype: torch.dtype
    loss_chunk_tokens: int
    device: torch.device


def build_workload(scenario: ScenarioFacts, options: BuildOptions) -> ModelWorkload:
    """The workload of `scenario` as `options` ask; raises `UsageError` where they cannot be met."""
    plan = _plan(scenario, options)
    if options.documents is not None:
        check_documents(options.documents, plan.num_tokens)
    tokenizer = load_tokenizer(options.tokenizer, options.weights)
    model = _model(plan, options)
    prepare_training(model, checkpointing=options.checkpointing, adapter=options.adapter)
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


def build_shapes(scenario: ScenarioFacts) -> PreTrainedModel:
    """The scenario's model, narrow and with memory for weights only, to ask what applies to it."""
    options = BuildOptions(device="meta")
    # On a CPU, since a fix that copies to the host has no work on `meta`.
    return _model(_plan(scenario, options), options).to_empty(device="cpu")


def _model(plan: _Plan, options: BuildOptions) -> PreTrainedModel:
    attention = plan.attention
    attached = options.attached_attention
    if attention in (PACKED_ATTENTION if attached is None else attached):
        # Until an optimization that offers it is attached, the model has the library's attention.
        attention = stock_attention(plan.config)
    if options.weights != RANDOM:
        return pretrained_model(
            options.weights,
            plan.config.model_type,
            device=plan.device,
            dtype=plan.dtype,
            attention=attention,
        )
    model = random_model(
        plan.config,
        device=plan.device,
        dtype=plan.dtype,
        attention=attention,
        seed=options.seed,
    )
    check_asked(model.config, plan.changes)
    return model


def _plan(scenario: ScenarioFacts, options: BuildOptions) -> _Plan:
    device = _device(options.device)
    published = library_config(scenario.facts)
    changes: dict[str, Any] = {}
    num_tokens, num_documents = scenario.full_tokens, None
    loss_chunk_tokens = FULL_LOSS_CHUNK_TOKENS
    dtype = torch.bfloat16
    if options.fit == "narrow":
        widths = widths_for(published, options.purpose)
        changes |= narrow(scenario.facts, published, widths)
        _check_narrow(scenario, published, changes)
        num_tokens, num_documents = widths.tokens, widths.documents
        loss_chunk_tokens = 0
        # CPUs without bfloat16 units emulate it several times slower than float32.
        dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    if options.weights != RANDOM and (options.num_layers or options.hidden_size):
        raise UsageError(
            f"Loaded weights fix the sizes of the model at {options.weights}; "
            "leave out num_layers and hidden_size, or use random weights."
        )
    changes |= resize(
        scenario.facts,
        published,
        layers=options.num_layers,
        experts=options.num_experts,
        hidden_size=options.hidden_size,
    )
    return _Plan(
        published=published,
        changes=changes,
        config=library_config(changed(scenario.facts, published, changes)),
        num_tokens=options.tokens or num_tokens,
        num_documents=options.documents or num_documents,
        attention=options.attention or scenario.attention,
        dtype=dtype if options.dtype is None else getattr(torch, options.dtype),
        loss_chunk_tokens=(
            loss_chunk_tokens if options.loss_chunk_tokens is None else options.loss_chunk_tokens
        ),
        device=device,
    )


def _check_narrow(
    scenario: ScenarioFacts, published: PreTrainedConfig, changes: Mapping[str, Any]
) -> None:
    try:
        library_config(changed(scenario.facts, published, changes))
    except UsageError as error:
        raise UsageError(
            f"{scenario.model} cannot be narrowed: {str(error).rstrip('.')}; use --fit full, with "
            "few --layers where it is large."
        ) from error


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"There is no device {name!r}; use cpu, cuda, cuda:1 or meta.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"This machine has no CUDA device for {name!r}; use cpu.")
    return device


def _record(
    scenario: ScenarioFacts,
    options: BuildOptions,
    plan: _Plan,
    model: PreTrainedModel,
    summary: InputSummary,
) -> ScenarioRecord:
    """What was built, read back from the model."""
    sizes = describe_built(model)
    narrowed = changed_sizes(describe(plan.published), sizes)
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
        checkpointing=any(
            getattr(module, "gradient_checkpointing", False) for module in model.modules()
        ),
        weights=options.weights,
        adapter=options.adapter,
        seed=options.seed,
        config=sizes,
        narrowed=narrowed,
        num_parameters=sum(parameter.numel() for parameter in parameters),
        num_trainable_parameters=sum(
            parameter.numel() for parameter in parameters if parameter.requires_grad
        ),
        input=summary,
    )
