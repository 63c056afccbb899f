"""Errors that a user can fix. Each message is one sentence: what, where, and how to fix it."""

from __future__ import annotations


class GaplessError(Exception):
    """Base of every error that the command line prints without a traceback.

    `exit_code` follows the contract: 1 a budget or comparison failed, 2 bad usage or not
    comparable, 3 the workload itself failed.
    """

    exit_code = 2


class UsageError(GaplessError):
    """What the user asked for cannot be done as asked."""


class NotComparableError(GaplessError):
    """Two things were to be compared that differ in more than the thing compared."""


class BudgetError(GaplessError):
    """A budget, baseline or comparison failed."""

    exit_code = 1


class WorkloadError(GaplessError):
    """The user's own step, script or model failed."""

    exit_code = 3


class StoreError(GaplessError):
    """A store cannot be read or written."""
