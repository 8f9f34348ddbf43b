"""The exceptions that every room may raise. Without torch: children of rewards import this."""

from __future__ import annotations

from collections.abc import Iterable

# Begins the note of an error that ended a run: where its traceback is, and how to resume the run.
RUN_FAILED = "the run has failed"


class UserError(ValueError):
    """An error that the user can correct. The message names the key, the value and the remedy."""


class StopRequested(BaseException):
    """A signal (SIGTERM, SIGHUP, SIGUSR1) stops the run: no error, like KeyboardInterrupt."""


class JobsFailed(Exception):
    """Some jobs of a sweep failed, or their stages did; the others are done."""


class RecordChanged(Exception):
    """A file that a run writes was changed by another process meanwhile: the run has failed."""


def refuse_first_of(refusals: Iterable[tuple[bool, str]], what: str) -> None:
    """Raise UserError for the first case that applies: `what`, and its reason with the remedy."""
    for is_refused, why in refusals:
        if is_refused:
            raise UserError(f"{what} {why}")
