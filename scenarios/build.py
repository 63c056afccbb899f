"""Makes the model of a scenario: random or loaded weights, on the device, ready to train."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch

from harness.errors import UsageError
from scenarios.configuration import first_line
from scenarios.hub import is_hub_id
from scenarios.sizes import expert_modules

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

    from scenarios.build_options import Adapter

LORA_RANK = 16


def random_model(
    config: PreTrainedConfig,
    *,
    device: torch.device,
    dtype: torch.dtype,
    attention: str,
    seed: int,
) -> PreTrainedModel:
    """A model with the library's own initialisation, made on the device in its final dtype.

    No copy on the host exists at any time. Seeds torch's default generators. Raises `UsageError`
    where the library or the machine lacks `attention` or the device, or the sizes do not fit.
    """
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    try:
        with device:
            model = AutoModelForCausalLM.from_config(
                config, dtype=dtype, attn_implementation=attention
            )
    except (ImportError, ValueError, TypeError, RuntimeError, AssertionError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise UsageError(
            f"A {config.model_type} model with attention `{attention}` cannot be built on {device} "
            f"({first_line(error)}); choose another --attention or --device, or correct the sizes."
        ) from error
    return cast("PreTrainedModel", model)


def pretrained_model(
    source: str,
    model_type: str,
    *,
    device: torch.device,
    dtype: torch.dtype,
    attention: str,
) -> PreTrainedModel:
    """A model loaded from a folder, or from the hub where `source` is a hub id.

    Raises `UsageError` where nothing can be loaded or the architecture is not `model_type`.
    """
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModelForCausalLM

    local = not is_hub_id(source)
    try:
        config = AutoConfig.from_pretrained(source, local_files_only=local)
        if config.model_type != model_type:
            raise UsageError(
                f"The weights at {source} are of a {config.model_type} model and this scenario is "
                f"of {model_type}; choose the scenario of that family."
            )
        model = AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, attn_implementation=attention, local_files_only=local
        )
    except (OSError, ValueError, ImportError, SafetensorError) as error:
        wanted = "a folder with config.json and the weights, or a hub id `owner/name`"
        raise UsageError(
            f"No model can be loaded from {source} ({first_line(error)}); give {wanted}."
        ) from error
    return cast("PreTrainedModel", model.to(device))


def prepare_training(
    model: PreTrainedModel, *, checkpointing: bool | None, adapter: Adapter
) -> None:
    """Train mode, checkpointing of every layer or none, and the adapter, in place.

    Checkpointing of `None` is on where the model has it. Raises `UsageError` where it was asked for
    and the model has none, or the adapter needs a package that is missing.
    """
    model.train()
    model.config.use_cache = False
    if adapter == "lora":
        _add_lora(model)
    if checkpointing is False:
        return
    if model.supports_gradient_checkpointing:
        # The library renamed it; the older name warns where the newer one exists.
        enable = getattr(model, "activation_checkpointing_enable", None)
        (enable or model.gradient_checkpointing_enable)()
    elif checkpointing:
        raise UsageError(
            f"{type(model).__name__} has no activation checkpointing; use --no-checkpointing."
        )


def stock_attention(config: PreTrainedConfig) -> str:
    """The library attention of a model to which no optimization is attached."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    # Some, such as those with attention sinks, have no place in the library's SDPA call.
    return "sdpa" if MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]._supports_sdpa else "eager"


def _add_lora(model: PreTrainedModel) -> None:
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise UsageError(
            "The adapter `lora` needs peft, which is not installed; run `pip install peft`."
        ) from error
    config = LoraConfig(r=LORA_RANK, lora_alpha=LORA_RANK, target_modules=_adapted(model))
    # In place, so that the model keeps its class and module names; it freezes all other weights.
    inject_adapter_in_model(config, model)
    # The frozen embedding gives layer inputs without gradients, which checkpointing needs.
    model.enable_input_require_grads()


def _adapted(model: PreTrainedModel) -> list[str]:
    """Names of the linear modules that get an adapter: all but the head and the blocks of experts,
    whose experts are stacked parameters."""
    from transformers.pytorch_utils import Conv1D

    modules = dict(model.named_modules())
    experts = {id(module) for module in expert_modules(model)}
    blocks = [
        name.rpartition(".")[0] + "." for name, module in modules.items() if id(module) in experts
    ]
    head = model.get_output_embeddings()
    return [
        name
        for name, module in modules.items()
        if isinstance(module, torch.nn.Linear | Conv1D)
        and module is not head
        and not any(name.startswith(block) for block in blocks)
    ]
