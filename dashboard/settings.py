"""How this server was started; `gapless dashboard` says it in the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass

from harness.record.storage import default_store


@dataclass(frozen=True)
class Settings:
    """What pages and routes need to know."""

    store: str
    needs_login: bool
    is_public: bool
    """Reached from other machines."""


def read_settings() -> Settings:
    """Settings of this process; without any, the folder `results` for this machine alone."""
    return Settings(
        store=default_store(),
        needs_login=os.environ.get("GAPLESS_DASHBOARD_ACCESS") == "login",
        is_public=os.environ.get("GAPLESS_DASHBOARD_REACH") == "public",
    )
