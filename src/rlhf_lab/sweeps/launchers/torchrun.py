"""The commands of a run over several devices and nodes.

Trainers are ranks under torchrun, generators are vLLM servers of their own. Nothing here starts
processes on other machines: ssh, Slurm or a person does.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rlhf_lab.experiment.layout import Layout, Node
from rlhf_lab.models.devices import FIXED_WORKSPACES, WORKSPACE
from rlhf_lab.rollout.ports import LOOPBACK
from rlhf_lab.sweeps.launchers.addresses import (
    BY_NCCL,
    Ports,
    lead_of,
    listening_at,
    nccl,
    reached,
)
from rlhf_lab.types.errors import UserError

# A trainer that receives SIGTERM saves a checkpoint first, at the end of its round.
SHUTDOWN_SECONDS = 600
# Servers of a large model take minutes to be ready, and are started together with the trainers.
CONNECT = "generator.connect_seconds=900"
# Servers and trainers of one run have one id, by which a trainer knows its own servers.
RUN_ID = "RLHF_LAB_RUN_ID"
REWARD_DEVICE = re.compile(r"\+*(?:reward|judge)(?:\.terms\.[^.]+)?\.device=cuda:(\d+)")
MPS_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
MPS_FOLDER = "/tmp/rlhf-lab-mps-"
MPS_DAEMON = ("nvidia-cuda-mps-control", "-f")


@dataclass(frozen=True)
class Wishes:
    """is_cpu: assign no devices. has_mps: CUDA's MPS daemon on every node, so that processes share
    a device's time. run_id: for processes that do not inherit one, "" for those of a Slurm job."""

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


def run_id_of(*parts: object) -> str:
    """An id for the run of these parts: its layout, hosts, ports and overrides."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


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

    @property
    def overrides(self) -> tuple[str, ...]:
        """What follows the name of rlhf-lab's command, none for other programs."""
        names = [at for at, word in enumerate(self.words) if word in ("serve", "train")]
        return self.words[names[0] + 1 :] if names else ()

    def text(self, quote: Callable[[str], str] = shlex.quote) -> str:
        """The command for a shell."""
        assignments = [f"{key}={shlex.quote(value)}" for key, value in self.environment.items()]
        return " ".join([*assignments, *map(quote, self.words)])


def commands(
    layout: Layout, hosts: Sequence[str], ports: Ports, overrides: Sequence[str], wishes: Wishes
) -> list[Command]:
    """All commands, servers before trainers. hosts: one name for each node of the layout."""
    nodes = layout.placed()
    shared = [*overrides, *(["generator=vllm_server"] if layout.generators else [])]
    found = reached(layout, hosts, ports)
    by_nccl = nccl(found, overrides, lead_of(layout, hosts), ports)
    sync = [word for word in by_nccl if word == BY_NCCL]
    servers = [
        Command(
            node.number,
            f"server{node.number}.{place}",
            ("rlhf-lab", "serve", *shared, *sync, *listening_at(found[node.number, place])),
            wishes.environment([device]),
        )
        for node in nodes
        for place, device in enumerate(node.generators)
    ]
    own = trainer_overrides(found, by_nccl) if layout.generators else []
    train = ("-m", "rlhf_lab.cli.main", "train", *overrides, *own)
    training = [node for node in nodes if node.trainers]
    trainers = [
        Command(
            node.number,
            f"trainer{node.number}",
            (*torchrun(node, rank, len(training), hosts[training[0].number], ports), *train),
            wishes.environment(trainer_devices(layout, node, overrides)) | workspace(overrides),
        )
        for rank, node in enumerate(training)
    ]
    return [*daemons(nodes, wishes), *servers, *trainers]


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


def workspace(overrides: Sequence[str]) -> dict[str, str]:
    """The variable that deterministic kernels need before CUDA starts, which ranks do first."""
    is_on = any(word.lower() == "deterministic=true" for word in overrides)
    return {WORKSPACE: FIXED_WORKSPACES[0]} if is_on else {}


def daemons(nodes: Sequence[Node], wishes: Wishes) -> list[Command]:
    """The MPS daemon of every node, if there is to be one."""
    if not wishes.has_mps:
        return []
    return [Command(node.number, f"mps{node.number}", MPS_DAEMON, wishes.mps()) for node in nodes]


def trainer_overrides(
    found: Mapping[tuple[int, int], tuple[str, str]], by_nccl: Sequence[str]
) -> list[str]:
    """Overrides by which trainers find their servers."""
    urls = ",".join(f"http://{host}:{port}" for host, port in found.values())
    return ["generator=vllm_server", f"generator.urls=[{urls}]", CONNECT, *by_nccl]


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
