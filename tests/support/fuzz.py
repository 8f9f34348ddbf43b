"""Files damaged at random, and what readers make of them: a value, a finding, or a UserError.

python -m tests.support.fuzz [--seconds 600] [--seed N] [--case runs/summary] [--count N]

Each example is a number: it names the file, the damage and the bytes, so that a failure is seen
again with `--case NAME --seed N --count 1`. Ends with 1 if any reader raised something else.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import io
import itertools
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.types.errors import UserError
from tests.support.damage import damage

# Each has CASES, a sequence of Case.
MODULES = tuple(f"tests.support.fuzz_{name}" for name in ("runs", "stages", "sources"))
# Far above what a reader of a few kilobytes takes on a busy machine: it hangs.
MOST_SECONDS = 20
PRISTINE = tempfile.TemporaryDirectory(prefix="fuzz-")


@dataclass(frozen=True, eq=False)
class Case:
    """make: writes whole files into an empty folder. readers: of that folder, by name; one may
    change the folder, which is a copy. damaged: what is in for it, all that the folder holds if
    empty; a reader may assert that the rest is read all the same. is_slow: a reading takes more
    than some hundredths of a second."""

    name: str
    make: Callable[[Path], object]
    readers: Mapping[str, Callable[[Path], object]]
    damaged: tuple[str, ...] = ()
    is_slow: bool = False


@dataclass(frozen=True)
class Example:
    """One reader of one case with the number of its damage."""

    case: Case
    reader: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.case.name}/{self.reader}"


class TooSlow(BaseException):
    """A reader did not come to an end. No reader may take it for an error of its file."""


def cases() -> list[Case]:
    """The cases of all modules."""
    found = [importlib.import_module(name) for name in MODULES]
    return [case for module in found for case in module.CASES]


@functools.cache
def pristine(case: Case) -> Path:
    """The case's whole folder, which is made once a process and never damaged."""
    folder = Path(PRISTINE.name) / case.name / "it"
    folder.mkdir(parents=True)
    case.make(folder)
    return folder


def tried(example: Example) -> tuple[str, str, str]:
    """The damage, how the reader ended (value, refused, failed), and what it raised.

    A refusal is a UserError with a message. Anything else that is raised is a failure."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as parent:
        folder = Path(parent) / "it"
        shutil.copytree(pristine(example.case), folder, symlinks=True)
        done = damage(folder, example.case.damaged, random.Random(example.seed))
        try:
            with limited(MOST_SECONDS), redirect_stdout(io.StringIO()):
                example.case.readers[example.reader](folder)
        except UserError as error:
            text = str(error)
            return done, "refused" if text.strip() else "failed", text
        except (Exception, TooSlow):
            return done, "failed", traceback.format_exc()
    return done, "value", ""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise TooSlow in the block, also where it waits for a pipe."""

    def end(*_: object) -> None:
        raise TooSlow(f"more than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, end)
    # And again, where what was raised is lost in a destructor.
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def examples(chosen: Sequence[Case], reader: str, seed: int) -> Iterator[Example]:
    """Every reader in turn, with one number after another, without end."""
    for number in itertools.count(seed):
        for case in chosen:
            for name in case.readers:
                if not reader or name == reader:
                    yield Example(case, name, number)


def fuzz(found: Iterator[Example], until: float, most: int | None) -> int:
    """Try examples until the time or their number is over; print failures and what was tried."""
    ends: dict[str, Counter[str]] = {}
    failures = 0
    for example in found if most is None else itertools.islice(found, most):
        done, end, raised = tried(example)
        ends.setdefault(example.name, Counter())[end] += 1
        if end == "failed":
            failures += 1
            again = f"--case {example.name} --seed {example.seed} --count 1"
            sys.stdout.write(f"FAILED {again}: {done}\n{raised}\n")
        if most is not None:
            sys.stdout.write(f"{example.name} {example.seed}: {done}: {end} {raised[:200]}\n")
        if time.monotonic() > until:
            break
    for name, counts in ends.items():
        told = ", ".join(f"{counts[end]} {end}" for end in ("value", "refused", "failed"))
        sys.stdout.write(f"{name}: {counts.total()} tried: {told}\n")
    return failures


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 1 if anything failed."""
    parser = argparse.ArgumentParser(description="Damage files and read them.")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, help="the first number (default: the clock's)")
    parser.add_argument("--case", default="", help="CASE or CASE/READER (default: all)")
    parser.add_argument("--count", type=int, help="so many examples and no more")
    given = parser.parse_args(arguments)
    name, _, reader = given.case.partition("/")
    chosen = [case for case in cases() if not name or case.name == name]
    if not chosen:
        parser.error(f"--case {given.case}: choose {', '.join(case.name for case in cases())}")
    seed = int(time.time()) * 1000 if given.seed is None else given.seed
    sys.stdout.write(f"from seed {seed}\n")
    until = time.monotonic() + given.seconds
    return int(fuzz(examples(chosen, reader, seed), until, given.count) > 0)


if __name__ == "__main__":
    sys.exit(main())
