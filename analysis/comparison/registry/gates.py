"""Leave out runs whose SFT or proxy is not good enough, by bounds that were stated before."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rlhf_lab.runs.trackers.console import counted
from rlhf_lab_analysis.comparison.cell import STAGES, Cell, Member, Seeds
from rlhf_lab_analysis.comparison.registry.definitions import Registry
from rlhf_lab_analysis.comparison.selection import Selection


@dataclass(frozen=True)
class Stage:
    """The stages of a seed: what evaluations recorded of them, and how many runs began there."""

    task: str
    model: str
    seed: int
    numbers: Mapping[str, float]
    is_good: bool
    runs: int

    @property
    def row(self) -> tuple[str, ...]:
        numbers = [f"{self.numbers[key]:.3f}" if key in self.numbers else "" for key in STAGES]
        passed = "yes" if self.is_good else "no"
        return self.task, self.model, str(self.seed), *numbers, passed, str(self.runs)


def stages_of(registry: Registry, selection: Selection) -> Iterator[Stage]:
    """Every stage seed of these runs, of those that recorded how good its stages were."""
    found: dict[tuple[str, str, int], list[tuple[Cell, Member]]] = {}
    for cell in selection.cells:
        for seeds, member in cell.members.items():
            if member.stages:
                key = (str(cell.parts["task"]), str(cell.parts["model"]), stage_of(seeds))
                found.setdefault(key, []).append((cell, member))
    for (task, model, seed), runs in sorted(found.items(), key=lambda one: one[0]):
        is_good = not failing(registry, *runs[0])
        yield Stage(task, model, seed, runs[0][1].stages, is_good, len(runs))


def gated(registry: Registry, selection: Selection) -> tuple[Selection, list[str]]:
    """The conditions without the runs that a gate stops, and a line for each of their stage seeds.

    A run without such a number, as one of a pretrained policy, passes.
    """
    lines: Counter[str] = Counter()
    kept = []
    for cell in selection.cells:
        reasons = {seeds: failing(registry, cell, member) for seeds, member in cell.members.items()}
        for seeds, texts in reasons.items():
            stage = f"stopped by the gate: {cell.parts['task']}, stage seed {stage_of(seeds)}"
            lines.update(f"{stage}: {text}" for text in texts)
        if good := {seeds for seeds, texts in reasons.items() if not texts}:
            kept.append(cell.restricted(good))
    stopped = [f"{text} ({counted(num, 'run')})" for text, num in sorted(lines.items())]
    return Selection(tuple(kept), selection.left_out), stopped


def failing(registry: Registry, cell: Cell, member: Member) -> list[str]:
    """The gates of its task that a run does not pass."""
    gates, numbers = registry.gates.get(str(cell.parts["task"]), {}), member.stages
    return [
        f"{key} is {numbers[key]:.3f}, and "
        + " and ".join(f"at {name} {value:g}" for name, value in gate.items())
        + " is wanted"
        for key, gate in gates.items()
        if key in numbers
        and not gate.get("least", -math.inf) <= numbers[key] <= gate.get("most", math.inf)
    ]


def stage_of(seeds: Seeds) -> int:
    """The seed of a run's stages: its own, else that of the run."""
    return seeds[0] or seeds[1]
