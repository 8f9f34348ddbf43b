"""`rlhf-lab launch`: print the commands of a layout, write a Slurm script, or run them here."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from rlhf_lab.rollout.ports import LOOPBACK, require_free
from rlhf_lab.runs.child import Child, exit_text, last_lines
from rlhf_lab.runs.signals import listening
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.launchers.layout import Layout, parsed
from rlhf_lab.sweeps.launchers.torchrun import (
    SHUTDOWN_SECONDS,
    Command,
    Ports,
    commands,
    printed,
    slurm_script,
)
from rlhf_lab.types.errors import UserError

USAGE = (
    "rlhf-lab launch layout=NODESxDEVICES:TRAINERS+GENERATORS [--run | --slurm] [--hosts A,B] "
    "[--port N] [--server-port N] [--cpu] [key=value ...]"
)
POLL_SECONDS = 0.5
GRACE_SECONDS = SHUTDOWN_SECONDS + 30.0


def run(found: Sequence[Command], folder: Path, console: Console) -> int:
    """Run all commands on this machine until the trainer ends. Returns its exit code.

    Servers write to logs in `folder`. A server that ends before the trainer ends the run with the
    last lines of its log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Servers come first.
    started: dict[str, Child] = {}
    try:
        with listening():
            for command in found:
                log = None if command.is_trainer else folder / f"{command.name}.log"
                console.say(f"{command.name}: {command.text()}{f' > {log}' if log else ''}")
                started[command.name] = start(command, log)
            *servers, trainer = started
            return exit_code(started[trainer], {name: started[name] for name in servers})
    finally:
        # The trainer first: it needs its servers until its state is saved.
        for child in reversed(started.values()):
            child.stop(GRACE_SECONDS)


def start(command: Command, log: Path | None) -> Child:
    """A command in a session of its own, with this environment's executables first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return Child(command.words, log, {"PATH": path, **command.environment})


def exit_code(trainer: Child, servers: Mapping[str, Child]) -> int:
    """The trainer's, when it has ended. Raises RuntimeError if a server ends first."""
    while (code := trainer.exit_code) is None:
        for name, server in servers.items():
            if server.exit_code is not None and server.log is not None:
                raise RuntimeError(
                    f"{name} ended with {exit_text(server.exit_code)}; its last lines in "
                    f"{server.log}:\n{last_lines(server.log)}"
                )
        time.sleep(POLL_SECONDS)
    return code


class Parser(argparse.ArgumentParser):
    """Raises UserError as the other commands do."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}: {USAGE}")


def options(arguments: Sequence[str]) -> tuple[argparse.Namespace, Layout, list[str]]:
    """Flags, the layout, and the overrides that are left."""
    parser = Parser(prog="rlhf-lab launch", usage=USAGE, allow_abbrev=False)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--run", action="store_true")
    action.add_argument("--slurm", action="store_true")
    parser.add_argument("--hosts", default="")
    parser.add_argument("--port", type=int, default=29500)
    parser.add_argument("--server-port", type=int, default=8100)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("words", nargs="*")
    chosen = parser.parse_intermixed_args(arguments)
    layouts = [word.removeprefix("layout=") for word in chosen.words if word.startswith("layout=")]
    if len(layouts) != 1:
        raise UserError(f"pass one layout, such as layout=1x8:7+1: {USAGE}")
    overrides = [word for word in chosen.words if not word.startswith("layout=")]
    return chosen, parsed(layouts[0]), overrides


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


def show(
    arguments: Sequence[str], console: Console, check: Callable[[Sequence[str], int], None]
) -> int:
    """Print or run the commands. check: refuses overrides whose config does not work with so many
    trainers."""
    chosen, layout, overrides = options(arguments)
    ports = Ports(chosen.port, chosen.server_port)
    shared = [*overrides, *(["generator=vllm_server"] if layout.generators else [])]
    check(shared, layout.trainers)
    if chosen.slurm:
        sys.stdout.write(slurm_script(layout, ports, overrides, chosen.cpu))
        return 0
    hosts = hosts_of(layout, chosen.hosts)
    found = commands(layout, hosts, ports, overrides, chosen.cpu)
    if not chosen.run:
        sys.stdout.write(printed(found, hosts))
        return 0
    if layout.nodes > 1:
        raise UserError(
            f"layout={layout} with --run: only this machine's processes can be started; leave "
            "--run out and run the commands on each host, or pass --slurm"
        )
    require_free("--port", chosen.port)
    for place in range(layout.generators):
        require_free("--server-port", chosen.server_port + place)
    return run(found, Path("runs") / f"launch-{time.strftime('%Y%m%d-%H%M%S')}", console)
