"""Episodes whose environments take their time, with and without decoding beside their calls:
`benchmarks.speed.slow_calls RUN`.

A finished run of a task with an environment gives the policy. Each step of an environment sleeps.
Both sides play the same episodes with the same random numbers and take turns at it: once every row
waits for each call (episodes.decode_ahead=0), and once the others go on. Tokens are those that the
policy wrote.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from benchmarks.speed.clock import Spread
from benchmarks.speed.turns import (
    parser_of_episodes,
    plays,
    tokens_per_second,
    with_config_of_run,
)
from rlhf_lab.experiment.config import Config
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.environment import Environment, Turn
from rlhf_lab.types.samples import Example


@dataclass(frozen=True)
class Sleeping:
    """An environment whose steps take so many seconds more."""

    environment: Environment
    seconds: float

    def reset(self, example: Example, seed: int) -> str:
        return self.environment.reset(example, seed)

    def step(self, action: str, finished: bool) -> Turn:
        time.sleep(self.seconds)
        return self.environment.step(action, finished)


def with_sleep(task: Any, seconds: float) -> Any:
    """The same task with environments that sleep."""

    def environment(self: Any) -> Environment:
        return Sleeping(type(task).environment(self), seconds)

    slow = type("SlowTask", (type(task),), {"environment": environment})
    return slow(**{one.name: getattr(task, one.name) for one in fields(task)})


def measure(config: Config, given: argparse.Namespace) -> None:
    """Time both sides in turns, and print what they did."""
    console = Console(quiet=False)
    task = with_sleep(config.task, given.seconds)
    both = {}
    for ahead in (0, given.ahead):
        episodes = replace(config.episodes, decode_ahead=ahead, steps_at_once=given.at_once)
        setting = replace(config, task=task, episodes=episodes)
        both[ahead] = plays(setting, given.run, given.prompts, given.size)["rows by themselves"]
    found: dict[int, list[float]] = {ahead: [] for ahead in both}
    for _ in range(given.repeats):
        for ahead, play in both.items():
            found[ahead].append(tokens_per_second(play)[0])
    for ahead, speeds in found.items():
        console.print(f"decode_ahead={ahead}: {Spread.of(speeds).text()} tokens a second")
    ratios = [second / first for first, second in zip(*found.values(), strict=True)]
    console.print(f"ratio: {Spread.of(ratios).text('.2f')}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns 0."""
    parser = parser_of_episodes("Time episodes whose environments are slow.")
    parser.add_argument("--seconds", type=float, default=0.05, help="of a step (0.05)")
    parser.add_argument("--ahead", type=int, default=8, help="episodes.decode_ahead (8)")
    parser.add_argument("--at-once", type=int, default=64, help="episodes.steps_at_once (64)")
    with_config_of_run(measure, parser.parse_args(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
