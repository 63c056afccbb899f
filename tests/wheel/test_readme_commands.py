"""Every command that the README gives runs after a plain installation, as it stands there.

Runs that take minutes get fewer layers or seconds; nothing else is changed.
"""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from harness import origin
from tests.wheel.run import ROOT

pytestmark = pytest.mark.skipif(
    str(ROOT) == origin.HOME, reason="gapless is a clone here; `make test-wheel` installs it"
)

GAPLESS = Path(sys.executable).with_name("gapless")
TRAIN = """
import argparse

import torch


def build():
    model = torch.nn.Linear(8, 8).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        loss = model(torch.ones(2, 8, device="cuda")).sum()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, required=True)
    parser.parse_args()
    step = build()
    for _ in range(3):
        step()
"""
SHORTER = {
    "reproduce": "--only metadata-qwen3-0.6b-batch --seconds 20",
    "bench": "--layers 2 --tokens 64 --seconds 1 --threads 1",
    "model": "--layers 2",
}


def readme_commands() -> list[str]:
    """The lines of its shell blocks that begin with `gapless`, and the commands in its text.

    A verb alone in the text is a mention where the page gives it with arguments, too.
    """
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    commands = [re.sub(r"\s+#.*", "", line) for line in lines if line.startswith("gapless ")]
    with_arguments = {command.split()[1] for command in commands}
    for command in re.findall(r"`(gapless [a-z][^`]*)`", text):
        _, verb, *words = command.split()
        if words or verb not in with_arguments:
            commands.append(command)
    return list(dict.fromkeys(commands))


def test_the_readme_has_its_commands() -> None:
    verbs = {command.split()[1] for command in readme_commands()}
    assert verbs >= {"reproduce", "audit", "list", "bench", "model", "export", "report", "doctor"}


def shorter(verb: str, words: list[str]) -> list[str]:
    """Options that make a command take seconds, but for those that it has itself."""
    own = SHORTER.get(verb, "").split()
    return [
        word
        for option, value in zip(own[::2], own[1::2], strict=True)
        if option not in words
        for word in (option, value)
    ]


@pytest.mark.timeout(900)  # on a machine with other work
@pytest.mark.parametrize(
    "command", [words for words in readme_commands() if words != "gapless dashboard"]
)
def test_a_command_of_the_readme(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GAPLESS_STORE")  # as a user has it: `results` here, or what came with it
    (tmp_path / "train.py").write_text(TRAIN)
    trace = ROOT / "tests" / "trace" / "data" / "a100_control_step1010.json.gz"
    shutil.copy(trace, tmp_path / "trace.json.gz")
    verb, *words = shlex.split(command)[1:]
    done = subprocess.run(
        [GAPLESS, verb, *words, *shorter(verb, words)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=880,
    )
    assert done.returncode == 0, done.stderr
    assert "needs" not in done.stderr


def test_the_dashboard_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GAPLESS_STORE")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    words = [GAPLESS, "dashboard", "--no-browser", "--port", port]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL) as server:
        try:
            assert answer(f"http://127.0.0.1:{port}/_stcore/health", server) == b"ok"
        finally:
            server.kill()


def answer(address: str, server: subprocess.Popen[bytes]) -> bytes:
    """What the server says as soon as it listens."""
    while server.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=10) as page:
                return bytes(page.read())
        except urllib.error.URLError:
            time.sleep(0.2)
    raise AssertionError(f"the server ended with {server.returncode}")
