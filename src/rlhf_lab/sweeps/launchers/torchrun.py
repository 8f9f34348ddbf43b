"""The commands of a run over several devices and nodes, and where they reach each other: hosts,
ports, and NCCL's meeting.

Trainers are ranks under torchrun, generators are vLLM servers of their own. Only commands of this
machine are started here; ssh, Slurm or a person starts those of other machines.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.experiment.config.layout import Layout, Node
from rlhf_lab.models.devices import FIXED_WORKSPACES, WORKSPACE
from rlhf_lab.rollout.generators.vllm.http import KEY_BYTES, RUN_ID, SERVER_KEY
from rlhf_lab.rollout.ports import LOOPBACK
from rlhf_lab.runs.child import Child, exit_text, last_lines
from rlhf_lab.runs.signals import listening
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

BY_NCCL = "generator.sync=nccl"
# Placeholders for the name of a host and for a port, which are known in the job only.
HOST_MARK = "-host-of-the-job"
PORT_MARK = "-port-of-the-job"
# A trainer that receives SIGTERM saves a checkpoint first, at the end of its round.
SHUTDOWN_SECONDS = 600
# Servers of a large model take minutes to be ready, and are started together with the trainers.
CONNECT = "generator.connect_seconds=900"
REWARD_DEVICE = re.compile(r"\+*(?:reward|judge)(?:\.terms\.[^.]+)?\.device=cuda:(\d+)")
MPS_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
MPS_FOLDER = "/tmp/rlhf-lab-mps-"
MPS_DAEMON = ("nvidia-cuda-mps-control", "-f")
POLL_SECONDS = 0.5
GRACE_SECONDS = SHUTDOWN_SECONDS + 30.0


@dataclass(frozen=True)
class Ports:
    """trainers: where ranks meet. servers: of a node's first generator; others count up. nccl: of
    rank 0 for its servers, None for the default. is_of_job: they count from a Slurm job's first
    port."""

    trainers: int
    servers: int
    nccl: int | None = None
    is_of_job: bool = False

    def text(self, number: int) -> str:
        return f"{number}{PORT_MARK if self.is_of_job else ''}"


def lead_of(layout: Layout, hosts: Sequence[str]) -> str:
    """The host of rank 0, which alone speaks to the servers."""
    return hosts[next(node.number for node in layout.placed() if node.trainers)]


def reached(
    layout: Layout, hosts: Sequence[str], ports: Ports, server_devices: int
) -> dict[tuple[int, int], tuple[str, str]]:
    """Host and port at which rank 0 reaches each server, by its node and place on it. Servers of
    rank 0's own node are at the loopback interface: they share its memory, and no other job can
    reach them."""
    lead = lead_of(layout, hosts)
    return {
        (node.number, place): (
            LOOPBACK if hosts[node.number] == lead else hosts[node.number],
            ports.text(ports.servers + place),
        )
        for node in layout.placed()
        for place in range(len(node.servers(server_devices)))
    }


def nccl(
    found: Mapping[tuple[int, int], tuple[str, str]],
    overrides: Sequence[str],
    lead: str,
    ports: Ports,
) -> list[str]:
    """Overrides by which weights go to servers of other nodes through NCCL, unless the user
    chose a folder or a way."""
    chosen = {word.partition("=")[0].lstrip("+") for word in overrides}
    if chosen & {"generator.weights_folder", "generator.sync"}:
        return nccl_place(chosen, lead, ports) if BY_NCCL in overrides else []
    is_far = any(host != LOOPBACK for host, _ in found.values())
    return [BY_NCCL, *nccl_place(chosen, lead, ports)] if is_far else []


def nccl_place(chosen: Set[str], lead: str, ports: Ports) -> list[str]:
    """Address and port of rank 0 for its servers, unless the user chose them."""
    place = {"generator.nccl_host": lead}
    if ports.nccl is not None:
        place["generator.nccl_port"] = ports.text(ports.nccl)
    return [f"{key}={value}" for key, value in place.items() if key not in chosen]


@dataclass(frozen=True)
class ResourceRequest:
    """server_devices: of each server, which share its copies of the policy. is_cpu: assign no
    devices. has_mps: CUDA's MPS daemon on every node, so that processes share a device's time.
    run_id: for processes that do not inherit one, "" for those of a Slurm job."""

    server_devices: int = 1
    is_cpu: bool = False
    has_mps: bool = False
    run_id: str = ""

    def __post_init__(self) -> None:
        if self.is_cpu and self.has_mps:
            raise UserError("--mps with --cpu: MPS shares a GPU; leave one of them out")

    def environment(self, devices: Sequence[int]) -> dict[str, str]:
        """Variables of a process on these devices of its node."""
        run = {RUN_ID: self.run_id} if self.run_id else {}
        visible = {} if self.is_cpu else {"CUDA_VISIBLE_DEVICES": ",".join(map(str, devices))}
        return run | visible | self.mps()

    def mps(self) -> dict[str, str]:
        """Where a node's processes meet its MPS daemon: another folder for each run."""
        return {MPS_PIPES: MPS_FOLDER + self.run_id} if self.has_mps and self.run_id else {}


def generator_of(layout: Layout) -> list[str]:
    """The override by which runs of a layout sample, where it has devices for that."""
    return ["generator=vllm"] if layout.generators else []


def run_id_of(*parts: object) -> str:
    """An id for the run of these parts: its layout, hosts, ports and overrides."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class NodeCommand:
    """One command of a node. name: for its log and its messages."""

    node: int
    name: str
    words: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def is_trainer(self) -> bool:
        return self.name.startswith("trainer")

    @property
    def is_server(self) -> bool:
        return self.name.startswith("server")

    @property
    def overrides(self) -> tuple[str, ...]:
        """What follows the name of rlhf-lab's command, none for other programs."""
        names = [at for at, word in enumerate(self.words) if word in ("serve", "train")]
        return self.words[names[0] + 1 :] if names else ()

    def text(self, quote: Callable[[str], str] = shlex.quote) -> str:
        assignments = [f"{key}={shlex.quote(value)}" for key, value in self.environment.items()]
        return " ".join([*assignments, *map(quote, self.words)])


def commands(
    layout: Layout,
    hosts: Sequence[str],
    ports: Ports,
    overrides: Sequence[str],
    request: ResourceRequest,
) -> list[NodeCommand]:
    """All commands, servers before trainers. hosts: one name for each node of the layout."""
    nodes = layout.placed()
    shared = [*overrides, *generator_of(layout)]
    found = reached(layout, hosts, ports, request.server_devices)
    by_nccl = nccl(found, overrides, lead_of(layout, hosts), ports)
    sync = [word for word in by_nccl if word == BY_NCCL]
    servers = []
    for node in nodes:
        for place, devices in enumerate(node.servers(request.server_devices)):
            host, port = found[node.number, place]
            # On the loopback interface, if it is reached there.
            where = [] if host == LOOPBACK else ["generator.host=0.0.0.0"]
            words = ("rlhf-lab", "serve", *shared, *sync, f"generator.port={port}", *where)
            name = f"server{node.number}.{place}"
            servers.append(NodeCommand(node.number, name, words, request.environment(devices)))
    urls = ",".join(f"http://{host}:{port}" for host, port in found.values())
    to_servers = ["generator=vllm", f"generator.urls=[{urls}]", CONNECT, *by_nccl]
    own = to_servers if layout.generators else []
    # Not `python -m`, which looks for modules in the working folder first.
    train = ("--no-python", "rlhf-lab", "train", *overrides, *own)
    training = [node for node in nodes if node.trainers]
    # Deterministic kernels need it before CUDA starts, which ranks do first.
    is_deterministic = any(word.lower() == "deterministic=true" for word in overrides)
    workspace = {WORKSPACE: FIXED_WORKSPACES[0]} if is_deterministic else {}
    trainers = [
        NodeCommand(
            node.number,
            f"trainer{node.number}",
            (*torchrun(node, rank, len(training), hosts[training[0].number], ports), *train),
            request.environment(trainer_devices(layout, node, overrides)) | workspace,
        )
        for rank, node in enumerate(training)
    ]
    mps = [
        NodeCommand(node.number, f"mps{node.number}", MPS_DAEMON, request.mps())
        for node in nodes
        if request.has_mps
    ]
    return [*mps, *servers, *trainers]


def trainer_devices(layout: Layout, node: Node, overrides: Sequence[str]) -> range:
    """Devices that the trainers of a node see: their own, and those up to the one that a reward
    model is placed on, so that its number is the node's."""
    named = [int(found[1]) for word in overrides if (found := REWARD_DEVICE.fullmatch(word))]
    if (last := max(named, default=0)) >= layout.devices:
        raise UserError(
            f"reward.device=cuda:{last}: a node of layout={layout} has {layout.devices} devices; "
            f"choose cuda:0 to cuda:{layout.devices - 1}"
        )
    return range(max(node.trainers, last + 1))


def torchrun(node: Node, rank: int, num_nodes: int, first: str, ports: Ports) -> tuple[str, ...]:
    """torchrun with the rank of a node among those that train."""
    return (
        "torchrun",
        f"--nnodes={num_nodes}",
        f"--node-rank={rank}",
        f"--nproc-per-node={node.trainers}",
        f"--master-addr={first}",
        f"--master-port={ports.text(ports.trainers)}",
        f"--shutdown-timeout={SHUTDOWN_SECONDS}",
    )


def printed(found: Sequence[NodeCommand], hosts: Sequence[str]) -> str:
    """The commands under the hosts on which to run them, with a new key for servers."""
    has_servers = any(command.is_server for command in found)
    key = [f"export {SERVER_KEY}={secrets.token_hex(KEY_BYTES)}"] if has_servers else []
    lines: list[str] = []
    for number, host in enumerate(hosts):
        if own := [command for command in found if command.node == number]:
            lines += [f"# on {host}", *key, *(command.text() for command in own), ""]
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


def run_here(found: Sequence[NodeCommand], folder: Path, console: Console) -> int:
    """Run all commands on this machine until the trainer ends. Returns its exit code.

    Servers write to logs in `folder`. Raises RuntimeError with the last lines of its log if a
    server ends before the trainer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Servers come first.
    started: dict[str, Child] = {}
    key = {SERVER_KEY: secrets.token_hex(KEY_BYTES)}
    try:
        with listening():
            for command in found:
                log = None if command.is_trainer else folder / f"{command.name}.log"
                console.print(f"{command.name}: {command.text()}{f' > {log}' if log else ''}")
                # In a new session, with this environment's executables first.
                path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
                variables = {"PATH": path, **key, **command.environment}
                started[command.name] = Child(command.words, log, variables)
            *servers, (_, trainer) = started.items()
            while (code := trainer.exit_code) is None:
                for name, server in servers:
                    if server.exit_code is not None and server.log is not None:
                        raise RuntimeError(
                            f"{name} ended with {exit_text(server.exit_code)}; its last lines in "
                            f"{server.log}:\n{last_lines(server.log)}"
                        )
                time.sleep(POLL_SECONDS)
            return code
    finally:
        # The trainer first: it needs its servers until its state is saved.
        for child in reversed(started.values()):
            child.stop(GRACE_SECONDS)
