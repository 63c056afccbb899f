"""Start TensorBoard on loopback and read what its PyTorch profiler plugin serves."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_DEADLINE_S = 90.0


def plugin_data(logdir: Path) -> tuple[list[str], list[str]]:
    """Runs and workers that the plugin found in `logdir`."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir)]
    command += ["--host", "127.0.0.1", "--port", "0", "--load_fast", "false"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        base = f"http://127.0.0.1:{_port(server)}/data/plugin/pytorch_profiler"
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            found = _get(f"{base}/runs")
            if found["runs"] and not found["loading"]:
                break
            if time.monotonic() > deadline:
                raise TimeoutError("the plugin found no run")
            time.sleep(0.3)
        run = found["runs"][0]
        view = _get(f"{base}/views?run={urllib.parse.quote(run)}")[0]
        query = urllib.parse.urlencode({"run": run, "view": view})
        return found["runs"], _get(f"{base}/workers?{query}")
    finally:
        server.terminate()
        server.wait(timeout=20)
        if server.stderr is not None:
            server.stderr.close()


def _port(server: subprocess.Popen[str]) -> int:
    assert server.stderr is not None
    for line in server.stderr:
        match = re.search(r"http://[^:]+:(\d+)", line)
        if match:
            return int(match[1])
    raise RuntimeError("TensorBoard ended without serving")


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return json.load(answer)
