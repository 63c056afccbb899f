"""An emulated audit in a process of its own, for a process that uses a real GPU as well.

The emulated device takes torch's slot for other backends, which is for the life of a process and
which a backward pass on the real GPU does not survive.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapless.program_audit import audit_program
from harness.errors import GaplessError, WorkloadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.record.audit_report import AuditReport


def audit_emulated(
    words: Sequence[str], *, steps: int | None, skip: int | None, **settings: Any
) -> AuditReport:
    """As `audit_program`, in a child process where this one may use a real GPU."""
    import torch

    run = audit_in_child if torch.cuda.is_available() else audit_program
    return run(words, steps=steps, skip=skip, **settings)


def audit_in_child(
    words: Sequence[str], *, steps: int | None, skip: int | None, **settings: Any
) -> AuditReport:
    """As `audit_program`, in a child process that shares this one's output.

    Raises what the audit raises, and `WorkloadError` where the child ends without an answer.
    """
    with tempfile.TemporaryDirectory(prefix="gapless-") as folder:
        asked, answered = Path(folder, "asked"), Path(folder, "answered")
        own_path = os.environ.get("PYTHONPATH")
        asked.write_bytes(pickle.dumps((own_path, list(words), steps, skip, settings)))
        # The child finds these packages and the user's modules where this process does.
        paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        command = [sys.executable, "-m", __name__, str(asked), str(answered)]
        code = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}).returncode
        if not answered.is_file():
            raise WorkloadError(
                f"The process that audited {words[0]} ended with status {code} and no report; run "
                "the script by itself to see why."
            )
        answer: Any = pickle.loads(answered.read_bytes())
    if isinstance(answer, GaplessError):
        raise answer
    report: AuditReport = answer
    return report


def main(asked: str, answered: str) -> None:
    """The child: audit what the file `asked` says, and leave the report or the error."""
    own_path, words, steps, skip, settings = pickle.loads(Path(asked).read_bytes())
    if own_path is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = own_path
    answer: AuditReport | GaplessError
    try:
        answer = audit_program(words, steps=steps, skip=skip, **settings)
    except GaplessError as error:
        answer = error
    Path(answered).write_bytes(pickle.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
