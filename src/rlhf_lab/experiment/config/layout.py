"""Which device of which node trains and which generates: `1x8:7+1` as in the paper's 8B runs.

NODESxDEVICES:TRAINERS+GENERATORS. Trainers take the first devices, node after node; generators take
the last ones, so that a node is shared only where the trainers do not fill it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlhf_lab.types.errors import UserError

FORM = re.compile(r"(\d+)x(\d+):(\d+)\+(\d+)")


@dataclass(frozen=True)
class Node:
    """One machine: its number of trainer processes, and the devices of its generators."""

    number: int
    trainers: int
    generators: tuple[int, ...]

    def servers(self, size: int) -> list[tuple[int, ...]]:
        """The devices of each server of this node, `size` neighbours for each. Raises UserError if
        some are left over."""
        count = len(self.generators)
        if count % size:
            raise UserError(
                f"generator.tensor_parallel_size * generator.data_parallel_size = {size} devices "
                f"of a server, but node {self.number} of the layout has {count} that generate: "
                f"choose a layout with a multiple of {size} on each node, or smaller sizes"
            )
        return [self.generators[start : start + size] for start in range(0, count, size)]


@dataclass(frozen=True)
class Layout:
    """Nodes of a run, devices of each node, trainer processes, generator servers."""

    nodes: int
    devices: int
    trainers: int
    generators: int

    def __post_init__(self) -> None:
        if self.trainers < 1:
            raise UserError(f"layout={self}: at least one device must train")
        needed, there = self.trainers + self.generators, self.nodes * self.devices
        if needed > there:
            raise UserError(
                f"layout={self}: {needed} devices are needed, {self.nodes} nodes of "
                f"{self.devices} have {there}; lower the counts or add nodes"
            )

    def __str__(self) -> str:
        return f"{self.nodes}x{self.devices}:{self.trainers}+{self.generators}"

    def placed(self) -> list[Node]:
        """Every node that has work."""
        first_generator = self.nodes * self.devices - self.generators
        nodes = []
        for number in range(self.nodes):
            start, end = number * self.devices, (number + 1) * self.devices
            trainers = min(max(self.trainers - start, 0), self.devices)
            generators = tuple(device - start for device in range(max(start, first_generator), end))
            if trainers or generators:
                nodes.append(Node(number, trainers, generators))
        return nodes

    def has_servers_of(self, size: int) -> bool:
        """Whether every node's generators are servers of so many devices, none left over."""
        return all(len(node.generators) % size == 0 for node in self.placed())


def parsed(text: str) -> Layout:
    """The layout that a text such as 2x8:8+8 names. Raises UserError for any other text."""
    found = FORM.fullmatch(text)
    if found is None:
        raise UserError(
            f"layout={text}: write NODESxDEVICES:TRAINERS+GENERATORS, such as 1x8:7+1 (one node of "
            "8 devices, 7 train and 1 generates)"
        )
    return Layout(*map(int, found.groups()))
