"""Episodes whose rows go on by themselves against turns that all rows take together:
`benchmarks.speed.turns RUN`.

A finished run of a task with an environment gives the policy. Both sides play the same episodes
with the same random numbers and take turns at it: once as training does, and once stopped behind
every turn, so that each turn waits for the longest action of all and reads the contexts anew.
Tokens are those that the policy wrote.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from benchmarks.speed.clock import Spread
from rlhf_lab.cli.arguments import recorded_overrides
from rlhf_lab.cli.compose import compose
from rlhf_lab.experiment.build import build_player
from rlhf_lab.experiment.build_prompts import build_prompts
from rlhf_lab.experiment.config import Config, typed
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.pretrained import PretrainedModel
from rlhf_lab.runs.folder import POLICY
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.environment import Episodic
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Generator
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Group, Split

Play = Callable[[], Sequence[Group]]


def plays(config: Config, run: Path, prompts: int, size: int) -> dict[str, Play]:
    """Both ways to play one chunk. size: episodes of each prompt."""
    if not isinstance(config.task, Episodic):
        raise UserError(f"{run}: task={config.task.name} has one turn; name a run of task=ask_nano")
    model, tokenizer = load_policy(PretrainedModel("policy", str(run / POLICY)), None, 0)
    weights = Weights(0, {name: p.detach().clone() for name, p in model.named_parameters()})
    player = build_player(config, model, tokenizer, "rollout")
    stream = build_prompts(config, tokenizer, Split.validation, "rollout", shuffle=False)
    chunk = Chunk(0, 0, tuple(stream[number] for number in range(prompts)), size)
    return {
        "rows by themselves": functools.partial(player.generate, weights, chunk),
        "turns together": functools.partial(
            turn_by_turn, player, weights, chunk, config.task.max_turns
        ),
    }


def turn_by_turn(player: Generator, weights: Weights, chunk: Chunk, turns: int) -> Sequence[Group]:
    """The chunk, stopped behind every turn."""
    groups: Sequence[Group] = ()
    for stop in range(1, turns + 1):
        begun = tuple(sample for group in groups for sample in group.samples)
        groups = player.generate(weights, replace(chunk, stop_at=stop, begun=begun))
        if all(group.is_finished for group in groups):
            break
    return groups


def tokens_per_second(play: Play) -> tuple[float, Sequence[Group]]:
    start = perf_counter()
    groups = play()
    spent = perf_counter() - start
    return sum(len(s.tokens) for group in groups for s in group.samples) / spent, groups


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns 0."""
    parser = parser_of_episodes("Time episodes against turns taken together.")
    with_config_of_run(measure, parser.parse_args(arguments))
    return 0


def parser_of_episodes(description: str) -> argparse.ArgumentParser:
    """Options of a program that plays episodes with the policy of a run, side against side."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("run", type=Path, metavar="RUN", help="a finished run with an environment")
    parser.add_argument("--prompts", type=int, default=64, help="of a chunk (64)")
    parser.add_argument("--size", type=int, default=4, help="episodes of each prompt (4)")
    parser.add_argument("--repeats", type=int, default=5, help="of each side, in turns (5)")
    return parser


def with_config_of_run(
    measure: Callable[[Config, argparse.Namespace], None], given: argparse.Namespace
) -> None:
    """Measure with the config that the run had."""
    compose(lambda cfg: measure(typed(cfg), given), recorded_overrides(given.run))


def measure(config: Config, given: argparse.Namespace) -> None:
    """Time both sides in turns, and print what they did."""
    console = Console(quiet=False)
    both = plays(config, given.run, given.prompts, given.size)
    found: dict[str, list[float]] = {name: [] for name in both}
    episodes: Sequence[Group] = ()
    for _ in range(given.repeats):
        for name, play in both.items():
            speed, groups = tokens_per_second(play)
            found[name].append(speed)
            episodes = episodes or groups
    counts = sorted(s.steps for group in episodes for s in group.samples)
    turns = sorted(len(s.episode.turns) for g in episodes for s in g.samples if s.episode)
    console.print(
        f"{len(turns)} episodes: {turns[len(turns) // 2]} turns in the middle, {turns[-1]} at "
        f"most; {counts[len(counts) // 2]} tokens with those of observations, {counts[-1]} at most"
    )
    for name, speeds in found.items():
        console.print(f"{name}: {Spread.of(speeds).text()} tokens a second")
    ratios = [first / second for first, second in zip(*found.values(), strict=True)]
    console.print(f"ratio: {Spread.of(ratios).text('.2f')}")


if __name__ == "__main__":
    sys.exit(main())
