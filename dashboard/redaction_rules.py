"""Which text of which field an export may show, by the form that it must have."""

from __future__ import annotations

import re
from collections.abc import Callable

from harness.findings.finding_catalogue import KINDS
from harness.record.sync_kinds import SyncKind

Rule = Callable[[str], str | None]
"""The text to show, or `None` for none."""

REDACTED = "(redacted)"

PUBLIC_PACKAGES = frozenset((
    "torch", "torchvision", "torchaudio", "transformers", "peft", "trl", "accelerate",
    "datasets", "bitsandbytes", "diffusers", "timm", "flash_attn", "deepspeed", "lightning",
    "pytorch_lightning", "torchtune", "torchtitan", "unsloth", "numpy", "gapless", "harness",
    "optimizations", "scenarios",
))  # fmt: skip
"""Packages whose files anybody can read."""

_MODULES = frozenset((
    "model", "module", "base_model", "transformer", "encoder", "decoder", "layers", "layer",
    "h", "blocks", "block", "stages", "self_attn", "attn", "attention", "cross_attn", "q_proj",
    "k_proj", "v_proj", "o_proj", "qkv_proj", "out_proj", "c_attn", "c_proj", "mlp", "experts",
    "expert", "router", "gate", "gate_proj", "up_proj", "down_proj", "fc1", "fc2", "c_fc",
    "norm", "ln_1", "ln_2", "ln_f", "input_layernorm", "post_attention_layernorm",
    "embed_tokens", "wte", "wpe", "embeddings", "embedding", "rotary_emb", "lm_head", "head",
    "classifier", "conv", "conv1", "conv2", "linear", "linear1", "linear2", "dropout", "proj",
    "act", "activation", "pooler", "weight", "bias", "lora_A", "lora_B", "default",
    "base_layer", "loss",
))  # fmt: skip
"""Parts of a module path that every model has; another part may name what nobody knows of."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 +=,().-]{0,79}")
_HOST = re.compile(r"[A-Za-z0-9-]*[A-Za-z-][A-Za-z0-9-]*(\.[A-Za-z][A-Za-z0-9-]*)+", re.ASCII)
_ADDRESS = re.compile(r"\d{1,3}(\.\d{1,3}){3}")
_TOKEN = re.compile(
    r"(?i)\b(hf|sk|pk|gh[opsu]|glpat|xox[a-z]?|akia|asia|ya29|eyj|key|token|secret|password)"
    r"([-_=: ]|\b)|[A-Za-z0-9]{20,}"
)
_OP = re.compile(r"(aten|prims|prim|c10d|torch|autograd|cuda|_c10d_functional)::[a-z0-9_.]{1,60}")
_API = re.compile(r"(cuda|cu|hip|nccl|rccl)[A-Z][A-Za-z0-9_]{1,50}")
_KERNEL = re.compile(
    r"(void )?(at::native::|cutlass|cublas|cudnn|nccl|flash|pytorch_flash|fmha_|ampere_|sm\d\d_|"
    r"Memcpy |Memset )[A-Za-z0-9_:<>,() ->+*&.\[\]{}#]*"
)
_PLACE = re.compile(r"(?P<file>.*?)(?P<line>:\d+)?(?P<rest> .*)?", re.DOTALL)
_THROTTLES = (
    "software power cap", "hardware slowdown", "sync boost", "software thermal slowdown",
    "hardware thermal slowdown", "hardware power brake",
)  # fmt: skip
_SENTENCES = tuple(
    re.compile(pattern.replace("#", r"[±+-]?[\d.,]+ ?%?"))
    for pattern in (
        r"The machine was busy before the run \(load # per core\): stop other work and run again\.",
        r"The hypervisor gave # of the CPU time to other machines: use a dedicated machine\.",
        r"Other processes used # of the CPU time during the run: stop other work and run again\.",
        rf"The GPU was throttled \((({'|'.join(_THROTTLES)})(, )?)+\): cool it or lower its work\.",
        r"The GPU's clock moved between # and # MHz: lock it with `nvidia-smi --lock-gpu-clocks`\.",
        r"The budget ended the run before every interval was as narrow as #; the widest was #\.",
        r"No arm but the baseline passed parity, so nothing was timed\.",
        r"The store refused the run with its timelines, and took it without them\.",
        r"the same operations in the same order",
        r"another order of additions in (float32|bfloat16|float16)",
    )
)


def dropped(text: str) -> None:
    """Nothing of it."""


def name(text: str) -> str | None:
    """What people call a model, a GPU, a scenario or an arm."""
    hidden = _HOST.search(text) or _ADDRESS.search(text) or _TOKEN.search(text)
    return text if _NAME.fullmatch(text) and not hidden else None


def word(*words: str) -> Rule:
    """One of these words."""
    return lambda text: text if text in words else None


def form(pattern: str) -> Rule:
    """A text of this form as a whole."""
    compiled = re.compile(pattern, re.ASCII)
    return lambda text: text if compiled.fullmatch(text) else None


def arm(text: str) -> str | None:
    """An arm as gapless names it, such as `a=b,c=d`; its words may have underscores."""
    return text if text == "a/a" else name(text.replace("_", "-")) and text


def sentence(text: str) -> str | None:
    """A sentence that gapless itself writes."""
    return text if any(one.fullmatch(text) for one in _SENTENCES) else None


def op(text: str) -> str | None:
    """An op of torch, or a call of the driver."""
    return text if _OP.fullmatch(text) or _API.fullmatch(text) else None


def kernel(text: str) -> str | None:
    """A kernel of a public library."""
    return text if _KERNEL.fullmatch(text) else None


def module(text: str) -> str | None:
    """A module path, its unusual parts left out."""
    parts = [part for part in text.split(".") if part in _MODULES or part.isdigit() or part == "*"]
    return ".".join(parts) if _MODULES.intersection(parts) else None


def place(text: str) -> str | None:
    """`file:line rest`: of a public library the path inside it, of an own file its name."""
    found = _PLACE.fullmatch(text)
    if found is None:
        return None
    where, line, rest = found["file"], found["line"] or "", found["rest"] or ""
    inside = in_public(where)
    if inside is not None and re.fullmatch(r"( [A-Za-z0-9_.<>]{1,80})?", rest):
        return f"{inside}{line}{rest}"
    own = file(where)
    return own and f"{own}{line}"


def file(text: str) -> str | None:
    """A source file: of a public library its path inside it, of an own one its name alone."""
    inside = in_public(text)
    if inside is not None:
        return inside
    last = re.split(r"[\\/]", text)[-1]
    return last if re.fullmatch(r"[A-Za-z0-9_-]{1,60}\.(py|pyx|ipynb)", last) else None


def in_public(text: str) -> str | None:
    """The path inside a public package, package first."""
    parts = re.split(r"[\\/]", text)
    for folder in ("site-packages", "dist-packages"):
        if folder in parts:
            parts = parts[parts.index(folder) + 1 :]
    plain = all(re.fullmatch(r"[A-Za-z0-9_]+(\.py)?", part) for part in parts)
    return "/".join(parts) if plain and len(parts) > 1 and parts[0] in PUBLIC_PACKAGES else None


_VERSION = form(r"\d+(\.\d+){0,2}((a|b|rc|\.dev|\.post)\d+)?(\+(cpu|cu\d+|rocm[\d.]+|xpu))?")
_TIME = form(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_GROWTH = form(r"([LEMNDTK](_hit)?|\d+(\.\d+)?(?![.\d])|[*+/() -])+")
_DEVICE = form(r"[0-9]{1,3}|(cuda|hip|gpu|stream)[ :]?[0-9]{1,5}")
_STEP = form(r"ProfilerStep#?\d{1,9}")
_SITE_KIND = word(*SyncKind)
_ARMS = ("Sample", "Comparison", "Parity", "MemoryPeak", "Throughput", "Energy", "SyncCount")

RULES: dict[tuple[str, str], Rule] = {
    **{(kind, field): arm for kind in (*_ARMS, "Overlap") for field in ("arm", "baseline")},
    ("RunRecord", "id"): dropped,  # Made anew from what is left.
    ("RunRecord", "created_utc"): _TIME,
    ("RunRecord", "reason"): sentence,
    ("RunRecord", "notes"): sentence,
    ("RunRecord", "audited_arms"): arm,
    ("RunRecord", "traced_arms"): arm,
    ("Gpu", "name"): name,
    ("Gpu", "capability"): form(r"\d{1,2}\.\d|gfx[0-9a-f]{3,5}"),
    ("Gpu", "driver"): _VERSION,
    ("Machine", "device"): name,
    ("Machine", "fingerprint"): form(r"[0-9a-f]{8,64}"),
    ("Machine", "platform"): form(r"(Linux|Darwin|macOS|Windows)( (x86_64|aarch64|arm64|AMD64))?"),
    ("Machine", "python"): _VERSION,
    ("Machine", "torch"): _VERSION,
    ("Machine", "transformers"): _VERSION,
    ("Machine", "gapless"): _VERSION,
    ("Machine", "cuda"): _VERSION,
    ("Machine", "cpu_model"): form(r"(AMD|Intel|Apple|ARM|Ampere|NVIDIA)[A-Za-z0-9 ()@.+-]{0,60}"),
    ("Machine", "governor"): word("performance", "powersave", "schedutil", "ondemand"),
    ("Steadiness", "throttle_reasons"): word(*_THROTTLES),
    ("Steadiness", "warnings"): sentence,
    ("InputSummary", "data"): word("sample"),
    ("InputSummary", "tokenizer"): word("bytes"),
    ("ScenarioRecord", "name"): name,
    ("ScenarioRecord", "family"): name,
    ("ScenarioRecord", "model"): name,
    ("ScenarioRecord", "dtype"): word("float32", "bfloat16", "float16", "float64"),
    ("ScenarioRecord", "attention"): word(
        "eager", "sdpa", "sdpa-mask", "varlen", "flash_attention_2", "flash_attention_3",
        "flash_attention_4", "flex_attention",
    ),
    ("ScenarioRecord", "weights"): word("random"),
    ("ScenarioRecord", "adapter"): word("none", "lora", "qlora"),
    ("ScenarioRecord", "config"): word(
        "num_layers", "hidden_size", "intermediate_size", "moe_intermediate_size", "num_heads",
        "num_attention_heads", "num_key_value_heads", "num_kv_heads", "head_dim", "vocab_size",
        "num_experts", "num_experts_per_token", "experts_per_token", "sliding_window", "window",
        "tie_word_embeddings", "tied", "model_type", "scale",
    ),
    ("ScenarioRecord", "narrowed"): form(
        r"(num_|hidden_|head_|moe_|intermediate_|attention_|key_value_|vocab_|sliding_|kv_|size|dim|"
        r"heads|layers|experts|window)+"
    ),
    ("Arm", "name"): arm,
    ("Arm", "variants"): name,
    ("Parity", "quantity"): word("loss", "gradients"),
    ("Parity", "reason"): sentence,
    ("Parity", "worst"): module,
    ("Claim", "id"): name,
    ("Claim", "optimization"): name,
    ("Claim", "baseline_variant"): name,
    ("Claim", "variant"): name,
    ("Claim", "scenario"): name,
    ("Claim", "model"): name,
    ("Claim", "gpu"): name,
    ("ArmAudit", "arm"): arm,
    ("AuditReport", "target"): lambda text: arm(text) or place(text),
    ("AuditReport", "device"): name,
    ("AuditReport", "api_calls"): op,
    ("Site", "op"): op,
    ("Site", "kind"): _SITE_KIND,
    ("Site", "file"): file,
    ("Site", "module"): module,
    ("Site", "library"): place,
    ("Site", "growth"): _GROWTH,
    ("Site", "remedy"): word(*(kind.remedy for kind in SyncKind)),
    ("RedundantGroup", "first"): place,
    ("RedundantGroup", "repeats"): place,
    ("RedundantGroup", "ops"): op,
    ("RedundantGroup", "module"): module,
    ("SiteShare", "place"): place,
    ("SiteShare", "gpu"): name,
    ("ModelledStep", "gpu"): name,
    ("ModelledStep", "without"): place,
    ("Finding", "kind"): word(*KINDS),
    ("Finding", "file"): file,
    ("Finding", "module"): module,
    ("Finding", "phases"): word("data", "forward", "recompute", "backward", "optimizer"),
    ("Finding", "growth"): _GROWTH,
    ("SiteCost", "api"): op,
    ("SiteCost", "op_chain"): op,
    ("SiteCost", "called_from"): place,
    ("SiteCost", "autograd_node"): form(r"[A-Z][A-Za-z]{1,40}Backward\d"),
    ("SiteCost", "forward_op"): op,
    ("KernelTotal", "name"): kernel,
    ("StreamUse", "device"): _DEVICE,
    ("StreamUse", "stream"): _DEVICE,
    ("DeviceUse", "device"): _DEVICE,
    ("StepUse", "name"): _STEP,
    ("ImplicitCalls", "api"): op,
    ("CallLine", "file"): file,
    ("CallLine", "kinds"): word("stream", "device", "event"),
    ("RepeatedUpload", "op"): op,
    ("RepeatedUpload", "where"): place,
    ("RepeatedUpload", "shape"): form(r"[\[\](), \d]{1,80}"),
    ("RepeatedUpload", "memory"): word("pinned", "pageable", "device", "unknown"),
    ("Race", "first"): place,
    ("Race", "second"): place,
}  # fmt: skip
