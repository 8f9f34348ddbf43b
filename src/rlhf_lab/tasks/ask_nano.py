"""`task=ask_nano`: posts of tldr_nano that leave facts out, which the policy may ask for first.

An episode:

    prompt        r/advice post : my sister broke my bike . it was monday . tl;dr :
    action        ask place
    observation   it happened in the park .
    action        my sister broke my bike in the park monday .
"""

from __future__ import annotations

import copy
import functools
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlhf_lab.tasks import fields
from rlhf_lab.tasks.ask_nano_world import (
    MAX_OBSERVATION,
    MINOR,
    QUESTION_TOKENS,
    UNSTATED,
    AuthorEnvironment,
    known_facts,
    question,
    question_words,
    unstated_slots,
)
from rlhf_lab.tasks.tldr_nano import TldrNano, word_tokenizer
from rlhf_lab.tasks.tldr_nano_world import (
    MAX_RESPONSE,
    Imperfection,
    facts_of,
    render_post,
    render_reference,
)
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Example, Split

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class AskNano(TldrNano):
    """A generated post leaves out some of seven facts; a summary of all of them is worth most, and
    a question costs a little."""

    name: str = limits.name("ask_nano")
    hidden_rate: float = limits.share(
        0.6, about="Chance that a post leaves out a minor fact: place, time, feeling or ask."
    )
    ask_rate: float = limits.share(
        0.3, about="Chance that a demonstration asks for a fact that its post leaves out."
    )
    question_cost: float = limits.coefficient(
        0.1, about="Points of the gold score that each question costs."
    )
    progress_weight: float = fields.progress_weight()
    max_turns: int = fields.turns(6, last="summary")
    max_turn_tokens: int = fields.turn_tokens(
        MAX_RESPONSE, least=MAX_RESPONSE, why="summaries have up to as many as the least"
    )
    max_observation_tokens: int = limits.tokens(
        10,
        least=MAX_OBSERVATION,
        why="answers have up to as many as the least",
        about="Longest answer to a question in tokens.",
    )
    max_response_tokens: int = fields.episode_tokens(44)

    def __post_init__(self) -> None:
        super().__post_init__()
        num_questions = min(len(MINOR), self.max_turns - 1) if self.ask_rate else 0
        needed = num_questions * QUESTION_TOKENS + MAX_RESPONSE
        if self.max_response_tokens < needed:
            raise UserError(
                f"task.max_response_tokens={self.max_response_tokens}: with "
                f"task.max_turns={self.max_turns} demonstrations have up to {needed} tokens; "
                "choose that or more"
            )

    def row(self, split: Split, index: int) -> Example:
        """One row: a post without some facts, a reference summary of all, and the facts."""
        facts, rng = facts_of(self.world_seed, split, index)
        unstated = [slot for slot in MINOR if rng.random() < self.hidden_rate]
        post = render_post(facts, self.num_distractors, rng, unstated)
        reference = render_reference(facts, self._imperfection(), rng)
        hidden = {**facts, UNSTATED: " ".join(unstated)}
        return Example(f"ask_nano/{split.value}/{index}", post, f" {reference}", hidden)

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """One token a word of the closed vocabulary, which has the words of questions too."""
        return question_tokenizer()

    def environment(self) -> AuthorEnvironment:
        """The author of one post."""
        return AuthorEnvironment(self.max_turns, self.question_cost, self.progress_weight)

    def demonstration(self, example: Example) -> list[str]:
        """Some questions for unstated facts, then an imperfect summary of what is known by then."""
        rng = random.Random(stable_hash(self.world_seed, "ask_nano", "demonstration", example.uid))
        wanted = [s for s in unstated_slots(example.hidden) if rng.random() < self.ask_rate]
        asked = wanted[: self.max_turns - 1]
        known = known_facts(example.hidden, asked)
        summary = render_reference(known, self._imperfection(), rng)
        return [f" {action}" for action in (*map(question, asked), summary)]

    def _imperfection(self) -> Imperfection:
        return Imperfection(self.drop_rate, self.garble_rate)


@functools.cache
def question_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer of tldr_nano, its words with the same numbers, and the words of questions."""
    from tokenizers.models import WordLevel

    tokenizer = copy.deepcopy(word_tokenizer())
    words: dict[str, int] = tokenizer.get_vocab()
    for word in question_words():
        words.setdefault(word, len(words))
    tokenizer.backend_tokenizer.model = WordLevel(words, unk_token="<unk>")
    return tokenizer
