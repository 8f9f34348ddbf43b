"""Preference pairs: two samples of the SFT policy each, ordered by the gold judge."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from rlhf_lab.types import limits
from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import Generator
from rlhf_lab.types.randomness import uniforms
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Finish, Group, Prompt

if TYPE_CHECKING:
    from rlhf_lab.training.stages.supervised import Bar


class Noise(StrEnum):
    """How the gold judge chooses: always the higher score, or by Bradley-Terry odds."""

    none = "none"
    bradley_terry = "bradley_terry"


@dataclass(frozen=True)
class LabelOptions(limits.OptionGroup, key="labels"):
    """Pairs of responses of the SFT policy, ordered by the gold judge, that the proxy is trained
    on."""

    path: str = limits.option(
        "",
        about=(
            "Pairs of your own in place of sampled ones: JSON lines or Parquet with prompt, chosen "
            "and rejected (docs/tasks.md has the forms), a folder with train and held_out as "
            ".jsonl or .parquet, or a hub name."
        ),
    )
    prompt_column: str = limits.option(
        "prompt",
        about=(
            "Column of the prompt in sets of pairs, here, in generator.path and in "
            "run.offline_pairs; N+ has query."
        ),
    )
    chosen_column: str = limits.option(
        "chosen", about="Column of the better answer in sets of pairs."
    )
    rejected_column: str = limits.option(
        "rejected", about="Column of the worse answer in sets of pairs."
    )
    held_out_split: str = limits.option(
        "held_out",
        about=(
            "File in the folder, or split on the hub, whose pairs are held out; held_out stands "
            "for validation, test or test_prefs too, and for the end of train where none is there."
        ),
    )
    pairs: int = limits.count(2560, about="Pairs that are sampled for training.")
    held_out_pairs: int = limits.count(
        512,
        about=(
            "Pairs that are held out to measure the proxy; of a file at path, or a set with train "
            "alone, the last ones."
        ),
    )
    temperature: float = limits.number(
        0.0,
        min=0.01,
        max=10,
        also={0: "for generator.temperature"},
        about="Sampling temperature of the pairs; 0 takes generator.temperature.",
    )
    noise: Noise = limits.option(
        Noise.none,
        about="Whether the judge always prefers the higher score, or by the odds of Bradley-Terry.",
    )
    noise_scale: float = limits.number(
        1.0,
        min=1e-6,
        max=limits.LARGEST_SCORE,
        about="Difference of gold scores at which those odds are e : 1.",
    )
    threads: int = limits.threads(2, about="CPU threads of each operation of the stage.")


def sample_pairs(
    generator: Generator,
    weights: Weights,
    prompts: Sequence[Prompt],
    chunk_groups: int,
    bar: Bar,
) -> list[Group]:
    """Two samples for each prompt."""
    groups: list[Group] = []
    for start in range(0, len(prompts), chunk_groups):
        chosen = tuple(prompts[start : start + chunk_groups])
        groups.extend(generator.generate(weights, Chunk(0, start, chosen, group_size=2)))
        bar.advance(len(chosen))
    return groups


def prefers_first(scores: tuple[float, ...], options: LabelOptions, seed: int, id_: int) -> bool:
    """Whether the judge takes the first of two; noise is keyed by the prompt."""
    gap = scores[0] - scores[1]
    if options.noise is Noise.none:
        return gap >= 0
    odds = 1 / (1 + math.exp(-max(-700.0, min(700.0, gap / options.noise_scale))))
    return bool(uniforms(seed, id_, 1_000_003, 1)[0] < odds)


def pair_scores(judge: Reward, groups: Sequence[Group]) -> list[tuple[float, ...]]:
    """Scores of the two samples of each group. A judge that compares is shown the pair itself:
    against the reference, two samples would mostly both win or both lose."""
    if not judge.compares:
        return judge.score(groups)
    firsts, seconds = (
        [Group(group.prompt, (group.samples[place],)) for group in groups] for place in (0, 1)
    )
    rows = judge.compare(firsts, seconds)
    return [tuple(x for verdict in row for x in (verdict.win, 1 - verdict.win)) for row in rows]


def write_labels(
    path: Path, groups: Sequence[Group], judge: Reward, options: LabelOptions, seed: int
) -> dict[str, float]:
    """One JSON object a line: prompt, both completions (text, tokens, end), gold scores.

    Pairs of exactly equal gold score carry no preference, and those that the judge could not score
    no label: they are left out and counted.
    """
    unscored = ties = flips = 0
    with path.open("w", encoding="utf-8") as out:
        for group, scores in zip(groups, pair_scores(judge, groups), strict=True):
            if not scores:
                unscored += 1
                continue
            if scores[0] == scores[1]:
                ties += 1
                continue
            first = prefers_first(scores, options, seed, group.prompt.id)
            flips += first != (scores[0] > scores[1])
            order = (0, 1) if first else (1, 0)
            out.write(json.dumps(row(group, scores, order)) + "\n")
    scored = len(groups) - unscored
    if not scored:
        raise RuntimeError(
            f"the judge could score none of {len(groups)} pairs: nothing was labelled"
        )
    return {
        "ties": ties / scored,
        "flipped": flips / max(1, scored - ties),
        "unscored": unscored / len(groups),
    }


def row(group: Group, scores: tuple[float, ...], order: tuple[int, int]) -> dict[str, object]:
    """A labelled pair as it is written."""
    sides: dict[str, object] = {}
    for side, number in zip(("chosen", "rejected"), order, strict=True):
        sample = group.samples[number]
        sides[side] = sample.text
        sides[f"{side}_tokens"] = list(sample.tokens)
        sides[f"{side}_finished"] = sample.finish is Finish.eos
        sides[f"{side}_gold"] = scores[number]
    example = group.prompt.example
    prompt: dict[str, object] = {"prompt_messages": example.messages} if example.messages else {}
    prompt |= {
        "uid": example.uid,
        "prompt": example.prompt,
        "prompt_tokens": list(group.prompt.tokens),
    }
    return prompt | sides
