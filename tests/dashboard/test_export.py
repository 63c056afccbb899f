"""The export: one file, offline, small, redacted, and hostile text stays text."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from plotly.offline import get_plotlyjs

from dashboard.filters import Filters
from dashboard.html_export import PLOTLY_FILE, collect, export_site
from dashboard.redaction import REDACTED, redacted_audits, redacted_run
from dashboard.snapshot import take_snapshot
from harness.boundary.foreign_text import visible
from harness.errors import UsageError
from tests.dashboard import synthetic
from tests.dashboard.exporting import data_of, exported, unpacked
from tests.dashboard.payloads import PAYLOADS, poisoned
from tests.dashboard.stores import fill_mixed, fill_one

if TYPE_CHECKING:
    from harness.record.store import Store

MAX_BYTES = 4_000_000
"""Two thirds of what is promised: records grow."""


def test_the_file_holds_every_view_and_loads_nothing(store: Store, tmp_path: Path) -> None:
    fill_one(store)
    page = exported(store, tmp_path / "out.html")
    data = data_of(page)
    assert [one["id"] for one in data["pages"]] == ["claims", "ab", "syncs"]
    assert len(data["runs"]) == 1
    kinds = {block["type"] for block in data["blocks"]}
    assert kinds == {"text", "heading", "badges", "chart", "table", "code"}
    outside = re.sub(r"<script[^>]*>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"(?:src|href)=|url\(|@import", outside)
    assert len(re.findall("<script", page.split('id="data"')[0])) == 1
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src &#x27;none&#x27;; script-src &#x27;sha256-")
    assert "unsafe-inline" not in policy[1].split("style-src")[0]
    assert "connect-src" not in policy[1]


def test_the_policy_names_the_scripts_that_are_inside(store: Store, tmp_path: Path) -> None:
    import hashlib
    import html

    fill_one(store)
    page = exported(store, tmp_path / "out.html")
    policy = html.unescape(re.search(r'Policy" content="([^"]*)"', page)[1])
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    scripts.append(unpacked(page, "plotly"))
    hashes = {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts}
    assert len(scripts) == 2
    assert scripts[1] == get_plotlyjs()
    assert hashes == set(re.findall(r"'sha256-([^']*)'", policy))


def test_two_hundred_runs_fit_into_six_megabytes(store: Store, tmp_path: Path) -> None:
    for number in range(200):
        gpu = (None, "NVIDIA H200")[number % 2]
        synthetic.write(store, synthetic.record(number, gpu=gpu), audits=synthetic.AUDITS)
    exported(store, tmp_path / "big.html")
    assert (tmp_path / "big.html").stat().st_size <= MAX_BYTES


def test_other_places_for_the_script(store: Store, tmp_path: Path) -> None:
    fill_one(store)
    page = exported(store, tmp_path / "a" / "out.html", plotlyjs="directory")
    assert (tmp_path / "a" / PLOTLY_FILE).stat().st_size > 1_000_000
    assert len(page) < 200_000
    cdn = exported(store, tmp_path / "cdn.html", plotlyjs="cdn")
    tag = re.search(r'<script src="https://cdn\.plot\.ly/[^"]*" integrity="sha256-[^"]*"', cdn)
    assert tag is not None


def test_a_site_has_a_page_for_each_run_and_one_script(store: Store, tmp_path: Path) -> None:
    fill_one(store)
    snapshot = take_snapshot(store.root)
    runs = collect(snapshot, snapshot.select(Filters()), redact=True)
    export_site(runs, tmp_path / "site")
    run_id = snapshot.facets[0].id
    found = {str(p.relative_to(tmp_path / "site")) for p in (tmp_path / "site").rglob("*.*")}
    assert found == {"index.html", PLOTLY_FILE, f"run/{run_id}.html"}
    index = data_of((tmp_path / "site" / "index.html").read_text(encoding="utf-8"))
    assert index["links"][0]["href"] == f"run/{run_id}.html"
    assert f'src="../{PLOTLY_FILE}"' in (tmp_path / "site/run" / f"{run_id}.html").read_text()


def test_only_readable_runs_are_exported(store: Store, tmp_path: Path) -> None:
    fill_mixed(store)
    assert len(data_of(exported(store, tmp_path / "out.html"))["runs"]) == 1


def test_samples_that_cannot_be_read_are_said(store: Store, tmp_path: Path) -> None:
    fill_one(store)
    run = take_snapshot(store.root).facets[0].id
    parquet = Path(store.root, run, "samples.parquet")
    parquet.write_bytes(b"x" * parquet.stat().st_size)
    data = data_of(exported(store, tmp_path / "out.html"))
    assert any("samples.parquet" in str(block) for block in data["blocks"])


def test_an_export_that_cannot_be_written_is_one_sentence(store: Store, tmp_path: Path) -> None:
    fill_one(store)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot take the export"):
        exported(store, tmp_path / "file" / "out.html")


@pytest.mark.parametrize("payload", PAYLOADS)
def test_hostile_text_never_leaves_the_data(store: Store, tmp_path: Path, payload: str) -> None:
    hostile = poisoned(synthetic.record(1), payload)
    store.write(
        hostile, synthetic.samples(1), audits=[poisoned(a, payload) for a in synthetic.AUDITS]
    )
    page = exported(store, tmp_path / "out.html", redact=False)
    outside = re.sub(r'(<script type="text/plain" id="data">)[^<]*', r"\1", page)
    assert "__hit" not in outside
    assert "evil.example" not in outside
    command = visible(hostile.command)
    assert command in msgspec.json.encode(data_of(page)["blocks"]).decode() or any(
        block.get("text") == command for block in data_of(page)["blocks"]
    )


SECRETS = ("render-node-17", "jdoe", "/data/private", "C:\\Users\\jdoe", "s3://team-bucket")


def secret_record() -> Any:
    base = synthetic.record(1)
    return msgspec.structs.replace(
        base,
        command="gapless bench x --data /data/private/set.jsonl --store s3://team-bucket/runs",
        reason="render-node-17.local: /home/jdoe/train.py failed; see C:\\Users\\jdoe\\log.txt",
        notes=("jdoe ran this on render-node-17 from ~jdoe/work/repo",),
        machine=msgspec.structs.replace(base.machine, hostname="render-node-17"),
        scenario=msgspec.structs.replace(base.scenario, weights="/data/private/weights"),
        steadiness=msgspec.structs.replace(
            base.steadiness, warnings=("Load by /home/jdoe/other/job.",)
        ),
    )


def test_redaction_takes_out_hosts_users_paths_and_commands(store: Store, tmp_path: Path) -> None:
    store.write(secret_record(), synthetic.samples(1), audits=synthetic.AUDITS)
    text = json.dumps(data_of(exported(store, tmp_path / "out.html")), ensure_ascii=False)
    for secret in (*SECRETS, "/home/", "someone"):
        assert secret not in text, secret
    assert REDACTED in text
    assert "packing.py" in text, "a file keeps its own name"
    open_text = json.dumps(data_of(exported(store, tmp_path / "open.html", redact=False)))
    assert "render-node-17" in open_text


def test_redaction_changes_no_figure() -> None:
    before, after = secret_record(), redacted_run(secret_record())
    for name in ("comparisons", "memory", "throughput", "arms", "num_samples"):
        assert getattr(after, name) == getattr(before, name), name
    audits = redacted_audits(before, synthetic.AUDITS)
    assert audits[0].report.sites[0].file == "packing.py"
    assert audits[0].report.sites[0].count_per_step == 159
