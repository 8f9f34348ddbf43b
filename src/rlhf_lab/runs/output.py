"""Standard output and error as a courtesy: their loss ends no command.

A terminal is closed, the reader of a pipe ends, a disk fills up, or a descriptor was never open.
Such a stream becomes silent, also for what other code writes to its descriptor. A command whose
output is its product looks at `lost`. What is printed of texts that others wrote has no character
that a terminal obeys (`printable`). The standard library only: children of rewards import this.
"""

from __future__ import annotations

import io
import os
import select
import sys
import unicodedata
from typing import TextIO

CLOSED = "closed from the start"
# By descriptor: why its stream is silent.
_lost: dict[int, str] = {}
NAMES = {1: "stdout", 2: "stderr"}


class Courtesy(io.RawIOBase):
    """A descriptor to write to, which is replaced by the null device when that fails."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: object) -> int:
        content = bytes(data)  # type: ignore[call-overload]
        while True:
            try:
                written: int = os.write(self._descriptor, content)
                return written
            except BlockingIOError:
                select.select([], [self._descriptor], [])
            except OSError as error:
                silence(self._descriptor, error.strerror or str(error))
                return len(content)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)


def silence(descriptor: int, reason: str) -> None:
    """Send what is written to the descriptor nowhere, and keep why."""
    _lost.setdefault(descriptor, reason)
    null = os.open(os.devnull, os.O_RDWR)
    if null != descriptor:
        os.dup2(null, descriptor)
        os.close(null)


def lost() -> dict[str, str]:
    """The streams that are silent, with the reasons."""
    return {NAMES[number]: reason for number, reason in _lost.items() if number in NAMES}


def protect_output() -> None:
    """Make this process's standard streams such courtesies. Those that something else replaced,
    such as a notebook, are left alone."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The next file that is opened would get the number.
            silence(number, CLOSED)
    for number, name in NAMES.items():
        stream: TextIO | None = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__"):
            setattr(sys, name, courteous(number, stream))


def courteous(descriptor: int, like: TextIO | None) -> io.TextIOWrapper:
    """A text stream to the descriptor, with the encoding of another; each print is seen at once."""
    if like:
        like.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(Courtesy(descriptor)),
        encoding=like.encoding if like else "utf-8",
        errors="backslashreplace",  # letters that a locale lacks end no command
        line_buffering=True,
    )


def printable(text: str) -> str:
    """The text with control characters escaped, which a terminal would obey. Lines and blanks of
    all scripts stay."""
    if text.isprintable():
        return text
    return "".join(
        one
        if one.isprintable() or one == "\n" or unicodedata.category(one) == "Zs"
        else one.encode("unicode_escape").decode()
        for one in text
    )
