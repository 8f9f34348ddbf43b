"""`rlhf-lab launch`: the commands of a run over several devices and nodes, printed, as a Slurm
script, or run on this machine."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.experiment.layout import Layout, parsed
from rlhf_lab.rollout.ports import require_free
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.launchers import local, torchrun
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("words", nargs="*", metavar="layout=...", help="NODESxDEVICES:TRAINERS+GENERATORS")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--run", action="store_true", help="run the commands on this machine")
    action.add_argument("--slurm", action="store_true", help="print a Slurm script")
    add("--hosts", default="", metavar="A,B", help="the host of each node (this machine)")
    add("--port", type=int, default=29500, metavar="N", help="where trainers meet (29500)")
    text = "port of a node's first generator; others count up (8100)"
    add("--server-port", type=int, default=8100, metavar="N", help=text)
    add("--cpu", action="store_true", help="assign no devices")
    parser.add_argument_group("key=value ...", "overrides of the run, as for `rlhf-lab train`")


def read(words: Sequence[str]) -> tuple[Layout, list[str]]:
    """The layout, and the overrides beside it."""
    layouts = [word.removeprefix("layout=") for word in words if word.startswith("layout=")]
    if len(layouts) != 1:
        raise UserError(f"pass one layout, such as layout=1x8:7+1: {COMMAND.line}")
    return parsed(layouts[0]), [word for word in words if not word.startswith("layout=")]


def require_startable(overrides: Sequence[str], num_trainers: int, here: bool) -> None:
    """Refuse overrides that no run of so many trainers could start with. here: whether this machine
    starts them; packages, devices and data are looked for only then."""
    from rlhf_lab.cli.compose import checked, compose
    from rlhf_lab.experiment.checks import check
    from rlhf_lab.experiment.checks_devices import check_trainers
    from rlhf_lab.experiment.config import typed

    def job(cfg: DictConfig) -> None:
        if here:
            config, _ = checked(cfg)
        else:
            check(config := typed(cfg), here=False)
        check_trainers(config, num_trainers)

    compose(job, overrides)


def launch(options: argparse.Namespace, console: Console) -> int:
    """Print or run the commands of a run. Returns 0, or the exit code of what was run."""
    layout, overrides = read(options.words)
    ports = torchrun.Ports(options.port, options.server_port)
    hosts = [] if options.slurm else torchrun.hosts_of(layout, options.hosts)
    if options.run:
        return run_here(layout, hosts, ports, overrides, options.cpu, console)
    named = hosts or [f"node{number}" for number in range(layout.nodes)]
    of_trainer = torchrun.trainer_overrides(layout, named, ports, overrides)
    require_startable(of_trainer, layout.trainers, here=False)
    if options.slurm:
        sys.stdout.write(torchrun.slurm_script(layout, ports, overrides, options.cpu))
        return 0
    commands = torchrun.commands(layout, hosts, ports, overrides, options.cpu)
    sys.stdout.write(torchrun.printed(commands, hosts))
    return 0


def run_here(
    layout: Layout,
    hosts: Sequence[str],
    ports: torchrun.Ports,
    overrides: Sequence[str],
    is_cpu: bool,
    console: Console,
) -> int:
    """Start every command on this machine. Returns the exit code of the trainers."""
    if layout.nodes > 1:
        raise UserError(
            f"layout={layout} with --run: only this machine's processes can be started; leave "
            "--run out and run the commands on each host, or pass --slurm"
        )
    generator = ["generator=vllm_server"] if layout.generators else []
    require_startable([*overrides, *generator], layout.trainers, here=True)
    require_free("--port", ports.trainers)
    for number in range(layout.generators):
        require_free("--server-port", ports.servers + number)
    commands = torchrun.commands(layout, hosts, ports, overrides, is_cpu)
    folder = Path("runs") / f"launch-{time.strftime('%Y%m%d-%H%M%S')}"
    return local.run(commands, folder, console)


COMMAND = OptionsCommand(
    "launch",
    "the commands of a run over devices and nodes",
    "layout=1x8:7+1 algo=grpo mode=async",
    usage=(
        "layout=NODESxDEVICES:TRAINERS+GENERATORS [--run | --slurm] [--hosts A,B] [--port N] "
        "[--server-port N] [--cpu] [key=value ...]"
    ),
    add_options=add_options,
    action=launch,
)
