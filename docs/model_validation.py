"""Write docs/model-validation.md: the virtual clock beside everything it can be compared with.

python docs/model_validation.py                        write the page from the records that ship
python docs/model_validation.py --run all              model the published rows anew first
python docs/model_validation.py --run checkpoint-reload:qwen3-8b-packed-sft
python docs/model_validation.py --traces DIR           compare with recorded kernels anew
python docs/model_validation.py --cpu                  calibrate and check on this CPU anew
python docs/model_validation.py --account --floor      take steps apart, and model published steps
python docs/model_validation.py --check                write nothing; fail where the page is stale
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from model_page import page
from step_account import accounts, check_floor

from gapless.bench_run import variants_of
from gapless.published_models import model_claims, published_models
from gapless.published_runs import plan_runs
from gapless.shipped import shipped_results
from scenarios.published import CLAIMS
from scenarios.published_setups import SETUPS

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "model-validation.md"
DATA = ROOT / "docs" / "model-validation.json"

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


def run_rows(wanted: Sequence[str]) -> None:
    """Model the set-ups that are named `optimization:scenario[:number]`, or all."""
    choices = variants_of()
    for run in plan_runs(CLAIMS):
        row = f"{run.optimization}:{run.scenario}"
        for number in range(len(SETUPS[run.optimization, run.scenario])):
            if {"all", row, f"{row}:{number}"} & set(wanted):
                print(f"{row}:{number}", file=sys.stderr)
                model_claims(run, number, choices, store=str(shipped_results()))


def compare_kernels(folder: Path) -> list[dict[str, Any]]:
    """Errors by class for each trace of `TRACES` in `folder`."""
    from harness.clock.costs import catalogue_costs
    from harness.clock.gpus import find_gpu
    from harness.clock.recorded_kernels import class_errors, recorded_ops

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
    parser.add_argument("--account", action="store_true")
    parser.add_argument("--floor", action="store_true")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    data: dict[str, Any] = msgspec.json.decode(DATA.read_bytes()) if DATA.is_file() else {}
    if asked.traces is not None:
        data["kernels"] = compare_kernels(asked.traces)
    if asked.cpu:
        data["cpu"] = check_cpu()
    if asked.account:
        data["account"] = accounts()
    if asked.floor:
        data["floor"] = check_floor()
    if asked.traces is not None or asked.cpu or asked.account or asked.floor:
        DATA.write_bytes(msgspec.json.format(msgspec.json.encode(data), indent=1) + b"\n")
    if asked.run:
        run_rows(asked.run)
    text = page(published_models(), data)
    if asked.check:
        if PAGE.read_text(encoding="utf-8") != text:
            raise SystemExit(f"{PAGE.relative_to(ROOT)} is stale: run docs/model_validation.py.")
        return
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
