"""The teacher of a distillation, loaded and compared with the policy that it teaches."""

from __future__ import annotations

from typing import Any

from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.derived import sequence_tokens
from rlhf_lab.models.borders import longest_row
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.types.errors import UserError

KEY = "algo.teacher"


def build_teacher(config: Config, tokenizer: Any) -> Any | None:
    """The frozen language model that algo.teacher names, None where no teacher is named.

    tokenizer: the policy's. Raises UserError if the teacher has another vocabulary or too short a
    context.
    """
    named = config.algo.needs.teacher
    if not named:
        return None
    model, own = load_policy(PretrainedModel("teacher", named), None, 0, KEY)
    if own.get_vocab() != tokenizer.get_vocab():
        raise UserError(
            f"{KEY}={named}: its vocabulary is not that of model={config.model.name}, whose tokens "
            "it would read; name a teacher of the policy's family"
        )
    number, size = config.algo.needs.top_tokens or 0, model.config.vocab_size
    if number > size:
        raise UserError(
            f"algo.top_k={number}: the vocabulary of {KEY}={named} has {size} tokens; pass at most "
            "that, or 0 for all"
        )
    context = longest_row(model.config)
    needed = sequence_tokens(config)
    if context is not None and needed > context:
        raise UserError(
            f"{KEY}={named}: its context of {context} tokens is shorter than prompts and responses "
            f"of {needed}; name another teacher, or lower generator.max_new_tokens"
        )
    return model.requires_grad_(False)


def require_same_logits(config: Config, policy: Any, teacher: Any | None) -> None:
    """Refuse a teacher with more or fewer logits than the policy, as padding of one vocabulary
    makes, where tokens of the one are read in the other."""
    if teacher is None or config.algo.needs.top_tokens is None:
        return
    own, its = policy.config.vocab_size, teacher.config.vocab_size
    if own != its:
        raise UserError(
            f"{KEY}={config.algo.needs.teacher} has {its} logits and model={config.model.name} has "
            f"{own}: pass algo.kl=sampled, or a teacher with as many"
        )
