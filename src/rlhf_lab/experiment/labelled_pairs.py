"""The labelled pairs that a reward model is trained on, checked against the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.config import Config
from rlhf_lab.models.borders import longest_row
from rlhf_lab.models.causal_lm import load_tokenizer
from rlhf_lab.models.pretrained import PretrainedModel
from rlhf_lab.models.scratch import ScratchModel
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.tasks.pairs import SIDES, with_tokens
from rlhf_lab.training.stages.pair_lengths import cut_pair
from rlhf_lab.training.stages.scored_rows import tokens_of
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.text_frame import TextFrame


def as_read(
    rows: Sequence[dict[str, Any]], start: tuple[Any, Any], config: Config
) -> list[dict[str, Any]]:
    """The pairs as tokens of a proxy, cut at its lengths. start: its model and tokenizer."""
    model, tokenizer = start
    ends, options, path = TextFrame(tokenizer).ends, config.reward_model, config.labels.path
    if not path:
        return [cut_pair(row, ends, options) for row in rows]
    read = (cut_pair(with_tokens(row, tokenizer), ends, options) for row in rows)
    return [within_context(row, model, path) for row in read]


def within_context(row: dict[str, Any], model: Any, path: str) -> dict[str, Any]:
    """The row, refused if the reward model cannot read it whole."""
    context = longest_row(model.config)
    longest = max(len(tokens_of(row, side)) for side in SIDES)
    if context is not None and longest > context:
        raise UserError(
            f"labels.path={path}: the pair of the prompt {row['prompt'][:60]!r} has {longest} "
            f"tokens, more than the reward model's context of {context}: shorten or delete the row"
        )
    return row


def read_pairs(path: Path) -> list[dict[str, Any]]:
    """The labelled pairs of an artifact that `cached` has verified."""
    return read_rows(path)


def require_one_vocabulary(
    config: Config, policy: Callable[[ScratchModel | PretrainedModel], PretrainedModel], own: Any
) -> None:
    """Raises UserError if tokens of the policy are others for the proxy, whose tokenizer is `own`.
    policy: gives the folder of a model."""
    drawn, read = policy(config.model), policy(config.proxy)
    if (drawn.path, drawn.revision) == (read.path, read.revision):
        return
    if load_tokenizer(drawn, None).get_vocab() != own.get_vocab():
        raise UserError(
            f"proxy={config.proxy.name} and model={config.model.name} have different "
            "vocabularies: the pairs are stored as tokens of the policy; choose model@proxy of the "
            "same family"
        )
