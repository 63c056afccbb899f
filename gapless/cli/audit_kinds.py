"""The kinds of target of `gapless audit`, and which options are for which of them.

A kind is one frozen struct: its fields are the options that are for it, with their defaults. To add
a kind, write its struct, enter it in `KINDS` and `Options`, and say in
`gapless.cli.audit_runs.carry_out` how it is audited.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from gapless.cli.option_rules import either
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.audit.emulated.emulated_audit import Mode

DEFAULT_GPU = "H100"
TRACE_ENDINGS = (".json", ".gz")


class AuditOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What every kind takes."""

    everything: bool = False
    json: bool = False


class ReportOptions(AuditOptions, frozen=True, kw_only=True):
    """What every audit takes that ends in one report."""

    top: int = 20
    baseline: str | None = None
    fail_on: Literal["new"] | None = None


class StepOptions(ReportOptions, frozen=True, kw_only=True):
    """What every audit takes that runs code."""

    gpu: str | None = None
    values: bool | None = None
    """Real values, shapes only, or values while they are small."""
    routing: Literal["uniform", "skewed"] = "uniform"
    seed: int = 0
    steps: int | None = None
    skip: int | None = None
    on: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    timeline: str | None = None
    races: bool = False
    fix: bool = False

    @property
    def mode(self) -> Mode:
        """How tensors are computed."""
        if self.values is None:
            return "auto"
        return "values" if self.values else "shapes"


class CallableOptions(StepOptions, frozen=True, kw_only=True):
    """A step, or what makes one."""

    target: tuple[str, ...]
    tensorboard: str | None = None


class ScriptOptions(CallableOptions, frozen=True, kw_only=True):
    """A whole script; what follows its name are its own arguments."""


class ModelOptions(StepOptions, frozen=True, kw_only=True):
    """A model that is built here, always on an emulated GPU."""

    fit: Literal["narrow", "full"] = "narrow"
    arm: str | None = None
    attention: str | None = None
    checkpointing: bool | None = None
    tokens: int | None = None
    layers: int | None = None
    scale: Literal["layers", "experts"] | None = None

    @property
    def build(self) -> dict[str, object]:
        """The options of the build that were given, by the names of `BuildOptions`."""
        chosen = {
            "fit": self.fit,
            "attention": self.attention,
            "checkpointing": self.checkpointing,
            "tokens": self.tokens,
            "num_layers": self.layers,
        }
        return {name: value for name, value in chosen.items() if value is not None}


class ScenarioOptions(ModelOptions, frozen=True, kw_only=True):
    """A scenario of the catalogue."""

    scenario: str


class ConfigOptions(ModelOptions, frozen=True, kw_only=True):
    """A model's own configuration."""

    config: str


class FolderOptions(ReportOptions, frozen=True, kw_only=True):
    """One trace of each rank."""

    target: tuple[str, ...]


class TraceOptions(FolderOptions, frozen=True, kw_only=True):
    """One trace."""

    annotate: str | None = None
    compat: Literal["hta"] | None = None
    tensorboard: str | None = None


class PairOptions(AuditOptions, frozen=True, kw_only=True):
    """Two traces, or folders of traces, to compare."""

    target: tuple[str, ...]


Options = CallableOptions | ScenarioOptions | ConfigOptions | FolderOptions | PairOptions

KINDS: Mapping[str, type[Options]] = {
    "a callable": CallableOptions,
    "a script": ScriptOptions,
    "a scenario": ScenarioOptions,
    "a configuration": ConfigOptions,
    "a trace": TraceOptions,
    "a folder of traces": FolderOptions,
    "a pair of traces": PairOptions,
}
"""Kind of target, as it is called in help and errors -> its options."""


def kinds_of(name: str) -> str:
    """The kinds that the option `name` is for, as `a trace or a folder of traces`."""
    kinds = [kind for kind, options in KINDS.items() if name in options.__struct_fields__]
    others = [kind for kind in KINDS if kind not in kinds]
    if len(others) <= 1:
        return " but ".join(("every target", *others))
    return either(kinds)


def panel_of(name: str) -> str:
    """The title under which the help lists the option `name`."""
    return f"For {kinds_of(name)}"


def kind_of(words: Sequence[str], scenario: str | None = None, config: str | None = None) -> str:
    """Which of `KINDS` a command line names. Raises `UsageError` where it names none, or two."""
    if [bool(words), scenario is not None, config is not None].count(True) != 1:
        raise UsageError(
            "Name one thing to audit: a step, a script, a trace, --scenario NAME or --config FILE."
        )
    if scenario is not None:
        return "a scenario"
    if config is not None:
        return "a configuration"
    if _is_trace(words[0]):
        if len(words) > 2:
            raise UsageError(f"Two traces can be compared, not {len(words)}; name two.")
        if len(words) == 2:
            return "a pair of traces"
        return "a folder of traces" if Path(words[0]).is_dir() else "a trace"
    from gapless.program_audit import is_script

    return "a script" if is_script(words[0]) else "a callable"


def _is_trace(word: str) -> bool:
    path = Path(word)
    return path.is_dir() or path.name.endswith(TRACE_ENDINGS)
