"""Whether a login is set up. Streamlit does the logging in; this only looks before serving."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

NEEDED = ("redirect_uri", "cookie_secret")
PROVIDER = ("client_id", "client_secret", "server_metadata_url")


def secrets_files() -> tuple[Path, ...]:
    """Where Streamlit looks for secrets: the user's, then this folder's, which wins."""
    name = Path(".streamlit") / "secrets.toml"
    return Path.home() / name, Path.cwd() / name


def missing_login() -> str | None:
    """What a login lacks, as a clause; `None` where it is complete."""
    auth: dict[str, object] = {}
    for path in secrets_files():
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8")).get("auth", {})
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            return f"{path} cannot be read ({error})"
        if isinstance(found, dict):
            auth |= found
    if not auth:
        return "no [auth] section in .streamlit/secrets.toml"
    lacking = [key for key in NEEDED if not auth.get(key)]
    providers = [value for value in auth.values() if isinstance(value, dict)] or [auth]
    lacking += [key for key in PROVIDER if not any(provider.get(key) for provider in providers)]
    if lacking:
        return f"[auth] lacks {', '.join(lacking)}"
    if importlib.util.find_spec("authlib") is None:
        return "the package Authlib is not installed (pip install 'streamlit[auth]')"
    return None
