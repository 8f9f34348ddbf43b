"""The commands of a run over several devices and nodes, one by one or as a Slurm script.

Trainers are ranks under torchrun, generators are vLLM servers of their own. Nothing here starts
processes on other machines: ssh, Slurm or a person does.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from rlhf_lab.experiment.layout import Layout, Node
from rlhf_lab.rollout.ports import LOOPBACK
from rlhf_lab.types.errors import UserError

# A trainer that receives SIGTERM saves a checkpoint first, at the end of its round.
SHUTDOWN_SECONDS = 600
# Servers of a large model take minutes to be ready, and are started together with the trainers.
CONNECT = "generator.connect_seconds=900"
BY_NCCL = "generator.sync=nccl"
# Slurm signals every process of a job, the trainers included; torchrun would end them at the second
# signal, while they save their state.
IGNORE_SIGNALS = "env --ignore-signal=TERM,USR1,USR2 "
# Placeholder for the name of a host, which is known in the job only.
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
        """The command for a shell."""
        assignments = [f"{key}={shlex.quote(value)}" for key, value in self.environment.items()]
        return " ".join([*assignments, *map(quote, self.words)])


def commands(
    layout: Layout, hosts: Sequence[str], ports: Ports, overrides: Sequence[str], is_cpu: bool
) -> list[Command]:
    """All commands, servers first. hosts: one name for each node of the layout."""
    nodes = layout.placed()
    shared = [*overrides, *(["generator=vllm_server"] if layout.generators else [])]
    found = reached(layout, hosts, ports)
    sync = [word for word in nccl(found, overrides, lead_of(layout, hosts)) if word == BY_NCCL]
    servers = [
        Command(
            node.number,
            f"server{node.number}.{place}",
            ("rlhf-lab", "serve", *shared, *sync, *listening_at(found[node.number, place])),
            {} if is_cpu else {"CUDA_VISIBLE_DEVICES": str(device)},
        )
        for node in nodes
        for place, device in enumerate(node.generators)
    ]
    train = (
        "-m",
        "rlhf_lab.cli.main",
        "train",
        *trainer_overrides(layout, hosts, ports, overrides),
    )
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


def lead_of(layout: Layout, hosts: Sequence[str]) -> str:
    """The host of rank 0, which alone speaks to the servers."""
    return hosts[next(node.number for node in layout.placed() if node.trainers)]


def reached(
    layout: Layout, hosts: Sequence[str], ports: Ports
) -> dict[tuple[int, int], tuple[str, int]]:
    """Host and port at which rank 0 reaches each server, by its node and place on it. Servers of
    rank 0's own node are at the loopback interface: they share its memory, and no other job can
    reach them."""
    lead = lead_of(layout, hosts)
    return {
        (node.number, place): (
            LOOPBACK if hosts[node.number] == lead else hosts[node.number],
            ports.servers + place,
        )
        for node in layout.placed()
        for place in range(len(node.generators))
    }


def nccl(
    found: Mapping[tuple[int, int], tuple[str, int]], overrides: Sequence[str], lead: str
) -> list[str]:
    """Overrides by which weights go to servers of other nodes through NCCL, unless the user
    chose a folder or a way."""
    chosen = {word.partition("=")[0].lstrip("+") for word in overrides}
    if chosen & {"generator.weights_folder", "generator.sync"}:
        return nccl_host(chosen, lead) if BY_NCCL in overrides else []
    is_far = any(host != LOOPBACK for host, _ in found.values())
    return [BY_NCCL, *nccl_host(chosen, lead)] if is_far else []


def nccl_host(chosen: Set[str], lead: str) -> list[str]:
    """The address of rank 0 for its servers, unless the user chose one."""
    return [] if "generator.nccl_host" in chosen else [f"generator.nccl_host={lead}"]


def trainer_overrides(
    layout: Layout, hosts: Sequence[str], ports: Ports, overrides: Sequence[str]
) -> list[str]:
    """All overrides of the run, with the addresses of its servers."""
    if not layout.generators:
        return list(overrides)
    found = reached(layout, hosts, ports)
    urls = ",".join(f"http://{host}:{port}" for host, port in found.values())
    by_nccl = nccl(found, overrides, lead_of(layout, hosts))
    return [
        *(*overrides, "generator=vllm_server"),
        *(f"generator.urls=[{urls}]", CONNECT),
        *by_nccl,
    ]


def listening_at(place: tuple[str, int]) -> tuple[str, ...]:
    """Where a server listens: on the loopback interface, if it is reached there."""
    host, port = place
    everywhere = () if host == LOOPBACK else ("generator.host=0.0.0.0",)
    return (f"generator.port={port}", *everywhere)


def torchrun(node: Node, rank: int, num_nodes: int, first: str, ports: Ports) -> tuple[str, ...]:
    """torchrun with the rank of a node among those that train."""
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
        "# Add --partition, --account and --time as your cluster needs them.",
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
        env = IGNORE_SIGNALS if command.is_trainer else "env " if command.environment else ""
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
    """The commands under the hosts on which to run them."""
    lines: list[str] = []
    for number, host in enumerate(hosts):
        if own := [command for command in found if command.node == number]:
            lines += [f"# on {host}", *(command.text() for command in own), ""]
    return "\n".join(lines)


def hosts_of(layout: Layout, text: str) -> list[str]:
    """One name for each node: those of --hosts, or this machine for a single node."""
    hosts = [name for name in text.split(",") if name]
    if not hosts and layout.nodes == 1:
        return [LOOPBACK]
    if len(hosts) != layout.nodes or len(set(hosts)) != len(hosts):
        raise UserError(
            f"--hosts {text or '(none)'}: layout={layout} needs {layout.nodes} different host "
            "names, separated by commas (or --slurm, which asks Slurm for them)"
        )
    return hosts
