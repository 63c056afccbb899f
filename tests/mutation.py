"""Changes the code of the figures, one place at a time, and counts the changes a test notices.

    python -m tests.mutation [PATTERN...]     such as "harness.stats*"; all of them without one

Which files, and which tests look at them, stands in `[tool.mutmut]` of pyproject.toml. Ends with 1
where less than nine in ten changes are noticed. What goes unnoticed is listed; `mutmut show NAME`
prints the change.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENOUGH = 0.9
SURVIVED, NO_TEST = 0, 33
"""What mutmut keeps of a change: the exit code of the tests, or that none runs it."""


def scores(folder: Path) -> dict[str, tuple[int, list[str]]]:
    """Module -> how many of its changes were tried, and which of them no test noticed."""
    found = {}
    for meta in sorted(folder.rglob("*.meta")):
        codes = json.loads(meta.read_text())["exit_code_by_key"]
        tried = {name: code for name, code in codes.items() if code is not None}
        if tried:
            module = str(meta.relative_to(folder)).removesuffix(".py.meta")
            unnoticed = [name for name, code in tried.items() if code in (SURVIVED, NO_TEST)]
            found[module] = (len(tried), unnoticed)
    return found


def main(patterns: list[str]) -> int:
    """Run mutmut, print a line a module and every change that went unnoticed."""
    # Each change is tried in a forked process, which torch survives with one thread.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    mutmut = Path(sys.executable).with_name("mutmut")
    command = [str(mutmut), "run", "--max-children", "2", *patterns]
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    found = scores(ROOT / "mutants")
    if not found:
        print(f"mutmut tried nothing and ended with {code}; its output above says why.")
        return 1
    tried = noticed = 0
    for module, (number, unnoticed) in found.items():
        tried, noticed = tried + number, noticed + number - len(unnoticed)
        print(f"{module}: {number - len(unnoticed)} of {number} noticed")
        for name in unnoticed:
            print(f"    {name}")
    print(f"All: {noticed} of {tried} noticed, {100 * noticed / tried:.1f} %")
    return int(noticed < ENOUGH * tried)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
