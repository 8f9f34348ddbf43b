"""A generator that returns fixed preference pairs instead of samples (offline training)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rlhf_lab.rollout.generators.options import GeneratorContext, GeneratorOptions
from rlhf_lab.tasks.chat import OWN_FORM, ChatForm, answer_tokens
from rlhf_lab.tasks.pairs import KEY
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Generator, WeightFeed
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Finish, Group, Sample
from rlhf_lab.types.text_frame import TextFrame


@dataclass(frozen=True)
class PairsSampling(GeneratorOptions):
    """Fixed preference pairs instead of samples, the same in every epoch: the chosen response has
    reward 1, the rejected one 0, unless `scores` names others. Needs run.group_size=2; labels and
    evaluation are sampled as by generator=hf."""

    name: str = limits.name("pairs")
    path: str = limits.option(
        "",
        about=(
            "Pairs as for labels.path, of whose folder or hub name the train part is read; empty "
            "takes the pairs of the label stage."
        ),
    )
    scores: str = limits.option(
        "",
        about=(
            "Name of the rewards: gold takes the numbers of the fields chosen_gold and "
            "rejected_gold, which the label stage writes, or the scores that a set is published "
            "with; empty is 1 for chosen, 0 for rejected."
        ),
    )
    draws_samples: ClassVar[bool] = False
    unrounded: ClassVar[str] = "fixed pairs are written by no weights"

    def build(self, context: GeneratorContext) -> PairsGenerator:
        return PairsGenerator(context.tokenizer, context.lengths.response, form=context.form)

    @property
    def pairs_path(self) -> str:
        return self.path

    @property
    def pair_scores(self) -> str:
        return self.scores


class PairsGenerator(Generator):
    """Answers every prompt with its example's own pair, whatever the weights."""

    def __init__(
        self,
        tokenizer: Any,
        max_new_tokens: int,
        key: str = KEY,
        version: int = 0,
        form: ChatForm = OWN_FORM,
    ) -> None:
        """key: the option that names the file. version: that of its samples. form: of prompts that
        are chats."""
        self._tokenizer = tokenizer
        self._frame = TextFrame(tokenizer)
        self._form = form
        self._max_new_tokens = max_new_tokens
        self._key = key
        self._version = version

    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        """Two samples of every prompt: chosen, then rejected."""
        # The weights are not used, but reading them records the version of the chunk.
        feed.at(0)
        return tuple(Group(prompt, self.pair(prompt.example)) for prompt in chunk.prompts)

    def is_tie(self, example: Example) -> bool:
        """Whether both answers have the same tokens, after the cut at the response length."""
        chosen, rejected = self.pair(example)
        return chosen.tokens == rejected.tokens

    def pair(self, example: Example) -> tuple[Sample, Sample]:
        """The samples of one example, the chosen one first."""
        chosen = self._sample(example, "chosen", example.reference)
        return chosen, self._sample(example, "rejected", example.hidden["rejected"])

    def _sample(self, example: Example, side: str, text: str) -> Sample:
        """Cut at the first end token, which belongs to the sample, or at the response length."""
        tokens = example.hidden.get(f"{side}_tokens")
        if tokens is None:
            tokens = answer_tokens(self._tokenizer, self._form, example, text)
        elif not self._is_encoding(tokens, text):
            raise UserError(
                f"{self._key}: pair {example.uid} has a field {side}_tokens that is not the "
                f"text of its field {side} to the policy's tokenizer: leave the field out, so that "
                "the text is encoded"
            )
        tokens = self._frame.cut(tokens[: self._max_new_tokens])
        return Sample(
            tokens=tuple(tokens),
            logps=(math.nan,) * len(tokens),
            version=self._version,
            finish=Finish.eos if self._frame.has_end(tokens) else Finish.length,
            text=self._frame.text(tokens),
        )

    def _is_encoding(self, tokens: Sequence[int], text: str) -> bool:
        known = range(len(self._tokenizer))
        return all(token in known for token in tokens) and self._frame.text(tokens) == text
