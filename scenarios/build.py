"""Makes the model of a scenario: random or loaded weights, on the device, ready to train."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch

from harness.errors import UsageError
from scenarios.hub import is_hub_id
from scenarios.models import library_config

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from scenarios.build_options import Adapter
    from scenarios.models import ModelSizes

LORA_RANK = 16
LORA_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
LORA_MLP = ("gate_proj", "up_proj", "down_proj")


def random_model(
    sizes: ModelSizes,
    *,
    device: torch.device,
    dtype: torch.dtype,
    attention: str,
    seed: int,
) -> PreTrainedModel:
    """A model with the library's own initialisation, made on the device in its final dtype.

    No copy on the host exists at any time. Seeds torch's default generators. Raises `UsageError`
    where the library or the machine lacks `attention` or the device.
    """
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    try:
        with device:
            model = AutoModelForCausalLM.from_config(
                library_config(sizes), dtype=dtype, attn_implementation=attention
            )
    except (ImportError, ValueError) as error:
        raise _cannot_build(sizes.model_type, attention, device, error) from error
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
            f"No model can be loaded from {source} ({_first_line(error)}); give {wanted}."
        ) from error
    return cast("PreTrainedModel", model.to(device))


def prepare_training(model: PreTrainedModel, *, checkpointing: bool, adapter: Adapter) -> None:
    """Train mode, checkpointing of every layer or none, and the adapter, in place.

    Raises `UsageError` where the adapter needs a package that is missing.
    """
    model.train()
    model.config.use_cache = False
    if adapter == "lora":
        _add_lora(model)
    if checkpointing:
        # The library renamed it; the older name warns where the newer one exists.
        enable = getattr(model, "activation_checkpointing_enable", None)
        (enable or model.gradient_checkpointing_enable)()


def stock_attention(model_type: str) -> str:
    """The library attention of a model to which no optimization is attached."""
    # Attention sinks have no place in the library's SDPA call.
    return "eager" if model_type == "gpt_oss" else "sdpa"


def _add_lora(model: PreTrainedModel) -> None:
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise UsageError(
            "The adapter `lora` needs peft, which is not installed; run `pip install peft`."
        ) from error
    # Experts are stacked parameters, not Linear modules: MoE models get attention adapters.
    dense = getattr(model.config, "num_local_experts", None) is None
    targets = [*LORA_ATTENTION, *(LORA_MLP if dense else ())]
    config = LoraConfig(r=LORA_RANK, lora_alpha=LORA_RANK, target_modules=targets)
    # In place, so that the model keeps its class and module names; it freezes all other weights.
    inject_adapter_in_model(config, model)
    # The frozen embedding gives layer inputs without gradients, which checkpointing needs.
    model.enable_input_require_grads()


def _cannot_build(
    model_type: str, attention: str, device: torch.device, error: Exception
) -> UsageError:
    return UsageError(
        f"A {model_type} model with attention `{attention}` cannot be built on {device} "
        f"({_first_line(error)}); choose another --attention or --device."
    )


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
