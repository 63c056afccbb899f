"""One browser and one server for all browser tests; skipped with what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.record.store import Store
from tests.browser.browsing import browser, missing_browser, serving
from tests.dashboard import synthetic
from tests.dashboard.payloads import PAYLOADS, poisoned

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
TRACE = HERE.parent / "trace" / "data" / "a100_control_step1010.json.gz"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = missing_browser()
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.browser)
            if missing:
                item.add_marker(pytest.mark.skip(reason=f"needs a browser: {missing}"))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Runs of every kind: measured on two devices, modelled, audited, traced."""
    store = Store(str(tmp_path_factory.mktemp("made-up")))
    trace = TRACE.read_bytes()
    for number, gpu in enumerate((None, "NVIDIA H200")):
        synthetic.write(
            store,
            synthetic.record(number, gpu=gpu),
            audits=synthetic.AUDITS,
            traces={"baseline": trace, "all": trace},
        )
    for number, gpu in enumerate(("H100", "B200"), start=10):
        synthetic.write(store, synthetic.record(number, source="modelled", gpu=gpu))
    return store


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One run for each payload, in every field that holds free text."""
    store = Store(str(tmp_path_factory.mktemp("hostile")))
    for number, payload in enumerate(PAYLOADS):
        made = poisoned(synthetic.record(number), payload)
        audits = [poisoned(audit, payload) for audit in synthetic.AUDITS]
        store.write(made, synthetic.samples(number), audits=audits)
    return store


@pytest.fixture(scope="session")
def made_up_server(made_up: Store) -> Iterator[str]:
    with serving(made_up.root) as base:
        yield base
