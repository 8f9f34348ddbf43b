"""The commands of a run over several devices and nodes: as text, as a Slurm script, or run on this
machine.

Trainers are ranks under torchrun, generators are vLLM servers of their own. Nothing here starts
processes elsewhere: ssh, Slurm or a person does.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.rollout.ports import LOOPBACK
from rlhf_lab.runs.signals import listening
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.launchers.layout import Layout, Node
from rlhf_lab.types.errors import StopRequested, UserError

POLL_SECONDS = 0.5
# What is asked to end saves a checkpoint first, at the end of its round.
SHUTDOWN_SECONDS = 600
GRACE_SECONDS = SHUTDOWN_SECONDS + 30.0
LOG_LINES = 30
# Servers of a large model take minutes to be ready, and are started together with the trainers.
CONNECT = "generator.connect_seconds=900"
# Slurm signals every process of a job, and the trainers heed it; torchrun would end them at the
# second signal, while they save their state.
UNHEARD = "env --ignore-signal=TERM,USR1,USR2 "
# Stands for the name of a host that only the job will know.
HOST_MARK = "-host-of-the-job"


@dataclass(frozen=True)
class Ports:
    """trainers: where ranks meet. servers: of a node's first generator; others count up."""

    trainers: int
    servers: int


@dataclass(frozen=True)
class Command:
    """One command of a node. name: for its log and its messages."""

    node: int
    name: str
    words: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def is_trainer(self) -> bool:
        return self.name.startswith("trainer")

    def text(self, quote: Callable[[str], str] = shlex.quote) -> str:
        """As a shell takes it."""
        given = [f"{key}={shlex.quote(value)}" for key, value in self.environment.items()]
        return " ".join([*given, *map(quote, self.words)])


def commands(
    layout: Layout, hosts: Sequence[str], ports: Ports, overrides: Sequence[str], is_cpu: bool
) -> list[Command]:
    """All commands, servers first. hosts: one name for each node of the layout."""
    nodes = layout.placed()
    urls = [
        f"http://{hosts[node.number]}:{ports.servers + place}"
        for node in nodes
        for place in range(len(node.generators))
    ]
    shared = [*overrides, *(["generator=vllm_server"] if urls else [])]
    servers = [
        Command(
            node.number,
            f"server{node.number}.{place}",
            ("rlhf-lab", "serve", *shared, *listening_at(hosts, ports.servers + place)),
            {} if is_cpu else {"CUDA_VISIBLE_DEVICES": str(device)},
        )
        for node in nodes
        for place, device in enumerate(node.generators)
    ]
    listed = [f"generator.urls=[{','.join(urls)}]", CONNECT] if urls else []
    train = ("-m", "rlhf_lab.cli.main", "train", *shared, *listed)
    training = [node for node in nodes if node.trainers]
    trainers = [
        Command(
            node.number,
            f"trainer{node.number}",
            (*torchrun(node, rank, len(training), hosts[training[0].number], ports), *train),
            {} if is_cpu else {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(node.trainers)))},
        )
        for rank, node in enumerate(training)
    ]
    return [*servers, *trainers]


def listening_at(hosts: Sequence[str], port: int) -> tuple[str, ...]:
    """Where a server listens: for this machine alone, if everybody is on it."""
    everywhere = () if list(hosts) == [LOOPBACK] else ("generator.host=0.0.0.0",)
    return (f"generator.port={port}", *everywhere)


def torchrun(node: Node, rank: int, num_nodes: int, first: str, ports: Ports) -> tuple[str, ...]:
    """torchrun with the place of a node among those that train."""
    return (
        "torchrun",
        f"--nnodes={num_nodes}",
        f"--node-rank={rank}",
        f"--nproc-per-node={node.trainers}",
        f"--master-addr={first}",
        f"--master-port={ports.trainers}",
        f"--shutdown-timeout={SHUTDOWN_SECONDS}",
    )


def slurm_script(layout: Layout, ports: Ports, overrides: Sequence[str], is_cpu: bool) -> str:
    """A job of all nodes, with one step for every command; it ends when the trainers end."""
    names = [f"{number}{HOST_MARK}" for number in range(layout.nodes)]
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name=rlhf_lab --nodes={layout.nodes} --ntasks-per-node=1",
        *([] if is_cpu else [f"#SBATCH --gpus-per-node={layout.devices}"]),
        "# Add --partition, --account and --time as your cluster asks for them.",
        "set -euo pipefail",
        'mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT",
        "stopped=false",
        "trap 'stopped=true' TERM USR1 USR2",
        "trainers=()",
    ]
    for command in commands(layout, names, ports, overrides, is_cpu):
        step = f'srun --overlap --nodes=1 --ntasks=1 --nodelist="${{hosts[{command.node}]}}"'
        # env, since a step is no shell that would read assignments.
        env = UNHEARD if command.is_trainer else "env " if command.environment else ""
        lines.append(f"{step} {env}{command.text(quoted)} &")
        if command.is_trainer:
            lines.append("trainers+=($!)")
    # A step that fails fails the job, and the trap ends the others. Waiting ends early at a signal.
    lines += [
        'for trainer in "${trainers[@]}"; do',
        "    while :; do",
        "        code=0",
        '        wait "$trainer" || code=$?',
        '        kill -0 "$trainer" 2>/dev/null || break',
        "    done",
        "    [ $code = 0 ] || break",
        "done",
        f"if [ $code != 0 ] && $stopped; then exit {os.EX_TEMPFAIL}; fi",
        "exit $code",
    ]
    return "\n".join(lines) + "\n"


def quoted(word: str) -> str:
    """A word for the shell, in which the names of hosts are still to be filled in."""
    parts = re.split(rf"(\d+){HOST_MARK}", word)
    return "".join(
        f'"${{hosts[{part}]}}"' if place % 2 else shlex.quote(part)
        for place, part in enumerate(parts)
        if part
    )


def printed(found: Sequence[Command], hosts: Sequence[str]) -> str:
    """The commands under the hosts on which to give them."""
    lines: list[str] = []
    for number, host in enumerate(hosts):
        if given := [command for command in found if command.node == number]:
            lines += [f"# on {host}", *(command.text() for command in given), ""]
    return "\n".join(lines)


def run(found: Sequence[Command], folder: Path, console: Console) -> int:
    """Run all commands on this machine until the trainer ends. Returns its exit code.

    Servers write to logs in `folder`. One that ends before the trainer ends the run with its log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    servers = [command for command in found if not command.is_trainer]
    (trainer,) = [command for command in found if command.is_trainer]
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        with listening():
            for command in servers:
                log = folder / f"{command.name}.log"
                console.print(f"{command.name}: {command.text()} > {log}")
                with log.open("wb") as file:
                    started[command.name] = start(command, file.fileno())
            console.print(f"{trainer.name}: {trainer.text()}")
            started[trainer.name] = start(trainer, None)
            return watched(started, trainer.name, folder)
    except (StopRequested, KeyboardInterrupt):
        if trainer.name in started:
            stop(started[trainer.name])
        raise
    finally:
        for process in started.values():
            stop(process)


def start(command: Command, log: int | None) -> subprocess.Popen[bytes]:
    """A process group of its own, with this environment's executables first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return subprocess.Popen(
        command.words,
        env={**os.environ, "PATH": path, **command.environment},
        stdout=log,
        stderr=subprocess.STDOUT if log is not None else None,
        start_new_session=True,
    )


def watched(started: Mapping[str, subprocess.Popen[bytes]], trainer: str, folder: Path) -> int:
    """The trainer's exit code; raises when a server ends before it."""
    while (code := started[trainer].poll()) is None:
        for name, process in started.items():
            if name != trainer and process.poll() is not None:
                tail = (folder / f"{name}.log").read_text(errors="replace").splitlines()
                raise RuntimeError(
                    f"{name} ended with exit code {process.returncode}; its last lines in "
                    f"{folder / name}.log:\n" + "\n".join(tail[-LOG_LINES:])
                )
        time.sleep(POLL_SECONDS)
    return code


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the process group to end, so that a trainer saves its state; make it, if it does not."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def hosts_of(layout: Layout, text: str) -> list[str]:
    """One name for each node: those given, or this machine for a single node."""
    hosts = [name for name in text.split(",") if name]
    if not hosts and layout.nodes == 1:
        return [LOOPBACK]
    if len(hosts) != layout.nodes or len(set(hosts)) != len(hosts):
        raise UserError(
            f"--hosts {text or '(none)'}: layout={layout} needs {layout.nodes} different host "
            "names, separated by commas (or --slurm, which asks Slurm for them)"
        )
    return hosts
