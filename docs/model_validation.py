"""Write docs/model-validation.md: the virtual clock beside everything it can be compared with.

python docs/model_validation.py                        write the page from the records that ship
python docs/model_validation.py --run all              model the published rows anew first
python docs/model_validation.py --run checkpoint-reload:qwen3-8b-packed-sft
python docs/model_validation.py --traces DIR           compare with recorded kernels anew
python docs/model_validation.py --cpu                  calibrate and check on this CPU anew
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gapless.modelled import model_scenario, phase_ms
from gapless.published_models import SETUPS, SHIPPED, model_claims, published_models
from gapless.reproduce import plan_runs
from gapless.run import variants_of
from harness import figures
from harness.tables import Table, to_markdown
from scenarios.catalogue import get
from scenarios.published import CLAIMS, MICROBENCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.records import Claim, RunRecord

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "model-validation.md"
DATA = ROOT / "docs" / "model-validation.json"
ROUTING_TOKENS = (1024, 4096, 8192)
"""Besides the 2,048 of the row itself."""

TRACES = (
    ("tracelens_h100_owlv2_pystack.json.gz", "H100", "fitted"),
    (
        "tracelens_mi300_owlv2_pystack.json.gz",
        "MI300X",
        "every second op fitted, the others tested",
    ),
    ("tracelens_b200_eager_pystack.json.gz", "B200", "tested (shortest kernel fitted)"),
    ("tracelens_b300_moe_large_capacity.json.gz", "B300", "tested"),
)


def page(records: Sequence[RunRecord], data: dict[str, Any]) -> str:
    """The whole page."""
    parts = [
        "# How far to trust the virtual clock",
        "",
        (
            "Written by `python docs/model_validation.py`. Every modelled figure comes from one "
            "set of parameters: `harness/emulator/gpus.toml` (published rates), "
            "`harness/emulator/efficiency.toml` (shares of them) and the host times in "
            "`harness/emulator/costs.py`. None was chosen for a row below; nothing here was "
            "measured on a GPU of ours."
        ),
        "",
        *_reload(records),
        *_metadata(records),
        *_routing(records),
        *_kernels(data.get("kernels", [])),
        *_cpu(data.get("cpu", [])),
        *_peers(),
        *_simplifications(),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _reload(records: Sequence[RunRecord]) -> Iterable[str]:
    rows = []
    for claim in CLAIMS:
        record = _record(records, claim)
        if claim.optimization != "checkpoint-reload" or record is None:
            continue
        gain = _gain(record, claim)
        extra = _extra_bytes(record, claim)
        base_ms = phase_ms(record, _arm(record, claim.baseline_variant, claim), "batch")
        rate = 1e3 / base_ms if base_ms else None
        rows.append(
            (
                claim.model,
                figures.percent(claim.value),
                figures.percent(gain),
                _points(gain, claim.value),
                _rate(claim.baseline_steps_per_s),
                _rate(rate),
                _relative(rate, claim.baseline_steps_per_s),
                figures.byte_size(claim.extra_memory_bytes),
                figures.byte_size(extra),
                _relative(extra, claim.extra_memory_bytes),
            )
        )
    columns = (
        "Model", "Gain published", "modelled", "off by", "Steps/s published", "modelled", "off by",
        "Extra memory published", "modelled", "off by",
    )  # fmt: skip
    yield "## Double-buffered reload, B200"
    yield ""
    yield to_markdown(Table(columns, tuple(rows)))
    yield ""
    yield (
        "LoRA on Qwen3 sizes at the recovered 49,152, 49,152 and 24,576 tokens, documents of about "
        "2,048, varlen attention, each arm's step run by the bench itself. Wanted: gain within 1.5 "
        "points, rate within 25 %, extra memory within 5 %. The modelled step is slower than the "
        "published one because the library's model runs its norms, rotary embedding and adapters "
        "as separate kernels, where the published code fuses them. The review row "
        "(Llama-3.2-1B) has no published batch; its figure holds for 4,096 tokens."
    )
    yield ""


def _metadata(records: Sequence[RunRecord]) -> Iterable[str]:
    rows = []
    builds = []
    for claim in CLAIMS:
        record = _record(records, claim)
        saved = _PUBLISHED_SAVINGS_MS.get(claim.id)
        if record is None or saved is None:
            continue
        layers = record.scenario.config["num_layers"]
        before, after = (
            phase_ms(record, _arm(record, variant, claim), "forward")
            for variant in (claim.baseline_variant, claim.variant)
        )
        if before is None or after is None or not isinstance(layers, int):
            continue
        builds.append((before - after) / (layers - 1))
        rows.append(
            (
                f"{claim.model}: saved in a step",
                f"{saved:.0f} ms",
                figures.milliseconds(before - after),
                _relative(before - after, saved),
            )
        )
    if builds:
        published = next(time for time in MICROBENCH if time.id == "metadata-mask-build")
        build = sum(builds) / len(builds)
        rows.insert(
            0,
            (
                "one mask build, 2,048 tokens",
                f"{published.duration_ms} ms",
                figures.milliseconds(build),
                _relative(build, published.duration_ms),
            ),
        )
    yield "## Packed metadata: the micro-benchmark"
    yield ""
    yield to_markdown(Table(("What", "Published", "Modelled", "off by"), tuple(rows)))
    yield ""
    yield (
        "The number of documents was not published and decides the build: it is a loop over them. "
        "One count, 256 documents of 8 tokens, stands for all three rows; with fewer documents the "
        "published 13.7 ms need a host that is slower in proportion (the article's 0.2 ms a read "
        "suggests one). Wanted: within 30 %. Not reproduced are the shares: 11.5 % and 14.8 % of a "
        "step imply steps of 1.73 s and 2.16 s, and the modelled steps take a sixth to an eighth "
        "of that; whatever else those steps did is not published."
    )
    yield ""
    yield from _metadata_14b(records)


_PUBLISHED_SAVINGS_MS = {
    "metadata-llama-3.2-1b-batch": 199.0,
    "metadata-qwen3-0.6b-batch": 319.0,
}


def _metadata_14b(records: Sequence[RunRecord]) -> Iterable[str]:
    claims = [c for c in CLAIMS if c.optimization == "packed-metadata" and c.model == "Qwen3-14B"]
    record = _record(records, claims[0])
    if record is None:
        return
    rows = [
        (claim.phase, figures.percent(claim.value), figures.percent(_gain(record, claim)))
        for claim in claims
    ]
    before, after = (
        phase_ms(record, _arm(record, variant, claims[0]), "forward")
        for variant in (claims[0].baseline_variant, claims[0].variant)
    )
    yield "### What the Qwen3-14B row needs to be true"
    yield ""
    yield to_markdown(Table(("Phase", "Published", "Modelled"), tuple(rows)))
    yield ""
    packed = record.scenario.input
    if before and after and packed is not None:
        needed = 0.433 * after
        documents = packed.num_documents_mean
        yield (
            "The number of documents was chosen in view of the published figure, to show what it "
            f"needs. Modelled at {packed.num_tokens:,} tokens in {documents:.0f} documents without "
            "recompute: the rebuilds cost "
            f"{figures.milliseconds(before - after)} a forward, and +43.3 % needs "
            f"{figures.milliseconds(needed)} of a forward of {figures.milliseconds(after)}. That "
            f"is about {documents * needed / (before - after):,.0f} documents at this host's "
            "speed, or fewer on a slower one. The backward row cannot come from the same place: a "
            "backward without recompute builds no mask, and one with recompute builds as many as "
            "the forward, which would give it the same saving in milliseconds and, at 2.5 times "
            "the forward's length, +17 % instead of +5.8 %."
        )
        yield ""


def _routing(records: Sequence[RunRecord]) -> Iterable[str]:
    rows = []
    routing = [r for r in records if r.scenario.name == "gpt-oss-20b"]
    by_tokens = {r.scenario.input.num_tokens: r for r in routing if r.scenario.input is not None}
    for tokens, record in sorted(by_tokens.items()):
        gains = {c.phase: c.speedup for c in record.comparisons if c.arm == "moe-routing=argsort"}
        syncs = {s.arm: s.count for s in record.syncs if s.phase == "batch"}
        rows.append(
            (
                f"{tokens:,}",
                *(figures.percent(gains.get(phase)) for phase in ("forward", "backward", "batch")),
                f"{syncs.get('baseline', 0):,.0f}",
                f"{syncs.get('moe-routing=argsort', 0):,.0f}",
            )
        )
    yield "## MoE routing, gpt-oss-20b on a B200"
    yield ""
    yield to_markdown(
        Table(
            ("Tokens a step", "Forward", "Backward", "Step", "Syncs before", "after"), tuple(rows)
        )
    )
    yield ""
    yield (
        "The row of 2,048 tokens stands for the claim because it lies nearest to it, so its "
        "closeness is a choice and not a result; the range is. "
        "Published: +23 % forward, +13 % backward in the routing path, 10 to 15 % on a step; "
        "tokens and GPU are not given. Syncs are exact: 32 experts x 24 layers, in forward and "
        "again in the recompute, are 1,536, and 3 a layer with the fix are 144; two more come "
        "from the masks. The gain falls with the tokens, as the same host time is spread over "
        "more work; the published figures are bracketed by the smallest and the largest row."
    )
    yield ""


def _kernels(traces: Sequence[dict[str, Any]]) -> Iterable[str]:
    rows = [
        (
            trace["gpu"], trace["role"], error["kind"], f"{error['num_ops']:,}",
            figures.milliseconds(error["recorded_ms"]), figures.milliseconds(error["modelled_ms"]),
            f"{error['median_factor']:.2f}", f"{error['within_two']:.0%}",
        )
        for trace in traces
        for error in trace["errors"]
    ]  # fmt: skip
    columns = (
        "GPU", "Trace was", "Class", "Ops", "Recorded", "Modelled", "Median factor", "Within 2",
    )  # fmt: skip
    yield "## Kernel times of recorded traces"
    yield ""
    yield to_markdown(Table(columns, tuple(rows)))
    yield ""
    yield (
        "Real Kineto traces with shapes from AMD-AGI/TraceLens (MIT); a factor is modelled over "
        "recorded time or its inverse, whichever is above 1. Wanted over all ops: median at most "
        "1.5 and 80 % within 2. None of them holds a backward pass, so attention backward, scatter "
        "and optimizer shares are assumptions. Misses: `gather` on the H100 (15 ops, one of them "
        "by a slow kernel for short rows) and `sort` on the B300 (3 ops of 14 us)."
    )
    yield ""


def _cpu(checks: Sequence[dict[str, Any]]) -> Iterable[str]:
    rows = [
        (
            check["workload"], check["phase"], figures.milliseconds(check["modelled_ms"]),
            figures.milliseconds(check["measured_ms"]),
            figures.percent(check["modelled_ms"] / check["measured_ms"] - 1),
        )
        for check in checks
    ]  # fmt: skip
    yield "## Calibrated on a CPU, against that CPU"
    yield ""
    yield to_markdown(Table(("Workload", "Phase", "Modelled", "Measured", "off by"), tuple(rows)))
    yield ""
    yield (
        "`gapless calibrate --device cpu --check` repeats this anywhere, on one thread and in "
        "processor time, so that other work on the machine does not count. Wanted: within 25 %. "
        "The model is "
        "somewhat short of the measured time: ops are calibrated in a loop of their own, where "
        "code and data are warmer in the caches than inside a model."
    )
    yield ""


def _peers() -> Iterable[str]:
    yield "## Peers"
    yield ""
    yield (
        "`torch.distributed._tools.RuntimeEstimator` also prices ops by a roofline. In torch 2.13 "
        "it asserts a CUDA device (`Roofline estimation needs to access CUDA capabilities`), so it "
        "does not run where this page is written, and there is no figure to put beside ours. By "
        "its source it adds up kernel times: it has no host, no streams, no copies and no syncs, "
        "so a reload, a poll or a rebuild that waits for the host costs nothing in it."
    )
    yield ""


def _simplifications() -> Iterable[str]:
    yield "## Stated simplifications"
    yield ""
    for sentence in (
        (
            "Kernels of different streams run side by side at full speed; they do not share the "
            "multiprocessors."
        ),
        "A copy does not slow the kernels beside it, though it takes some of their bandwidth.",
        "Clocks do not change with power or temperature.",
        "Kernels are those of eager torch; fused or compiled ones are not modelled.",
        "Experts and other choices that depend on data are drawn evenly.",
    ):
        yield f"- {sentence}"
    yield ""


def _record(records: Sequence[RunRecord], claim: Claim) -> RunRecord | None:
    return next((r for r in records if any(c.id == claim.id for c in r.claims)), None)


def _arm(record: RunRecord, variant: str, claim: Claim) -> str:
    return next(a.name for a in record.arms if a.variants.get(claim.optimization) == variant)


def _gain(record: RunRecord, claim: Claim) -> float | None:
    arm = _arm(record, claim.variant, claim)
    return next(
        (c.speedup for c in record.comparisons if c.arm == arm and c.phase == claim.phase), None
    )


def _extra_bytes(record: RunRecord, claim: Claim) -> int | None:
    peaks = {m.arm: m.peak_bytes for m in record.memory if m.phase == "batch"}
    after = peaks.get(_arm(record, claim.variant, claim))
    before = peaks.get(_arm(record, claim.baseline_variant, claim))
    return None if after is None or before is None else after - before


def _points(modelled: float | None, published: float) -> str:
    return figures.UNKNOWN if modelled is None else f"{100 * (modelled - published):+.1f} points"


def _relative(modelled: float | None, published: float | None) -> str:
    if modelled is None or not published:
        return figures.UNKNOWN
    return figures.percent(modelled / published - 1)


def _rate(steps_per_s: float | None) -> str:
    return figures.UNKNOWN if steps_per_s is None else f"{steps_per_s:.4f}"


def run_rows(wanted: Sequence[str]) -> None:
    """Model the rows that are named `optimization:scenario`, or all, and the routing sweep."""
    choices = variants_of()
    for run in plan_runs(CLAIMS):
        name = f"{run.optimization}:{run.scenario}"
        if "all" in wanted or name in wanted:
            print(name, file=sys.stderr)
            model_claims(run, choices, store=str(SHIPPED))
    if "all" in wanted or "routing-sweep" in wanted:
        run = next(r for r in plan_runs(CLAIMS) if r.optimization == "moe-routing")
        for tokens in ROUTING_TOKENS:
            model_scenario(
                get(run.scenario),
                run.arms(choices),
                "B200",
                {**SETUPS[run.optimization, run.scenario], "tokens": tokens},
                store=str(SHIPPED),
                command="python docs/model_validation.py --run routing-sweep",
            )


def compare_kernels(folder: Path) -> list[dict[str, Any]]:
    """Errors by class for each trace of `TRACES` in `folder`."""
    from harness.emulator.costs import catalogue_costs
    from harness.emulator.gpus import find_gpu
    from harness.recorded_kernels import class_errors, recorded_ops

    compared = []
    for file, gpu, role in TRACES:
        ops = recorded_ops(folder / file)
        if "second op" in role:
            ops = ops[1::2]
        errors = class_errors(ops, catalogue_costs(find_gpu(gpu)))
        compared.append(
            {"trace": file, "gpu": gpu, "role": role, "errors": msgspec.to_builtins(errors)}
        )
    return compared


def check_cpu() -> list[dict[str, Any]]:
    """Calibrate this CPU on one thread and check it on small scenarios."""
    from gapless.calibrate import check_on_cpu

    _, checks = check_on_cpu()
    built: list[dict[str, Any]] = msgspec.to_builtins(checks)
    return built


def main() -> None:
    """Refresh what is asked for, then write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", action="append", default=[], metavar="OPT:SCENARIO|all")
    parser.add_argument("--traces", type=Path, metavar="DIR")
    parser.add_argument("--cpu", action="store_true")
    asked = parser.parse_args()
    data: dict[str, Any] = msgspec.json.decode(DATA.read_bytes()) if DATA.is_file() else {}
    if asked.traces is not None:
        data["kernels"] = compare_kernels(asked.traces)
    if asked.cpu:
        data["cpu"] = check_cpu()
    if asked.traces is not None or asked.cpu:
        DATA.write_bytes(msgspec.json.format(msgspec.json.encode(data), indent=1) + b"\n")
    if asked.run:
        run_rows(asked.run)
    PAGE.write_text(page(published_models(), data), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
