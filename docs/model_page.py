"""The text of docs/model-validation.md, from modelled records and the figures kept beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from model_checks import account, cpu, kernels, peers, simplifications

from gapless.modelled import phase_ms
from gapless.published_models import command_of
from gapless.published_runs import plan_runs
from harness.tables import figures
from harness.tables.grid import Table, to_markdown
from scenarios.published import CLAIMS, MICROBENCH
from scenarios.published_setups import GPU, SETUPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.record.records import Claim, RunRecord


def page(records: Sequence[RunRecord], data: dict[str, Any]) -> str:
    """The whole page."""
    parts = [
        "# How far to trust the virtual clock",
        "",
        (
            "Written by `python docs/model_validation.py`. Every modelled figure comes from one "
            "set of parameters: `harness/clock/gpus.toml` (published rates), "
            "`harness/clock/efficiency.toml` (shares of them) and the host times in "
            "`harness/clock/costs.py`. None was chosen for a row below; nothing here was "
            "measured on a GPU of ours."
        ),
        "",
        (
            "A row is modelled once where its conditions are published or follow from what is. "
            "Where they are not, each set-up of a stated list is modelled, and the row's figure "
            "is the range over them; `gapless/published_models.py` holds the lists."
        ),
        "",
        *_reload(records),
        *_floor(data.get("floor", {})),
        *_metadata(records),
        *_routing(records),
        *account(data.get("account", [])),
        *kernels(data.get("kernels", [])),
        *cpu(data.get("cpu", [])),
        *peers(),
        *simplifications(),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _reload(records: Sequence[RunRecord]) -> Iterable[str]:
    rows = []
    for claim, record in _modelled(records, "checkpoint-reload"):
        gain = _gain(record, claim)
        extra = _extra_bytes(record, claim)
        before, after = _batch_ms(record, claim)
        published = claim.baseline_steps_per_s
        optimized = claim.optimized_steps_per_s
        saved = 1e3 / published - 1e3 / optimized if published and optimized else None
        rows.append(
            (
                claim.model,
                f"{_tokens(record):,}",
                figures.percent(claim.value),
                figures.percent(gain),
                _points(gain, claim.value),
                figures.milliseconds(saved),
                figures.milliseconds(round(before - after, 6)),
                _rate(published),
                _rate(1e3 / before),
                _relative(1e3 / before, published),
                figures.byte_size(claim.extra_memory_bytes),
                figures.byte_size(extra),
            )
        )
    columns = (
        "Model", "Tokens", "Gain published", "modelled", "off by", "Saved a step published",
        "modelled", "Steps/s published", "modelled", "off by", "Extra memory published", "modelled",
    )  # fmt: skip
    yield "## Double-buffered reload, B200"
    yield ""
    yield to_markdown(Table(columns, tuple(rows)))
    yield ""
    yield (
        "LoRA, documents of about 2,048 tokens, varlen attention, each arm's step run by the bench "
        "itself. Tokens are not published; they follow from the extra memory, which is one buffer "
        "of tokens x hidden size x 2 bytes. Wanted: gain within 1.5 points, rate within 25 %, "
        "extra memory within 5 %."
    )
    yield ""
    yield (
        "The gains agree better than what they are made of. The clock hides all reloads but the "
        "first, so it saves a fifth to a quarter more than was published (79 to 84 % of that "
        "ceiling); and its step is slower, because the library's model runs its norms, rotary "
        "embedding and adapters as separate kernels where the published code fuses them. As a "
        "share of the step the two nearly cancel."
    )
    yield ""
    yield (
        "Llama-3.2-1B is the row of the review, which found +0.4 % and called it noise. Its memory "
        "of 1.530 and 1.532 GB says that the second buffer has 2 MiB, with which buffers start in "
        "the published code; it copies only inputs larger than that, so most likely neither arm "
        "copied anything. Its 24,436 tokens/s say about 1,900 at the step times of the next table. "
        "Both are modelled, and the published figure lies between them: at 512 tokens an input has "
        "2 MiB and stays (and the buffers, made when first needed here, take nothing); at 2,048 "
        "the modelled device waits for the copies. By hand: 15 copies of 8 MiB are 2.3 ms, or "
        "2.7 % of the 84 ms that 2,048 tokens take at the published rate."
    )
    yield ""


def _floor(floor: dict[str, Any]) -> Iterable[str]:
    if not floor:
        return
    rows = [
        (
            f"{row['tokens']:,}",
            figures.milliseconds(row["offload_ms"]),
            figures.milliseconds(row["modelled_offload_ms"]),
            figures.milliseconds(row["plain_ms"]),
            figures.milliseconds(row["modelled_plain_ms"]),
        )
        for row in floor["rows"]
    ]
    slow = {row["tokens"]: row["modelled_offload_ms"] / row["modelled_double_ms"] - 1
            for row in floor["slow_host"]}  # fmt: skip
    first = floor["rows"][0]
    yield "## Steps that the host decides: Llama-3.2-1B on a B200"
    yield ""
    yield to_markdown(
        Table(
            (
                "Tokens", "Offloaded, published", "modelled", "Plain checkpoints, published",
                "modelled",
            ),
            tuple(rows),
        )
    )  # fmt: skip
    yield ""
    yield (
        "Published are tokens/s of batches of two (unslothai/unsloth #3867, 8 Jan 2026); a step is "
        "tokens over rate. From 512 to 4,096 tokens it takes 74 to 82 ms whatever the tokens: the "
        f"host's time. The clock has {figures.milliseconds(first['modelled_offload_ms'])} for it, "
        f"{floor['host_factor']:.1f} times less: it prices ops, and not a trainer's loop, Python "
        "between ops, 4-bit weights unpacked before each product or an optimizer over hundreds of "
        "small tensors. At 4,096 tokens the modelled device is the slower part, and it meets the "
        "published time by chance: fused kernels would be done sooner."
    )
    yield ""
    yield (
        "So where the host decides, modelled steps are too short and shares of them too large. "
        f"With a host {floor['host_factor']:.1f} times slower the review row becomes "
        + " and ".join(
            f"{figures.percent(gain)} at {tokens:,} tokens" for tokens, gain in slow.items()
        )
        + ". The factor is not used anywhere else: it is of another code on another host. "
        "`gapless calibrate` measures that of yours."
    )
    yield ""


def _metadata(records: Sequence[RunRecord]) -> Iterable[str]:
    rows: list[tuple[str, ...]] = []
    rest: dict[str, list[float]] = {"B200": [], "GB10": []}
    for claim in CLAIMS:
        published = _PUBLISHED_METADATA.get(claim.id)
        if published is None:
            continue
        step_s, saved_ms = published
        rows.append(
            (
                claim.model, "published", "?", "?", "?", figures.milliseconds(1e3 * step_s),
                figures.milliseconds(saved_ms), figures.percent(claim.value),
            )
        )  # fmt: skip
        for record in _of_claim(records, claim):
            before, after = _batch_ms(record, claim)
            rest[_gpu(record)].append(after)
            rows.append(
                (
                    claim.model, _gpu(record), f"{_tokens(record):,}", _documents(record),
                    "yes" if record.scenario.checkpointing else "no",
                    figures.milliseconds(before), figures.milliseconds(before - after),
                    figures.percent(_gain(record, claim)),
                )
            )  # fmt: skip
    columns = (
        "Model", "GPU", "Tokens", "Documents", "Recompute", "Step before", "Saved", "Gain",
    )  # fmt: skip
    yield "## Packed metadata, small models"
    yield ""
    yield to_markdown(Table(columns, tuple(rows)))
    yield ""
    yield (
        "Published are 199 ms or 11.5 % of a step and 319 ms or 14.8 %, which means steps of 1.73 "
        "and 2.16 s. The GPU is named Blackwell, and only for the micro-benchmark; documents, "
        "recompute, adapter, accumulation and the rows' own tokens are not published. Choices "
        "here: 2,048 tokens, those of the micro-benchmark; about 256 documents, which save about "
        "the published milliseconds, or 4, of an ordinary length and with recompute; a B200, or "
        "the slowest Blackwell of the catalogue. The published gains lie inside the ranges."
    )
    yield ""
    yield (
        "Why the ranges are so wide: what is saved is host time, and hardly depends on the GPU; "
        "the rest of the step is the GPU's. With as many documents for both models, the "
        "milliseconds come out for both, within 15 %. The rest does not: the article's steps leave "
        "1.53 and 1.84 s, and a B200 is done with 2,048 tokens in "
        f"{_span(rest['B200'])}, a GB10 in {_span(rest['GB10'])}. So the article's steps are those "
        "of a slower Blackwell and more tokens, or of some twenty accumulated micro-batches of "
        "the 77 ms above; the last would need masks that cost a twentieth of the "
        "micro-benchmark's or less. A percentage modelled for a B200 says what the fix does to a "
        "step of that size, not what the article measured."
    )
    yield ""
    yield from _mask_build(records)
    yield from _metadata_14b(records)


_PUBLISHED_METADATA = {
    "metadata-llama-3.2-1b-batch": (1.73, 199.0),
    "metadata-qwen3-0.6b-batch": (2.16, 319.0),
}
"""Claim -> step in seconds and milliseconds saved in it."""


def _mask_build(records: Sequence[RunRecord]) -> Iterable[str]:
    """One build, from the set-ups without recompute: (layers - 1) builds are saved."""
    published = next(time for time in MICROBENCH if time.id == "metadata-mask-build")
    rows = []
    for claim in CLAIMS:
        if claim.id not in _PUBLISHED_METADATA:
            continue
        found = [
            record
            for record in _of_claim(records, claim)
            if not record.scenario.checkpointing and _gpu(record) == GPU
        ]
        layers = found[0].scenario.config["num_layers"] if found else None
        if not isinstance(layers, int):
            continue
        before, after = _batch_ms(found[0], claim)
        build = (before - after) / (layers - 1)
        saved = _PUBLISHED_METADATA[claim.id][1] / (layers - 1)
        rows.append(
            (
                claim.model,
                f"{published.duration_ms} ms",
                figures.milliseconds(saved),
                figures.milliseconds(build),
                _relative(build, published.duration_ms),
            )
        )
    yield "### One mask build"
    yield ""
    columns = (
        "Model", "Micro-benchmark, published", "Saved a layer, published", "Modelled", "off by",
    )  # fmt: skip
    yield to_markdown(Table(columns, tuple(rows)))
    yield ""
    yield (
        "A build is a loop over documents on the host, and the device is idle under it: 51.6 us a "
        "document here, six launches of 8 us and two views. So the number of documents is the "
        "build, and it is not published; 256 of them is a choice in view of the 13.7 ms, and the "
        "agreement is no result. The article's 0.2 ms for one read of the device are 12 times what "
        "the clock takes, which suggests a slower host: there, some 20 documents would do."
    )
    yield ""


def _metadata_14b(records: Sequence[RunRecord]) -> Iterable[str]:
    claims = [c for c in CLAIMS if c.optimization == "packed-metadata" and c.model == "Qwen3-14B"]
    found = _of_claim(records, claims[0])
    if not found:
        return
    published = ("published", "?", "?", "?", *(figures.percent(claim.value) for claim in claims))
    rows = [
        (
            _gpu(record),
            f"{_tokens(record):,}",
            _documents(record),
            "yes" if record.scenario.checkpointing else "no",
            *(figures.percent(_gain(record, claim)) for claim in claims),
        )
        for record in found
    ]
    columns = ("GPU", "Tokens", "Documents", "Recompute", *(claim.phase for claim in claims))
    yield "### Qwen3-14B, and what its row needs to be true"
    yield ""
    yield to_markdown(Table(columns, (published, *rows)))
    yield ""
    record = found[0]
    before, after = (
        phase_ms(record, _arm(record, variant, claims[0]), "forward")
        for variant in (claims[0].baseline_variant, claims[0].variant)
    )
    if before and after and record.scenario.input is not None:
        needed = 0.433 * after
        documents = record.scenario.input.num_documents_mean
        yield (
            f"The first set-up was chosen in view of the published figure: {_tokens(record):,} "
            f"tokens in {documents:.0f} documents without recompute. Its rebuilds cost "
            f"{figures.milliseconds(before - after)} a forward, and +43.3 % needs "
            f"{figures.milliseconds(needed)} of a forward of {figures.milliseconds(after)}: about "
            f"{documents * needed / (before - after):,.0f} documents at this host's speed, or "
            "fewer on a slower one. A backward without recompute builds no mask and gains nothing; "
            "one with recompute builds as many as the forward and saves the same milliseconds, as "
            "the row of 4 documents on a B200 shows. No set-up gives all three published figures, "
            "and none can: had both saved the same, a backward 2.5 times as long as the forward "
            "would have gained +17 %."
        )
        yield ""


def _routing(records: Sequence[RunRecord]) -> Iterable[str]:
    claims = {claim.phase: claim for claim in CLAIMS if claim.optimization == "moe-routing"}
    rows = []
    for record in _of_claim(records, claims["batch"]):
        syncs = {s.arm: s.count for s in record.syncs if s.phase == "batch"}
        rows.append(
            (
                f"{_tokens(record):,}",
                *(
                    figures.percent(_gain(record, claims[phase]))
                    for phase in ("forward", "backward", "batch")
                ),
                f"{syncs.get('baseline', 0):,.0f}",
                f"{syncs.get('moe-routing=argsort', 0):,.0f}",
            )
        )
    published = ("published: ?", "+23.0%", "+13.0%", "+10.0% to +15.0%", "-", "-")
    yield "## MoE routing, gpt-oss-20b on a B200"
    yield ""
    yield to_markdown(
        Table(
            ("Tokens a step", "Forward", "Backward", "Step", "Syncs before", "after"),
            (published, *rows),
        )
    )
    yield ""
    yield (
        "Published are +23 % forward and +13 % backward in the routing path, 10 to 15 % on a step; "
        "tokens and GPU are not given, so the modelled figure is the range over the tokens, and "
        "the published ones lie inside it. Syncs are exact: 32 experts x 24 layers, in forward and "
        "again in the recompute, are 1,536, and 3 a layer with the fix are 144; two more come "
        "from the masks. The gain falls with the tokens, as the same host time is spread over "
        "more work."
    )
    yield ""


def _of_claim(records: Sequence[RunRecord], claim: Claim) -> tuple[RunRecord, ...]:
    """The newest record of each set-up that speaks to the claim, in the order of the set-ups."""
    run = next(run for run in plan_runs(CLAIMS) if claim in run.claims)
    found = []
    for number in range(len(SETUPS[run.optimization, run.scenario])):
        command = command_of(run, number)
        found += [record for record in records if record.command == command][:1]
    return tuple(found)


def _modelled(records: Sequence[RunRecord], optimization: str) -> Iterable[tuple[Claim, RunRecord]]:
    for claim in CLAIMS:
        if claim.optimization == optimization:
            yield from ((claim, record) for record in _of_claim(records, claim))


def _arm(record: RunRecord, variant: str, claim: Claim) -> str:
    return next(a.name for a in record.arms if a.variants.get(claim.optimization) == variant)


def _gain(record: RunRecord, claim: Claim) -> float | None:
    arm = _arm(record, claim.variant, claim)
    return next(
        (c.speedup for c in record.comparisons if c.arm == arm and c.phase == claim.phase), None
    )


def _batch_ms(record: RunRecord, claim: Claim) -> tuple[float, float]:
    """Steps of the claim's baseline and variant."""
    before, after = (
        phase_ms(record, _arm(record, variant, claim), "batch")
        for variant in (claim.baseline_variant, claim.variant)
    )
    if before is None or after is None:
        raise SystemExit(f"{record.id} has no step time; model it anew with --run.")
    return before, after


def _span(times_ms: Sequence[float]) -> str:
    if not times_ms:
        return figures.UNKNOWN
    low, high = min(times_ms) / 1e3, max(times_ms) / 1e3
    return f"{low:.2f} to {high:.2f} s"


def _gpu(record: RunRecord) -> str:
    return record.machine.device.removeprefix("emulated-").upper()


def _tokens(record: RunRecord) -> int:
    return record.scenario.input.num_tokens if record.scenario.input else 0


def _documents(record: RunRecord) -> str:
    packed = record.scenario.input
    return figures.UNKNOWN if packed is None else f"{packed.num_documents_mean:.0f}"


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
