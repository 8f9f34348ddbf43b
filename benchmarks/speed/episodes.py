"""Episodes whose environments take their time, with and without decoding beside their calls.

python -m benchmarks.speed.episodes RUN [--seconds 0.05] [--ahead 8] [--at-once 64]

A finished run of a task with an environment gives the policy. Each step of an environment sleeps.
Both sides play the same episodes with the same random numbers and take turns at it: once every row
waits for each call (episodes.decode_ahead=0), and once the others go on. Tokens are those that the
policy wrote.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from benchmarks.speed.clock import Spread
from benchmarks.speed.program import in_turns
from rlhf_lab.cli.arguments import recorded_overrides
from rlhf_lab.cli.compose import compose
from rlhf_lab.experiment.build import build_player
from rlhf_lab.experiment.build_prompts import build_prompts
from rlhf_lab.experiment.config import Config, typed
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.pretrained import PretrainedModel
from rlhf_lab.runs.folder import POLICY
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.environment import Environment, Episodic, Turn
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Split


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


def play(config: Config, run: Path, prompts: int, size: int) -> Callable[[int], float]:
    """Plays one chunk, and returns its tokens per second. size: episodes of each prompt."""
    if not isinstance(config.task, Episodic):
        raise UserError(f"{run}: task={config.task.name} has one turn; name a run of task=ask_nano")
    model, tokenizer = load_policy(PretrainedModel("policy", str(run / POLICY)), None, 0)
    weights = Weights(0, {name: p.detach().clone() for name, p in model.named_parameters()})
    player = build_player(config, model, tokenizer, "rollout")
    stream = build_prompts(config, tokenizer, Split.validation, "rollout", shuffle=False)
    chunk = Chunk(0, 0, tuple(stream[number] for number in range(prompts)), size)

    def speed(_: int) -> float:
        start = time.perf_counter()
        groups = player.generate(weights, chunk)
        spent = time.perf_counter() - start
        return sum(len(s.tokens) for group in groups for s in group.samples) / spent

    return speed


def measure(config: Config, given: argparse.Namespace) -> None:
    """Time both sides in turns, and print what they did."""
    console, task, sides = Console(quiet=False), with_sleep(config.task, given.seconds), {}
    for ahead in (0, given.ahead):
        episodes = replace(config.episodes, decode_ahead=ahead, steps_at_once=given.at_once)
        setting = replace(config, task=task, episodes=episodes)
        sides[f"decode_ahead={ahead}"] = play(setting, given.run, given.prompts, given.size)
    found = in_turns(sides, given.repeats)
    for name, speeds in found.items():
        console.print(f"{name}: {Spread.of(speeds).text()} tokens a second")
    ratios = [second / first for first, second in zip(*found.values(), strict=True)]
    console.print(f"ratio: {Spread.of(ratios).text('.2f')}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns 0."""
    parser = argparse.ArgumentParser(description="Time episodes whose environments are slow.")
    parser.add_argument("run", type=Path, metavar="RUN", help="a finished run with an environment")
    parser.add_argument("--prompts", type=int, default=64, help="of a chunk (64)")
    parser.add_argument("--size", type=int, default=4, help="episodes of each prompt (4)")
    parser.add_argument("--repeats", type=int, default=5, help="of each side, in turns (5)")
    parser.add_argument("--seconds", type=float, default=0.05, help="of a step (0.05)")
    parser.add_argument("--ahead", type=int, default=8, help="episodes.decode_ahead (8)")
    parser.add_argument("--at-once", type=int, default=64, help="episodes.steps_at_once (64)")
    given = parser.parse_args(arguments)
    compose(lambda cfg: measure(typed(cfg), given), recorded_overrides(given.run))
    return 0


if __name__ == "__main__":
    sys.exit(main())
