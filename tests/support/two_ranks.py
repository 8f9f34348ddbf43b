"""Two processes that are joined as those of torchrun are, forked from the session's server.

Those of torchrun import every module for themselves, and so does its launcher: longer than they
train here. Children import this module.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

import tests.support.preloaded  # noqa: F401
from rlhf_lab.cli import main
from rlhf_lab.rollout.ports import LOOPBACK, free_port
from rlhf_lab.runs import forkserver
from rlhf_lab.runs.locks import locked
from rlhf_lab.training.engines.distributed import Processes, join, leave

ROOT = Path(__file__).parents[2]
# Seconds. Two processes that share a core with others take turns in waiting for each other.
LIMIT = 1200
# What both processes do together in the group that they have joined, leaving files in a folder.
# Rank 0 returns what it saw.
Act = Callable[[Processes, Path], dict[str, Any] | None]


@dataclass(frozen=True)
class Log:
    """The files that a process writes its output and its errors to."""

    out: Path
    errors: Path


@dataclass(frozen=True)
class TwoEnded:
    """Exit codes of both processes, None for one that did not end by itself; what rank 0 wrote."""

    codes: tuple[int | None, int | None]
    out: str
    errors: str


def two_ranks(folder: Path, target: Callable[..., object], *given: Any) -> TwoEnded:
    """Call the target in two processes until both have ended."""
    started, logs = start_two(folder, target, *given)
    for process in started:
        process.join(LIMIT)
    codes = started[0].exitcode, started[1].exitcode
    for process in started:
        process.kill()
        process.join()
    return TwoEnded(codes, logs[0].out.read_text(), logs[0].errors.read_text())


def start_two(
    folder: Path, target: Callable[..., object], *given: Any
) -> tuple[list[BaseProcess], list[Log]]:
    """Call the target in two processes with the variables that torchrun sets. Their logs are in
    the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    logs, port = [Log(folder / f"out-{n}", folder / f"errors-{n}") for n in range(2)], free_port()
    started = [
        forkserver.start(live, (rank, port, log, target, given)) for rank, log in enumerate(logs)
    ]
    return started, logs


def live(
    rank: int, port: int, log: Log, target: Callable[..., object], given: Sequence[Any]
) -> None:
    """The life of a process."""
    os.environ |= {
        **{name: str(rank) for name in ("RANK", "LOCAL_RANK")},
        **{name: "2" for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")},
        **{"MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"},
    }
    for stream, path in ((1, log.out), (2, log.errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), stream)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    torch.set_num_threads(1)
    # Of the server, whose socket it would remove where a process ends as Python does.
    atexit.unregister(forkserver.leave_no_socket)
    target(*given)


def run_command(words: Sequence[str]) -> None:
    """`rlhf-lab WORDS` in both processes."""
    sys.argv = ["rlhf-lab", *words]
    sys.exit(main.command_line())


def act_together(folder: Path, acts: Mapping[str, Act]) -> None:
    """Let two processes do one act after the other, and keep in the folder what rank 0 saw of each,
    or its error. An error ends both; two others go on with the next act."""
    left = dict(acts)
    while left:
        ended = two_ranks(folder / "processes", act_in_turn, folder, left)
        left = {name: act for name, act in left.items() if not seen_file(folder, name).exists()}
        if left:
            name = next(iter(left))
            left.pop(name)
            (folder / f"{name}.error").write_text(f"{ended.codes}: {ended.out}\n{ended.errors}")


def act_in_turn(folder: Path, acts: Mapping[str, Act]) -> None:
    """In both processes."""
    processes = join()
    for name, act in acts.items():
        seen = act(processes, folder)
        if seen is not None:
            draft = folder / "draft"
            torch.save(seen, draft)
            draft.rename(seen_file(folder, name))
    if not processes.is_main:
        leave(processes, None)
    if processes.liveness:
        processes.liveness.stop()


def seen_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.pt"


def seen_of(folder: Path, name: str) -> dict[str, Any]:
    """What rank 0 saw of an act."""
    error = folder / f"{name}.error"
    assert not error.exists(), error.read_text()
    seen: dict[str, Any] = torch.load(seen_file(folder, name))
    return seen


def once(folder: Path, make: Callable[[Path], None]) -> Path:
    """A folder that all workers of pytest-xdist share, filled by the first one that asks for it."""
    with locked(folder.with_suffix(".lock")):
        if not folder.exists():
            draft = folder.with_suffix(".draft")
            draft.mkdir(exist_ok=True)
            make(draft)
            draft.rename(folder)
    return folder


def torchrun(arguments: Sequence[str], processes: int = 2) -> subprocess.Popen[str]:
    """Start a command in several processes of this machine, with a free port of their own: where
    torchrun itself is tested, or what its processes import."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, f"--nproc-per-node={processes}", *arguments],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, output and errors. One that does not end is ended, so that nothing is left."""
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"still at work after {LIMIT} s: {out}\n{err}") from None
    return process.returncode, out, err
