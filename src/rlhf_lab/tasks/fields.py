"""Fields that several tasks have, each with its range and description."""

from __future__ import annotations

from typing import Any

from rlhf_lab.tasks.constraints.constraint_types import Score, Scoring
from rlhf_lab.tasks.references import LongReferences
from rlhf_lab.types import limits


def world_seed() -> int:
    return limits.seed(0, about="Seed of the generated rows; the run's seed does not change them.")


def size(default: int, split: str, max: int = limits.MOST) -> int:
    return limits.count(default, max=max, about=f"Rows of the {split} split.")


def held_out(default: int) -> int:
    about = "Rows at the end of the train split that are held out as the validation split."
    return limits.count(default, about=about)


def prompt_tokens(default: int, source: str = "") -> int:
    return limits.tokens(default, about="Longest prompt in tokens.", source=source)


def response_tokens(default: int, source: str = "") -> int:
    about = "Longest response in tokens, unless generator.max_new_tokens is set."
    return limits.tokens(default, about=about, source=source)


def chat_arguments() -> dict[str, Any]:
    about = (
        "Arguments of the chat template, such as {enable_thinking: false}; names that "
        "it does not read are refused."
    )
    return limits.collection(dict, about=about)


def long_references() -> LongReferences:
    about = (
        "References beyond the response limit: SFT leaves them out (left_out), or they are cut "
        "without an end token (cut) or with one (cut_with_end), which teaches to stop in the "
        "middle; other readers cut what SFT leaves out."
    )
    return limits.option(LongReferences.cut_with_end, about=about)


def turns(default: int, last: str = "answer") -> int:
    """The limit of an episode's turns. last: what the last action is taken as."""
    about = f"Turns of an episode; the last of them takes every action as the {last}."
    return limits.count(default, about=about)


def progress_weight() -> float:
    """The weight of what an observation adds to the best answer that could follow."""
    return limits.coefficient(
        0.0,
        about=(
            "Reward of a turn for each point that its observation adds to the best answer that "
            "could follow, as MRT rewards progress (arXiv:2503.07572)."
        ),
    )


def turn_tokens(default: int, **bounds: Any) -> int:
    """The limit of one action. bounds: `min` and `why`."""
    about = "Longest action of one turn in tokens, its end token included."
    return limits.tokens(default, about=about, **bounds)


def episode_tokens(default: int) -> int:
    return limits.tokens(
        default,
        about=(
            "Most tokens that the policy writes in an episode, unless generator.max_new_tokens is "
            "set."
        ),
    )


def score_field() -> Score:
    return limits.option(
        Score.all,
        about=(
            "Score of a response: 1 if all constraints are satisfied and else 0, or the share of "
            "those satisfied."
        ),
    )


def scoring_field() -> Scoring:
    return limits.option(
        Scoring.strict,
        about=(
            "Whether a constraint must hold for the response as it is (strict) or for any of a "
            "few variants of it (loose)."
        ),
    )
