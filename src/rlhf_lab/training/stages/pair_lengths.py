"""The lengths of the pairs that a reward model is trained on (arXiv:2403.17031, detail 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlhf_lab.tasks.pairs import SIDES
from rlhf_lab.training.stages.reward_model_options import RewardModelOptions
from rlhf_lab.types.errors import UserError

Row = dict[str, Any]


def cut_pair(row: Row, ends: Sequence[int], options: RewardModelOptions) -> Row:
    """The pair with answers of at most the lengths of the options, as tokens. An answer that is cut
    keeps its end token, where the score is read (detail 12). Raises UserError for a prompt that
    leaves no room."""
    sides = {f"{side}_tokens": row[f"{side}_tokens"] for side in SIDES}
    for name, tokens in sides.items():
        limit = min(options.max_response_tokens or len(tokens), room_of(row, options, len(tokens)))
        if len(tokens) > limit:
            last = tokens[-1] if tokens[-1] in ends else tokens[limit - 1]
            sides[name] = [*tokens[: limit - 1], last]
    return {**row, **sides}


def room_of(row: Row, options: RewardModelOptions, enough: int) -> int:
    """Tokens that the prompt leaves for an answer; `enough` where no length of both is set."""
    if not options.max_tokens:
        return enough
    room = options.max_tokens - len(row["prompt_tokens"])
    if room < 2:
        raise UserError(
            f"reward_model.max_tokens={options.max_tokens}: the prompt {row['prompt'][:60]!r} has "
            f"{len(row['prompt_tokens'])} tokens, which leave no room for an answer: raise it, or "
            "shorten the row"
        )
    return room
