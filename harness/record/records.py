"""Immutable, versioned values that a run leaves behind. Imports no torch.

Data flows one way: a scenario is run, the run leaves a `RunRecord`, and statistics and views are
derived from it. Every figure says where it comes from (`source`) and its unit is in its name.
`None` means unknown; it is never written as 0.
"""

from __future__ import annotations

from typing import Literal

import msgspec

SCHEMA_VERSION = 1
"""Raised when a field changes its meaning or goes away; a new optional field does not raise it."""

Source = Literal["measured", "modelled", "published"]
Phase = Literal["forward", "backward", "optimizer", "batch"]
Verdict = Literal["faster", "slower", "same", "undecided"]
Status = Literal["complete", "incomplete", "failed"]

PHASES: tuple[Phase, ...] = ("forward", "backward", "optimizer", "batch")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every stored value: frozen, keyword-only, unknown fields of newer writers ignored."""


class Gpu(Record, frozen=True, kw_only=True):
    """One accelerator as its driver reports it."""

    name: str
    index: int = 0
    memory_bytes: int | None = None
    capability: str | None = None
    driver: str | None = None
    power_limit_w: float | None = None


class Machine(Record, frozen=True, kw_only=True):
    """Where a run took place. Two runs are comparable only where `fingerprint` is equal."""

    device: str
    """Short name for people and folder names: `cpu`, `h200`, `emulated-b200`."""
    fingerprint: str
    """Hash of hardware and library versions, without host name or time."""
    hostname: str
    platform: str
    python: str
    torch: str
    transformers: str | None
    gapless: str
    cuda: str | None
    cpu_model: str
    num_cpu_cores: int
    num_threads: int
    """Threads torch uses for one op."""
    memory_bytes: int
    governor: str | None
    gpus: tuple[Gpu, ...] = ()


class Steadiness(Record, frozen=True, kw_only=True):
    """How steady the machine was while it measured."""

    load_before: float | None = None
    """Load average over one minute before the run, of other work, per core."""
    load_after: float | None = None
    cpu_steal_share: float | None = None
    """Share of CPU time the hypervisor gave to others during the run, 0 to 1."""
    cpu_others_share: float | None = None
    """Share of this machine's CPU time that other processes used during the run, 0 to 1."""
    sm_clock_min_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    temperature_max_c: float | None = None
    power_mean_w: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """One sentence for each reason why the machine was not steady; empty when it was."""


class InputSummary(Record, frozen=True, kw_only=True):
    """What the packed batches hold."""

    data: str
    """Where the text came from: a file name, or `sample`."""
    tokenizer: str
    num_batches: int
    num_tokens: int
    """Tokens in one batch (the token budget), padding included."""
    num_documents_mean: float
    document_tokens_min: int
    document_tokens_median: float
    document_tokens_p90: float
    document_tokens_max: int
    padding_share: float
    """Padding tokens over all tokens, 0 to 1."""


class ScenarioRecord(Record, frozen=True, kw_only=True):
    """What was run."""

    name: str
    family: str
    """Workload family, such as `packed-sft` or `moe`."""
    model: str
    """Published name of the model configuration, such as `Qwen3-14B`."""
    fit: Literal["narrow", "full"]
    """`full`: the real size. `narrow`: layers, experts, documents, windows and checkpointing are
    kept, widths are shrunk until the step fits this machine."""
    dtype: str
    attention: str
    checkpointing: bool
    weights: str
    """`random`, or the path or hub id they were loaded from."""
    adapter: str
    """`none` (full fine-tuning), `lora` or `qlora`."""
    seed: int
    config: dict[str, int | float | str | bool | None]
    """Sizes as run: `num_layers`, `hidden_size`, `num_experts`, ..."""
    narrowed: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    """What `narrow` changed: name -> (real, as run)."""
    num_parameters: int | None = None
    num_trainable_parameters: int | None = None
    input: InputSummary | None = None


class Arm(Record, frozen=True, kw_only=True):
    """A choice of variant for each optimization."""

    name: str
    variants: dict[str, str]
    """Optimization name -> variant name."""
    role: Literal["baseline", "arm", "a/a"] = "arm"
    """`a/a` is the baseline a second time: what it shows is noise."""


class Sample(Record, frozen=True, kw_only=True):
    """One timed phase of one step. All are kept, warm-ups too, in the order they were taken."""

    order: int
    """Position in the run, from 0, to see drift by."""
    block: int
    """Randomised, interleaved round; -1 for warm-up."""
    arm: str
    phase: Phase
    duration_ms: float
    warmup: bool = False


class Comparison(Record, frozen=True, kw_only=True):
    """One arm against the baseline in one phase.

    `speedup` is `t_baseline / t_arm - 1`, from the median of per-block log ratios; `low` and
    `high` bound it over blocks at `confidence` (see `harness.stats`).
    """

    arm: str
    baseline: str
    phase: Phase
    speedup: float
    low: float
    high: float
    verdict: Verdict
    source: Source
    confidence: float = 0.95
    margin: float = 0.01
    """A difference smaller than this is called `same`."""
    num_blocks: int
    minimum_detectable: float | None = None
    """Smallest speedup that this many blocks at this noise could detect."""
    baseline_median_ms: float
    arm_median_ms: float


class Parity(Record, frozen=True, kw_only=True):
    """Whether an arm computes what the baseline computes. An arm that fails has no speedup."""

    arm: str
    baseline: str
    quantity: str
    """`loss` or `gradients`."""
    passed: bool
    bitwise: bool
    """Every number equal to the last bit."""
    max_abs_difference: float | None
    """`None` where the two could not be compared: missing, of another shape, or not finite."""
    max_rel_difference: float | None
    """Largest |a - b| over the largest |b| of the same tensor; where that tensor is nothing but
    rounding (below one rounding step of the model's largest gradient), over that step."""
    tolerance: float
    """Allowed `max_rel_difference`; 0 where the arithmetic order is the same."""
    reason: str
    """Why this tolerance: dtype and order of additions; where it failed, what is wrong."""
    worst: str | None = None
    """Name of the parameter with the largest difference."""
    num_compared: int = 0


class MemoryPeak(Record, frozen=True, kw_only=True):
    """Highest memory in use during one phase of one arm."""

    arm: str
    phase: Phase
    kind: Literal["cuda-allocator", "tensor-bytes", "rss", "modelled"]
    peak_bytes: int
    source: Source


class Throughput(Record, frozen=True, kw_only=True):
    """Tokens and steps per second of one arm, from its median batch time."""

    arm: str
    tokens_per_s: float
    steps_per_s: float
    source: Source


class Energy(Record, frozen=True, kw_only=True):
    """Energy of one step of one arm, as NVML counts it."""

    arm: str
    energy_j: float
    source: Source


class SyncCount(Record, frozen=True, kw_only=True):
    """CPU-GPU synchronisations of one arm in one step."""

    arm: str
    phase: Phase
    count: float
    source: Source
    method: Literal["profiler", "emulated", "trace"]
    blocked_ms: float | None = None
    exposed_ms: float | None = None


class Overlap(Record, frozen=True, kw_only=True):
    """How much of the copy time of one arm passed while a compute kernel ran."""

    arm: str
    overlap: float | None
    """Share of copy time, 0 to 1; `None` where nothing was copied."""
    copy_ms: float
    idle_ms: float | None
    source: Source


class Claim(Record, frozen=True, kw_only=True):
    """One published row, as data. Nothing here was measured by this project."""

    id: str
    optimization: str
    baseline_variant: str
    variant: str
    scenario: str
    model: str
    gpu: str | None
    phase: Phase
    value: float
    """Published speedup, as `t_baseline / t_optimized - 1`."""
    value_high: float | None = None
    """Upper end where a range was published."""
    baseline_steps_per_s: float | None = None
    optimized_steps_per_s: float | None = None
    extra_memory_bytes: int | None = None
    configuration: str
    """What is known, or was recovered, of batch, length, adapter and attention."""
    caveats: tuple[str, ...] = ()
    """Remarks where the published figures do not add up or were contradicted."""
    citation: str
    source: Literal["published"] = "published"


class RunRecord(Record, frozen=True, kw_only=True):
    """Everything one run leaves behind."""

    schema: int = SCHEMA_VERSION
    id: str
    """`<UTC time>-<scenario>-<device>-<short id>`; also the folder's name."""
    created_utc: str
    """ISO 8601, to the second, ending in `Z`."""
    status: Status
    reason: str | None = None
    """Why the run is not complete; a sentence for people."""
    command: str
    """What to type to repeat it."""
    source: Source
    machine: Machine
    scenario: ScenarioRecord
    arms: tuple[Arm, ...]
    comparisons: tuple[Comparison, ...] = ()
    parity: tuple[Parity, ...] = ()
    memory: tuple[MemoryPeak, ...] = ()
    throughput: tuple[Throughput, ...] = ()
    energy: tuple[Energy, ...] = ()
    syncs: tuple[SyncCount, ...] = ()
    overlap: tuple[Overlap, ...] = ()
    steadiness: Steadiness = Steadiness()
    claims: tuple[Claim, ...] = ()
    """The published rows this run speaks to."""
    saved_work: dict[str, str] = msgspec.field(default_factory=dict)
    """Optimization -> the host's work that it saves, in the plural, such as `mask rebuilds`."""
    num_samples: int = 0
    samples: tuple[Sample, ...] | None = None
    """Raw samples; `None` in `run.json` when they are many: then they are in `samples.parquet`."""
    samples_bytes: int | None = None
    """Size of `samples.parquet`, by which a half-copied run shows."""
    audited_arms: tuple[str, ...] = ()
    """Arms with an audit beside the record (`Store.audits`)."""
    traced_arms: tuple[str, ...] = ()
    """Arms with a Kineto trace of one step beside the record (`Store.trace`)."""
    duration_s: float | None = None
    notes: tuple[str, ...] = ()
