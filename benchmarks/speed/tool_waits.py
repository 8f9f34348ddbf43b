"""What asynchrony gains where episodes wait for tools: `benchmarks.speed.tool_waits`.

A virtual cluster (cluster=nodes_8_8) writes and trains on episodes of given lengths, without
learning: lengths and waits decide its time, and weights do not. Episodes have 1 to 8 turns of
log-normal lengths; tools take log-normal times, with a median of as long as an action is decoded.
Each cell of the table is one setting over the same seeds, sync and async paired. The ideal is that
of two lanes that overlap fully, (g + t) / max(g, t): g, t are the virtual seconds in which a round
is written and trained on in sync. It is no bound: where a sync round ends with a few episodes that
wait for tools, an async one begins the next.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlhf_lab.cli.compose import compose
from rlhf_lab.experiment.config import typed
from rlhf_lab.rollout.cluster.job import Waits
from rlhf_lab.rollout.cluster.options import ClusterOptions
from rlhf_lab.rollout.cluster.simulate import Work, simulate, virtual_mode
from rlhf_lab.rollout.generators.tool_times import ToolTimes
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab_analysis.markdown import Table, publish
from rlhf_lab_analysis.statistics.intervals import mean_ends

GROUPS, SIZE, ROUNDS, TURNS, LIMIT = 32, 4, 10, 8, 64
STALENESS = (1, 2, 4)
# Medians as multiples of the time of a median action, and the logarithm's standard deviation.
TOOLS = ((0.0, 0.0), (1.0, 0.0), (1.0, 2.0), (4.0, 0.0), (4.0, 2.0))
MEDIAN_ACTION, SPREAD = 5, 0.6


@dataclass(frozen=True)
class Episodes:
    """Lengths and waits of all chunks of a run, by seed. tools: virtual seconds of an
    observation."""

    seed: int
    tools: ToolTimes

    def rows(self, number: int) -> list[list[int]]:
        """Tokens of each turn, of each row of a chunk."""
        rng = np.random.Generator(np.random.Philox(key=stable_hash(self.seed, number)))
        turns = rng.integers(1, TURNS, SIZE, endpoint=True)
        return [
            np.ceil(rng.lognormal(np.log(MEDIAN_ACTION), SPREAD, count)).astype(int).tolist()
            for count in turns
        ]

    def lengths(self, number: int) -> list[int]:
        """Tokens of each row of a chunk."""
        return [sum(row) for row in self.rows(number)]

    def waits(self, number: int) -> list[Waits]:
        """Tokens behind which each row waits, and virtual seconds."""
        if not self.tools.median:
            return []
        return [
            [
                (int(end), self.tools.seconds(stable_hash(self.seed, number, place), turn))
                for turn, end in enumerate(np.cumsum(row[:-1]), start=1)
            ]
            for place, row in enumerate(self.rows(number))
        ]


@dataclass(frozen=True)
class Course:
    """Virtual seconds of a run: in all, of its trainer, and of waiting for samples."""

    wall: float
    train: float
    wait: float

    @property
    def ideal(self) -> float:
        """What overlap gains at best, for a run that takes turns."""
        return self.wall / max(self.train, self.wait)


def course(options: ClusterOptions, episodes: Episodes, staleness: int) -> Course:
    """The run of these episodes."""
    work = Work(episodes.lengths, lambda _: 100, LIMIT, GROUPS, ROUNDS, waits=episodes.waits)
    last = simulate(options, virtual_mode(staleness), work, episodes.seed).rounds[-1]
    train = last["virtual_seconds/train"] + last["virtual_seconds/sync"]
    return Course(last["virtual_seconds/wall"], train, last["virtual_seconds/wait"])


def action_seconds(options: ClusterOptions) -> float:
    """Virtual seconds in which a full generator decodes an action of the median length."""
    return options.length(MEDIAN_ACTION, LIMIT) * options.step(options.rows)


def interval(values: Sequence[float], level: float = 0.95) -> str:
    """Mean and t interval over seeds."""
    low, high = mean_ends(values, level)
    return f"{np.mean(values):.2f} [{low:.2f}, {high:.2f}]"


def table(options: ClusterOptions, seeds: Sequence[int]) -> Table:
    """Speed-ups of async over sync for each kind of tool."""
    unit = action_seconds(options)
    rows = []
    for median, sigma in TOOLS:
        tools = ToolTimes(median * unit, sigma)
        worlds = [Episodes(seed, tools) for seed in seeds]
        sync = [course(options, world, 0) for world in worlds]
        gains = [
            [one.wall / course(options, world, staleness).wall for one, world in paired]
            for staleness in STALENESS
            if (paired := list(zip(sync, worlds, strict=True)))
        ]
        rows.append(
            [
                f"{median * unit:.1f}",
                f"{sigma:g}" if median else "",
                f"{np.mean([one.wall for one in sync]) / ROUNDS:.0f}",
                interval([one.ideal for one in sync]),
                *map(interval, gains),
            ]
        )
    title = f"Speed-up over sync, cluster={options.name}, {len(seeds)} seeds, 95% t intervals"
    heads = ["tool, median virtual s", "sigma", "sync, virtual s a round", "ideal"]
    return Table(title, [*heads, *(f"S={staleness}" for staleness in STALENESS)], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns 0."""
    parser = argparse.ArgumentParser(description="What asynchrony gains where tools are slow.")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each setting (5)")
    parser.add_argument("--docs", type=Path, help="page between whose markers the table is put")
    given = parser.parse_args(arguments)

    def make(cfg: object) -> None:
        options = typed(cfg).cluster  # type: ignore[arg-type]
        found = table(options, range(1, given.seeds + 1))
        caption = (
            f"{ROUNDS} rounds of {GROUPS} groups of {SIZE} episodes, of 1 to {TURNS} turns; "
            f"an action is decoded in {action_seconds(options):.1f} virtual s in the middle."
        )
        publish(caption, (), [found], given.docs, Console(quiet=False))

    compose(make, ["mode=virtual", "cluster=nodes_8_8"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
