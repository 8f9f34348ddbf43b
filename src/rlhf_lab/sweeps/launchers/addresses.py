"""Where the servers and trainers of a layout reach each other: hosts, ports, and NCCL's meeting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from rlhf_lab.experiment.layout import Layout
from rlhf_lab.rollout.ports import LOOPBACK

BY_NCCL = "generator.sync=nccl"
# Placeholders for the name of a host and for a port, which are known in the job only.
HOST_MARK = "-host-of-the-job"
PORT_MARK = "-port-of-the-job"


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
    layout: Layout, hosts: Sequence[str], ports: Ports
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
        for place in range(len(node.generators))
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


def listening_at(place: tuple[str, str]) -> tuple[str, ...]:
    """Where a server listens: on the loopback interface, if it is reached there."""
    host, port = place
    everywhere = () if host == LOOPBACK else ("generator.host=0.0.0.0",)
    return (f"generator.port={port}", *everywhere)
