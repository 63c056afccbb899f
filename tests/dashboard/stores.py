"""Fills a store in the states that a dashboard meets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.dashboard import synthetic

if TYPE_CHECKING:
    from harness.record.store import Store


def fill_one(store: Store) -> None:
    synthetic.write(store, synthetic.record(1), audits=synthetic.AUDITS)


def fill_mixed(store: Store) -> None:
    """Good runs, a newer schema, a broken file and a half-copied folder."""
    fill_one(store)
    root = Path(store.root)
    good = next(root.iterdir())
    for name, change in (("newer", {"schema": 99, "id": "newer"}), ("bad", {"arms": 3})):
        folder = root / name
        folder.mkdir()
        content = json.loads((good / "run.json").read_text()) | change
        (folder / "run.json").write_text(json.dumps(content))
        (folder / "samples.parquet").write_bytes((good / "samples.parquet").read_bytes())
    (root / "torn").mkdir()
    (root / "torn" / "run.json").write_text('{"schema": 1, "id": "to')


def fill_modelled(store: Store) -> None:
    number = 10
    for gpu, model, size in (
        ("H100", "Synthetic-8B", 8 * 10**9),
        ("B200", "Synthetic-8B", 8 * 10**9),
        ("H100", "Synthetic-14B", 14 * 10**9),
        ("B200", "Synthetic-14B", 14 * 10**9),
    ):
        made = synthetic.record(
            number, source="modelled", gpu=gpu, model=model, num_parameters=size
        )
        synthetic.write(store, made)
        number += 1


def fill_many(store: Store, num_runs: int = 1000) -> None:
    """Copies of a few runs under many ids, without the writes to disk that make filling slow."""
    root = Path(store.root)
    made = [
        synthetic.write(store, synthetic.record(n, gpu=gpu, model=model))
        for n, (gpu, model) in enumerate(
            ((None, "Synthetic-14B"), ("NVIDIA H200", "Synthetic-8B"), ("B200", "Synthetic-14B"))
        )
    ]
    texts = [
        ((root / r.id / "run.json").read_text(), (root / r.id / "samples.parquet").read_bytes())
        for r in made
    ]
    for number in range(len(made), num_runs):
        template = made[number % len(made)]
        text, parquet = texts[number % len(made)]
        run_id = f"{template.id[:-6]}{number:06x}"
        (root / run_id).mkdir()
        (root / run_id / "run.json").write_text(text.replace(template.id, run_id))
        (root / run_id / "samples.parquet").write_bytes(parquet)
