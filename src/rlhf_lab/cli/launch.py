"""`rlhf-lab launch`: the commands of a run over several devices and nodes, printed, as a Slurm
script, or run on this machine; and `rlhf-lab serve`, the vLLM server that they start.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlhf_lab.cli.command import HydraCommand, OptionsCommand
from rlhf_lab.experiment.config.layout import Layout, parsed
from rlhf_lab.rollout.ports import require_free
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.launchers import torchrun
from rlhf_lab.sweeps.launchers.slurm_script import (
    GRACE_SECONDS,
    JOB_PORTS,
    SlurmRequest,
    slurm_script,
)
from rlhf_lab.sweeps.launchers.torchrun import NodeCommand, Ports, ResourceRequest
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from rlhf_lab.experiment.config.config import Config

PORTS = Ports(29500, 8100)
# The engine of several trainers that needs no package beside PyTorch.
SHARING = "engine=fsdp"


def serve(cfg: DictConfig) -> None:
    """Become the server of runs with this config, until it is stopped."""
    from rlhf_lab.cli.compose import checked

    config, console = checked(cfg)
    from rlhf_lab.experiment.build.rollout import build_server

    command = build_server(config)
    console.print(f"starting {' '.join(command.words)}")
    sys.stdout.flush()
    os.execve(command.words[0], command.words, os.environ | command.variables)


SERVE = HydraCommand(
    "serve",
    "a vLLM server for runs on any host",
    "generator=vllm generator.port=8100 model=pythia_410m",
    job=serve,
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("words", nargs="*", metavar="layout=...", help="NODESxDEVICES:TRAINERS+GENERATORS")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--run", action="store_true", help="run the commands on this machine")
    action.add_argument("--slurm", action="store_true", help="print a Slurm script")
    add("--hosts", default="", metavar="A,B", help="the host of each node (this machine)")
    text = "where trainers meet (29500; by the job's number with --slurm)"
    add("--port", type=int, metavar="N", help=text)
    text = "port of a node's first generator; others count up (8100, or by the job's number)"
    add("--server-port", type=int, metavar="N", help=text)
    add("--cpu", action="store_true", help="assign no devices")
    add("--mps", action="store_true", help="start CUDA's MPS daemon on every node")
    slurm = parser.add_argument_group("with --slurm")
    add = slurm.add_argument
    add("--share", action="store_true", help="let other jobs use the nodes (exclusive)")
    text = "CPUs of each node (all; 8 for a device with --share)"
    add("--cpus-per-task", type=int, default=0, metavar="N", help=text)
    text = "memory of each node (all; 64G for a device with --share)"
    add("--mem", default="", metavar="SIZE", help=text)
    add("--container-image", default="", metavar="IMAGE", help="for srun, with pyxis")
    text = "for srun, beside the working folder"
    add("--container-mounts", default="", metavar="A:B,C:D", help=text)
    text = f"for trainers to save their state once a process is lost ({GRACE_SECONDS})"
    add("--grace", type=int, default=0, metavar="SECONDS", help=text)
    parser.add_argument_group("key=value ...", "overrides of the run, as for `rlhf-lab train`")


def layout_and_overrides(words: Sequence[str]) -> tuple[Layout, list[str]]:
    layouts = [word.removeprefix("layout=") for word in words if word.startswith("layout=")]
    if len(layouts) != 1:
        raise UserError(f"pass one layout, such as layout=1x8:7+1: {LAUNCH.line}")
    return parsed(layouts[0]), [word for word in words if not word.startswith("layout=")]


def ports_of(options: argparse.Namespace) -> Ports:
    """The ports that were passed; without any, those of the Slurm job or the usual ones."""
    if options.port is None and options.server_port is None:
        return JOB_PORTS if options.slurm else PORTS
    return Ports(
        PORTS.trainers if options.port is None else options.port,
        PORTS.servers if options.server_port is None else options.server_port,
    )


def slurm_request(options: argparse.Namespace) -> SlurmRequest:
    """The request to Slurm. Raises UserError for its options without --slurm."""
    request = {
        "--share": options.share,
        "--cpus-per-task": options.cpus_per_task,
        "--mem": options.mem,
        "--container-image": options.container_image,
        "--container-mounts": options.container_mounts,
        "--grace": options.grace,
    }
    passed = [key for key, value in request.items() if value]
    if passed and not options.slurm:
        raise UserError(f"{passed[0]} is for a Slurm job: pass --slurm, or leave it out")
    if options.container_image and options.mps:
        raise UserError(
            "--mps with --container-image: the daemon would run outside of the container; start "
            "it in the image, or leave one of them out"
        )
    return SlurmRequest(*request.values())


def settled(overrides: Sequence[str], layout: Layout) -> tuple[list[str], int]:
    """The overrides with an engine for so many trainers, where they choose none that shares work
    and none by name; and how many devices a server takes."""
    from rlhf_lab.cli.compose import compose
    from rlhf_lab.experiment.config.typed import typed

    found: list[Config] = []
    compose(lambda cfg: found.append(typed(cfg)), [*overrides, *torchrun.generator_of(layout)])
    is_chosen = any(word.startswith("engine=") for word in overrides)
    needs_one = layout.trainers > 1 and not is_chosen and not found[0].engine.shares_work
    return [*overrides, *([SHARING] if needs_one else [])], found[0].generator.num_gpus


def require_startable(overrides: Sequence[str], num_trainers: int, here: bool) -> None:
    """Refuse overrides that no run of so many trainers could start with. here: whether this machine
    starts them; packages, devices and data are looked for only then."""
    from rlhf_lab.cli.compose import checked, compose
    from rlhf_lab.experiment.config.typed import typed
    from rlhf_lab.experiment.rules.checks import check
    from rlhf_lab.experiment.rules.devices import check_trainers

    def job(cfg: DictConfig) -> None:
        if here:
            config, _ = checked(cfg)
        else:
            check(config := typed(cfg), here=False)
        check_trainers(config, num_trainers)

    compose(job, overrides)


def require_all(found: Sequence[NodeCommand], num_trainers: int) -> None:
    """Refuse commands that would be refused where they are run. Of servers that differ in their
    port alone, the first is checked."""
    checked = set()
    for command in found:
        overrides = command.overrides
        kind = frozenset(word for word in overrides if not word.startswith("generator.port="))
        if overrides and kind not in checked:
            checked.add(kind)
            require_startable(overrides, num_trainers if command.is_trainer else 1, here=False)


def launch(options: argparse.Namespace, console: Console) -> int:
    """Print or run the commands of a run. Returns 0, or the exit code of what was run."""
    layout, overrides = layout_and_overrides(options.words)
    ports, slurm = ports_of(options), slurm_request(options)
    hosts = [] if options.slurm else torchrun.hosts_of(layout, options.hosts)
    overrides, server_devices = settled(overrides, layout)
    if options.run:
        run_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        request = ResourceRequest(server_devices, options.cpu, options.mps, run_id)
        return run_here(layout, hosts, ports, overrides, request, console)
    named = hosts or [f"node{number}" for number in range(layout.nodes)]
    run_id = "" if options.slurm else torchrun.run_id_of(str(layout), hosts, ports, overrides)
    request = ResourceRequest(server_devices, options.cpu, options.mps, run_id)
    numbered = PORTS if ports.is_of_job else ports
    require_all(torchrun.commands(layout, named, numbered, overrides, request), layout.trainers)
    if options.slurm:
        sys.stdout.write(slurm_script(layout, ports, overrides, request, slurm))
        return 0
    commands = torchrun.commands(layout, hosts, ports, overrides, request)
    sys.stdout.write(torchrun.printed(commands, hosts))
    return 0


def run_here(
    layout: Layout,
    hosts: Sequence[str],
    ports: Ports,
    overrides: Sequence[str],
    request: ResourceRequest,
    console: Console,
) -> int:
    """Start every command on this machine. Returns the exit code of the trainers."""
    if layout.nodes > 1:
        raise UserError(
            f"layout={layout} with --run: only this machine's processes can be started; leave "
            "--run out and run the commands on each host, or pass --slurm"
        )
    require_startable([*overrides, *torchrun.generator_of(layout)], layout.trainers, here=True)
    require_free("--port", ports.trainers)
    commands = torchrun.commands(layout, hosts, ports, overrides, request)
    for number in range(sum(command.is_server for command in commands)):
        require_free("--server-port", ports.servers + number)
    return torchrun.run_here(commands, Path("runs") / f"launch-{request.run_id}", console)


LAUNCH = OptionsCommand(
    "launch",
    "the commands of a run over devices and nodes",
    "layout=1x8:7+1 algo=grpo mode=async",
    usage=(
        "layout=NODESxDEVICES:TRAINERS+GENERATORS [--run | --slurm] [--hosts A,B] [--port N] "
        "[--server-port N] [--cpu] [--mps] [--share] [--cpus-per-task N] [--mem SIZE] "
        "[--container-image IMAGE] [--container-mounts A:B,C:D] [key=value ...]"
    ),
    completes="layout",
    add_options=add_options,
    action=launch,
)
