"""Rewards that do what no reward may, each in its own way, and those that do what all may.

A name is the answer to be scored: `by_name` does what it says. The process of a time limit imports
this module, and nothing of the lab with it."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import ctypes
import importlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from typing import Any, NoReturn


def torch() -> Any:
    """The package, which takes seconds to import: a worker that is killed needs none of it."""
    return importlib.import_module("torch")


def numpy() -> Any:
    """The package, for the same reason."""
    return importlib.import_module("numpy")


class Leaving(BaseException):
    """No Exception."""


class Wordless(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise SystemExit(0)


class Trap:
    """A number that is none."""

    def __float__(self) -> float:
        raise SystemExit(0)


class Liar:
    """A value without a text, and no number."""

    def __repr__(self) -> str:
        os._exit(0)


def raises(error: BaseException) -> NoReturn:
    raise error


def swallowed() -> float:
    """Ends the process, and goes on as if nothing had happened."""
    with contextlib.suppress(BaseException):
        os._exit(0)
    return 1.0


async def later() -> float:
    return 1.0


def signalled(number: int) -> float:
    os.kill(os.getpid(), number)
    return 1.0


def after(act: Callable[[], object]) -> Callable[[], float]:
    """Does something, and then gives a score."""

    def scored() -> float:
        act()
        return 1.0

    return scored


def forked() -> float:
    """Two processes come back from it."""
    if pid := os.fork():
        os.waitpid(pid, 0)
    return 1.0


def in_removed_folder() -> None:
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)


def replaced_output() -> None:
    descriptor = os.open("/dev/zero", os.O_WRONLY)
    os.dup2(descriptor, 1)
    os.close(descriptor)


entered: list[Any] = []


def in_inference_mode() -> None:
    entered.append(torch().inference_mode())
    entered[-1].__enter__()


# What ends a process, or tries to.
ENDING: dict[str, Callable[[], Any]] = {
    "sys.exit(0)": lambda: sys.exit(0),
    "sys.exit(text)": lambda: sys.exit("no more"),
    "quit()": lambda: raises(SystemExit()),
    "os._exit(0)": lambda: os._exit(0),
    "os._exit(0), swallowed": swallowed,
    "os.abort": lambda: os.abort(),
    "os.execv": lambda: os.execv(str(shutil.which("true")), ["true"]),
    "os.execlp": lambda: os.execlp("true", "true"),
    "SIGKILL to itself": lambda: signalled(signal.SIGKILL),
    "SIGKILL to a thread": after(
        lambda: signal.pthread_kill(threading.get_ident(), signal.SIGKILL)
    ),
}
RAISING: dict[str, Callable[[], Any]] = {
    "KeyboardInterrupt": lambda: raises(KeyboardInterrupt()),
    "GeneratorExit": lambda: raises(GeneratorExit()),
    "StopIteration": lambda: next(iter(())),
    "CancelledError": lambda: raises(asyncio.CancelledError()),
    "a BaseException": lambda: raises(Leaving("enough")),
    "an error without a text": lambda: raises(Wordless()),
    "ZeroDivisionError": lambda: 1 / 0,
}
RETURNING: dict[str, Callable[[], Any]] = {
    "a generator": lambda: (number for number in (1.0,)),
    "a coroutine": later,
    "nothing": lambda: None,
    "text": lambda: "0.5",
    "numpy text": lambda: numpy().str_("0.5"),
    "a list": lambda: [1.0],
    "several numbers": lambda: (1.0, 2.0),
    "several tensors": lambda: torch().ones(3),
    "a complex number": lambda: 1j,
    "nan": lambda: float("nan"),
    "infinity": lambda: numpy().float32("inf"),
    "a huge integer": lambda: 10**400,
    "more than float32": lambda: 1e39,
    "a trap": Trap,
    "a liar": Liar,
}
CHANGING: dict[str, Callable[[], Any]] = {
    "a fork": forked,
    "deterministic algorithms": after(lambda: torch().use_deterministic_algorithms(True)),
    "the working folder": after(lambda: os.chdir("/")),
    "a removed working folder": after(in_removed_folder),
    "the default type": after(lambda: torch().set_default_dtype(torch().float64)),
    "gradients": after(lambda: torch().set_grad_enabled(not torch().is_grad_enabled())),
    "threads": after(lambda: torch().set_num_threads(torch().get_num_threads() + 1)),
    "matrix products": after(lambda: torch().set_float32_matmul_precision("medium")),
    "a timer": after(lambda: signal.setitimer(signal.ITIMER_REAL, 600)),
    "signal handlers": after(lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN)),
    "inference mode": after(in_inference_mode),
    "a replaced output": after(replaced_output),
    "a closed input": after(lambda: os.close(0)),
    "the default device": after(lambda: torch().set_default_device("meta")),
    "closed outputs": after(lambda: os.closerange(0, 3)),
    "raise_signal(SIGTERM)": after(lambda: signal.raise_signal(signal.SIGTERM)),
    "raise_signal(SIGUSR1)": after(lambda: signal.raise_signal(signal.SIGUSR1)),
    "SIGINT to itself": lambda: signalled(signal.SIGINT),
    "SIGTERM to its group": after(lambda: os.killpg(os.getpgrp(), signal.SIGTERM)),
    "interrupt_main": after(lambda: _thread.interrupt_main()),
}
# What no process can catch.
CRASHES: dict[str, Callable[[], Any]] = {
    "a segmentation fault": lambda: ctypes.string_at(0),
    "exit(0) of C": lambda: ctypes.CDLL(None).exit(0),
    "_exit(0) of C": lambda: ctypes.CDLL(None)._exit(0),
}
# What it does to its arguments is in `by_name`.
ARGUMENTS = ("hidden", "what is in hidden", "its own arguments")
# Each of these fails, and those that change something in their process do no harm to the run.
FAILING = ENDING | RAISING | RETURNING | CRASHES


def in_another_folder() -> None:
    before = os.getcwd()
    os.chdir("/")
    os.chdir(before)


def timed() -> None:
    """A time limit of the function's own, as many verifiers have."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.alarm(600)
        signal.alarm(0)


def seeded() -> None:
    random.seed(1)
    numpy().random.seed(1)
    torch().manual_seed(1)
    random.random()


def in_a_process() -> None:
    process = get_context("fork").Process(target=print)
    process.start()
    process.join()


ALLOWED: dict[str, Callable[[], Any]] = {
    "a truth": lambda: True,
    "a number of numpy": lambda: numpy().float32(1),
    "a tensor": lambda: torch().ones(1),
    "an integer": lambda: 1,
    "random numbers": after(seeded),
    "another folder for a while": after(in_another_folder),
    "a timer for a while": after(timed),
    "the environment": after(lambda: os.environ.update(MISBEHAVING="1")),
    "a program": after(lambda: subprocess.run(["true"], check=True)),
    "a process": after(in_a_process),
    "signal 0 to itself": after(lambda: os.kill(os.getpid(), 0)),
}


def by_name(
    prompt: str,
    completion: str,
    *,
    reference: str,
    hidden: Mapping[str, Any],
    finished: bool,
    given: list[int] | None = None,
) -> Any:
    """What the answer names."""
    if completion == "hidden":
        hidden["mark"] = 1  # type: ignore[index]
    if completion == "what is in hidden":
        hidden["facts"]["numbers"].append(3)
    if completion == "its own arguments" and given is not None:
        given.clear()
    if completion in ARGUMENTS:
        return 1.0
    return (FAILING | CHANGING | ALLOWED).get(completion, lambda: float(len(completion)))()
