"""What went wrong in the user's own code, in one sentence with the place."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.audit.frames import Code, CodeClassifier
from harness.boundary.foreign_text import one_line
from harness.errors import GaplessError, WorkloadError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST = 300
"""Characters of an error's own message that are shown."""


class AuditComplete(BaseException):
    """Raised out of the audited code once all requested steps are recorded; no user sees it.

    Not an `Exception`, so that a script's own `except Exception` does not swallow it.
    """


def workload_error(what: str, error: BaseException, classifier: CodeClassifier) -> WorkloadError:
    """The error for `what` having raised `error`: innermost line of the user's, and its message."""
    place = _user_line(error, classifier)
    where = f" at {place}" if place else ""
    said = one_line(error_text(error))
    if len(said) > _LONGEST:
        said = f"{said[:_LONGEST]} ..."
    colon = ": " if said else ""
    return WorkloadError(f"{what} raised {type(error).__name__}{where}{colon}{said}")


def error_text(error: BaseException) -> str:
    """An error's own message, also where it fails to give one."""
    try:
        return str(error)
    except Exception:
        return "(its message cannot be shown)"


@contextmanager
def as_workload_error(what: str, classifier: CodeClassifier) -> Iterator[None]:
    """Errors of the audited code leave the block as `WorkloadError`, our own as they are.

    So does whatever else ends the code early, such as `sys.exit` in a step; a stop by the user does
    not.
    """
    try:
        yield
    except (GaplessError, KeyboardInterrupt, AuditComplete):
        raise
    except BaseException as error:
        raise workload_error(what, error, classifier) from error


def _user_line(error: BaseException, classifier: CodeClassifier) -> str | None:
    place = None
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if classifier.kind(code) is Code.USER:
            place = f"{code.co_filename}:{traceback.tb_lineno} in {code.co_name}"
        traceback = traceback.tb_next
    if place is None and isinstance(error, SyntaxError) and error.filename:
        place = f"{error.filename}:{error.lineno}"
    return place
