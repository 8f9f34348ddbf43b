"""Repeat calls to a server that answers that it is busy or that there are too many calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from rlhf_lab.types.errors import UserError

ATTEMPTS = 6
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
# HTTP statuses of too many calls, and of a server that cannot answer at the moment.
LATER = (408, 429, 500, 502, 503, 504)
T = TypeVar("T")


@dataclass
class Patience:
    """Calls a server, and repeats calls that fail for the moment, each time after twice the wait.

    calls, repeated, waited_seconds: counts. sleep: tests pass their own.
    """

    sleep: Callable[[float], None] = time.sleep
    calls: int = 0
    repeated: int = 0
    waited_seconds: float = 0.0

    def __call__(self, ask: Callable[[], T], what: str) -> T:
        """The answer. Raises UserError if the server refuses, for good or ATTEMPTS times."""
        wait = FIRST_WAIT
        for attempt in range(1, ATTEMPTS + 1):
            self.calls += 1
            try:
                return ask()
            except Exception as error:
                if is_final(error):
                    raise UserError(
                        f"wandb's server refused {what} (status {status_of(error)}: {error}): "
                        "check entity and project, and what `wandb login` prints"
                    ) from error
                if not is_temporary(error):
                    raise
                if attempt == ATTEMPTS:
                    raise UserError(
                        f"wandb's server refused {what} {ATTEMPTS} times ({error}): try again "
                        "later; what was read is kept where --cache names a folder"
                    ) from error
                pause = min(LONGEST_WAIT, requested_wait(error) or wait)
            self.repeated += 1
            self.waited_seconds += pause
            self.sleep(pause)
            wait *= 2
        raise AssertionError("the last attempt returns or raises")


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what caused it; wandb's own keep their cause as `exc`."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = getattr(seen, "exc", None) or seen.__cause__


def is_temporary(error: BaseException) -> bool:
    """Whether an error, or its cause, is one after which a later call can succeed."""
    passing = (ConnectionError, TimeoutError)
    return any(own_status(one) in LATER or isinstance(one, passing) for one in causes(error))


def is_final(error: BaseException) -> bool:
    """Whether a server answered with an error that a later call would meet again."""
    return status_of(error) is not None and not is_temporary(error)


def status_of(error: BaseException) -> int | None:
    """The HTTP status behind an error; None if no server answered."""
    return next((found for one in causes(error) if (found := own_status(one)) is not None), None)


def own_status(error: BaseException) -> int | None:
    """The HTTP status that an error carries, of requests or of wandb's service."""
    response = getattr(error, "response", None)
    for holder, name in ((response, "status_code"), (response, "http_status")):
        found = getattr(holder, name, None)
        if isinstance(found, int) and found:
            return found
    return None


def requested_wait(error: BaseException) -> float | None:
    """Seconds to wait by the server's Retry-After header; None without one."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    text = headers.get("Retry-After", "") if isinstance(headers, Mapping) else ""
    return float(text) if text.isdigit() else None
