"""What goes wrong, or ends early, in words that every part of the lab knows."""

from __future__ import annotations


class UserError(ValueError):
    """Something the user can mend. The message names the key, the value and the remedy."""


class StopRequested(BaseException):
    """The run was asked to stop (SIGTERM, SIGUSR1). Like KeyboardInterrupt, it is no error."""


class JobsFailed(Exception):
    """Some jobs of a sweep failed, or their stages did; the others are done."""
