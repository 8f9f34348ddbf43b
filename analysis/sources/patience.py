"""Asking a server again when it asks to be left alone for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from rlhf_lab.types.errors import UserError

ATTEMPTS = 6
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
# What a server says when it is asked too often, or cannot answer just now.
LATER = (408, 429, 500, 502, 503, 504)
T = TypeVar("T")


@dataclass
class Patience:
    """Asks again where a server asks to, waiting twice as long each time; counts all of it.

    sleep: tests pass their own.
    """

    sleep: Callable[[float], None] = time.sleep
    asked: int = 0
    repeated: int = 0
    waited_seconds: float = 0.0

    def __call__(self, ask: Callable[[], T], what: str) -> T:
        """The answer. Raises UserError if the server refuses, for good or ATTEMPTS times."""
        wait = FIRST_WAIT
        for attempt in range(1, ATTEMPTS + 1):
            self.asked += 1
            try:
                return ask()
            except Exception as error:
                if refused_for_good(error):
                    raise UserError(
                        f"wandb's server refused {what} (status {answered(error)}: {error}): check "
                        "entity and project, and what `wandb login` says"
                    ) from error
                if not is_for_now(error):
                    raise
                if attempt == ATTEMPTS:
                    raise UserError(
                        f"wandb's server refused {what} {ATTEMPTS} times ({error}): try again "
                        "later; what was read is kept where --cache names a folder"
                    ) from error
                pause = min(LONGEST_WAIT, asked_for(error) or wait)
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


def is_for_now(error: BaseException) -> bool:
    """Whether an error, or what caused it, asks to come back later."""
    passing = (ConnectionError, TimeoutError)
    return any(status(one) in LATER or isinstance(one, passing) for one in causes(error))


def refused_for_good(error: BaseException) -> bool:
    """Whether a server answered, and not that it should be asked later."""
    return answered(error) is not None and not is_for_now(error)


def answered(error: BaseException) -> int | None:
    """The HTTP status behind an error; None if no server answered."""
    return next((found for one in causes(error) if (found := status(one)) is not None), None)


def status(error: BaseException) -> int | None:
    """The HTTP status that an error carries, of requests or of wandb's service."""
    response = getattr(error, "response", None)
    for holder, name in ((response, "status_code"), (response, "http_status")):
        found = getattr(holder, name, None)
        if isinstance(found, int) and found:
            return found
    return None


def asked_for(error: BaseException) -> float | None:
    """Seconds that a server asked to wait (Retry-After), if it did."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    text = headers.get("Retry-After", "") if isinstance(headers, Mapping) else ""
    return float(text) if text.isdigit() else None
