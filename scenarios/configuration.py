"""A model's own `config.json`: read, checked, and made the library's configuration.

What is in the file are facts about the model, as published; importing this imports no torch.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError
from scenarios.hub import is_hub_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from transformers import PreTrainedConfig

CONFIGS = Path(__file__).parent / "configs"
"""The configurations that ship with the project, a file each, named as the model is."""

FILE_NAME = "config.json"
# How the published weights are stored, which matters to nothing that is built from random ones.
_OF_THE_WEIGHTS = frozenset({"quantization_config", "auto_map", "dtype", "torch_dtype"})


def shipped(model: str) -> dict[str, Any]:
    """The published configuration of a model that ships with the project, such as `Qwen3-8B`."""
    facts: dict[str, Any] = json.loads((CONFIGS / f"{model}.json").read_text("utf-8"))
    return facts


def read_facts(source: str) -> dict[str, Any]:
    """The configuration in a JSON file, in a folder that has a `config.json`, or at a hub id.

    Raises `UsageError` where there is none, or it is not the configuration of a causal language
    model that transformers has.
    """
    path = Path(source)
    if path.is_dir():
        path /= FILE_NAME
    if path.exists():
        facts = _parsed(path)
    elif is_hub_id(source):
        facts = _from_hub(source)
    else:
        raise UsageError(
            f"There is no configuration at {path}; name a JSON file, a folder that has a "
            f"{FILE_NAME}, or a hub id `owner/name`."
        )
    return _language_model(facts, source)


def library_config(facts: Mapping[str, Any]) -> PreTrainedConfig:
    """The transformers configuration of these facts; the cache is off, as in training.

    Raises `UsageError` where transformers knows no such model or refuses a value.
    """
    from transformers import CONFIG_MAPPING, __version__

    model_type = facts.get("model_type")
    if not isinstance(model_type, str):
        raise UsageError(
            "The configuration names no model_type, so it describes no model; give the config.json "
            "that ships with one."
        )
    if model_type not in CONFIG_MAPPING:
        raise UsageError(
            f"transformers {__version__} knows no model_type {model_type!r}; install a version "
            "that does, or give the configuration of another model."
        )
    stated = {name: value for name, value in facts.items() if name not in _OF_THE_WEIGHTS}
    try:
        config: PreTrainedConfig = CONFIG_MAPPING[model_type].from_dict(
            {**stated, "use_cache": False}
        )
    except Exception as error:  # each configuration class has checks and errors of its own
        raise UsageError(
            f"transformers refuses this {model_type} configuration ({first_line(error)}); "
            "correct the value or leave it out."
        ) from error
    return config


def value_of(config: PreTrainedConfig, name: str) -> Any:
    """The value of a field; `None` where there is none, or none that holds for every layer."""
    try:
        return getattr(config, name, None)
    except RuntimeError:  # a field of which each layer has its own refuses to be read
        return None


def real_name(config: PreTrainedConfig, name: str) -> str:
    """The name under which the configuration class keeps a field that it has several names for."""
    return str(type(config).attribute_map.get(name, name))


def common_name(config: PreTrainedConfig, name: str) -> str:
    """The name that a field has in most models, such as `hidden_size` for GPT-2's `n_embd`."""
    names: Mapping[str, str] = type(config).attribute_map
    return next((common for common, real in names.items() if real == name), name)


def declared(config: PreTrainedConfig) -> tuple[str, ...]:
    """The fields that the configuration class declares."""
    return tuple(inspect.signature(type(config).__init__).parameters)


def settable(facts: Mapping[str, Any], config: PreTrainedConfig) -> Iterator[tuple[str, Any]]:
    """Name and value of each field that can be given: stated in the facts, or declared by the
    class. What the class derives from other fields is not among them."""
    for name in dict.fromkeys([*declared(config), *(real_name(config, fact) for fact in facts)]):
        value = value_of(config, name)
        if value is not None:
            yield name, value


def changed(
    facts: Mapping[str, Any], config: PreTrainedConfig, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """The facts with `changes`, each field under one name only."""
    named = {real_name(config, name): value for name, value in facts.items()}
    return {**named, **{real_name(config, name): value for name, value in changes.items()}}


def first_line(error: Exception) -> str:
    """What an error says, in one line without a full stop."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # A strict configuration class says first which check failed, and then why.
    said = lines[-1] if lines else type(error).__name__
    return said.removeprefix("ValueError: ").rstrip(".")


def _parsed(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise UsageError(
            f"The configuration {path} cannot be read as JSON ({first_line(error)}); give the "
            f"{FILE_NAME} that ships with a model."
        ) from error
    if not isinstance(facts, dict):
        raise UsageError(
            f"The configuration {path} holds no JSON object; give the {FILE_NAME} that ships with "
            "a model."
        )
    return facts


def _from_hub(source: str) -> dict[str, Any]:
    from transformers import PreTrainedConfig

    try:
        facts: dict[str, Any] = PreTrainedConfig.get_config_dict(source)[0]
    except (OSError, ValueError) as error:
        raise UsageError(
            f"There is no file or folder {source}, and no configuration can be loaded from the hub "
            "under that name; check the name and the connection, or give a local config.json."
        ) from error
    return facts


def _language_model(facts: dict[str, Any], source: str) -> dict[str, Any]:
    """The facts of the causal language model itself, which others hold as a part."""
    from transformers.models.auto import modeling_auto

    causal = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    config = library_config(facts)
    text = config.get_text_config()
    if text is not config and text.model_type in causal:
        return _language_model({**facts["text_config"], "model_type": text.model_type}, source)
    kind = config.model_type
    of_masked_words = kind in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if config.is_encoder_decoder:
        reason = "an encoder-decoder"
    elif kind not in causal or (of_masked_words and not getattr(config, "is_decoder", False)):
        reason = "no causal language model"
    else:
        return _stated(facts, config)
    raise UsageError(
        f"The {kind} model of {source} is {reason}; give the configuration of a decoder-only "
        "language model."
    )


def _stated(facts: dict[str, Any], config: PreTrainedConfig) -> dict[str, Any]:
    """The facts without those that the class derives: they would be wrong once sizes change."""
    kept = dict(facts)
    for name in [name for name in facts if real_name(config, name) not in declared(config)]:
        rest = {other: value for other, value in kept.items() if other != name}
        if name == "model_type":
            continue
        # What is no attribute at all was taken up into another field, such as `rope_theta`.
        if hasattr(config, name) and getattr(library_config(rest), name, None) == value_of(
            config, name
        ):
            kept = rest
    return kept
