"""The pytest plugin: count the syncs of a test, or bound them.

    def test_step_does_not_wait(sync_audit):
        train_step(batch)
        assert sync_audit.count == 0

    @pytest.mark.max_syncs(2)
    def test_step_waits_twice_at_most(): ...

torch is imported by the first test that asks, so that the plugin costs other test runs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from harness.counts import counted

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from gapless.sync_counters import SyncAudit

_FIXTURE = "sync_audit"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers", "max_syncs(count): fail the test if the host waits for the GPU more often"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A marked test is audited, whether it asks for the fixture or not."""
    for item in items:
        if not (isinstance(item, pytest.Function) and item.get_closest_marker("max_syncs")):
            continue
        if _FIXTURE not in item.fixturenames:
            item.fixturenames.append(_FIXTURE)


@pytest.fixture
def sync_audit() -> Iterator[SyncAudit]:
    """Audits the test: `count` is the number of syncs so far, `report` (once) what they were.

    On a GPU it listens to torch; elsewhere the test runs on the emulated one.
    """
    from gapless.sync_counters import open_sync_audit

    with open_sync_audit() as audit:
        yield audit


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Compare with the marker's bound as part of the test itself."""
    if not pyfuncitem.get_closest_marker("max_syncs"):
        return (yield)
    allowed = _allowed(pyfuncitem)
    result = yield
    audit = cast("SyncAudit", pyfuncitem.funcargs[_FIXTURE])
    if not audit.has_judged:
        pytest.fail(
            "Nothing of the test ran on a GPU, so max_syncs says nothing: make its tensors with "
            "device='cuda', which needs no GPU here.",
            pytrace=False,
        )
    if audit.count > allowed:
        pytest.fail(
            f"The test has {counted(audit.count, 'sync')}; max_syncs allows {allowed}.\n"
            f"{audit.explain()}",
            pytrace=False,
        )
    return result


def _allowed(item: pytest.Function) -> int:
    marker = item.get_closest_marker("max_syncs")
    values = () if marker is None else marker.args
    if len(values) != 1 or not isinstance(values[0], int) or values[0] < 0:
        pytest.fail(
            "Write the marker as max_syncs(2), with the number of syncs that are allowed.",
            pytrace=False,
        )
    return values[0]
