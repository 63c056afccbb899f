"""The fixture counts, the marker bounds, and neither imports torch before it is used."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from gapless.sync_counters import EmulatedSyncAudit

pytest_plugins = ["pytester"]

BODY = """
    import pytest, torch, gapless

    def read(times):
        x = torch.ones(3, device="cuda")
        for _ in range(times):
            x.sum().item()

    def test_counts(sync_audit):
        read(2)
        assert sync_audit.count == 2

    def test_intended_waits_do_not_count(sync_audit):
        with gapless.allow_sync("logging"):
            read(1)
        assert sync_audit.count == 0

    @pytest.mark.max_syncs(1)
    def test_within_bound():
        read(1)

    @pytest.mark.max_syncs(1)
    def test_over_bound():
        read(3)

    def test_device_is_gone():
        assert not torch.cuda.is_available()
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="counts are exact on the emulated GPU")
def test_fixture_and_marker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(BODY)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["*The test has 3 syncs; max_syncs allows 1.*", "*x.sum().item()*"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU torch says what ran")
def test_a_bound_that_says_nothing_fails_its_test_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest, torch

        @pytest.mark.max_syncs
        def test_without_a_number(): pass

        @pytest.mark.max_syncs(0)
        def test_on_the_cpu(): torch.ones(2).sum().item()

        @pytest.mark.max_syncs(0)
        def test_on_the_device(): torch.ones(2, device="cuda").sum()

        def test_beside(): pass
    """)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(
        ["*Write the marker as max_syncs(2)*", "*Nothing of the test ran on a GPU*"]
    )


def test_a_project_with_a_harness_of_its_own_keeps_its_tests(pytester: pytest.Pytester) -> None:
    pytester.mkpydir("harness")
    pytester.makepyfile("import harness\ndef test_it(): assert harness.__file__\n")
    result = pytester.run(sys.executable, "-m", "pytest", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*The pytest plugin of gapless is off*harness*"])


def test_the_plugin_imports_no_torch() -> None:
    code = "import sys, gapless.pytest_plugin; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="the report is the emulated audit's")
def test_what_was_found_can_be_asked_inside(sync_audit: EmulatedSyncAudit) -> None:
    torch.ones(2, device="cuda").tolist()
    assert [site.kind for site in sync_audit.report.sites] == ["d2h_copy"]
    assert "torch.ones(2" in sync_audit.explain()
