"""What pytest loads: the plugin itself, or one sentence where it cannot be loaded.

A module of its own beside the packages, because pytest loads it in every project of an environment:
where a project has a folder named like one of ours, its tests must run all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Register the fixture and marker of `gapless.pytest_plugin`."""
    try:
        from gapless import pytest_plugin
    except ImportError as error:
        off = UserWarning(f"The pytest plugin of gapless is off: {error}")
        config.issue_config_time_warning(off, stacklevel=2)
    else:
        config.pluginmanager.register(pytest_plugin, "gapless-plugin")
