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
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rlhf_lab.tasks import fields
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.tasks.tldr_nano import (
    CORE,
    IMPORTANCE,
    MAX_RESPONSE,
    SENTENCES,
    SLOTS,
    Imperfection,
    TldrNano,
    facts_of,
    render_post,
    render_reference,
    score,
    word_tokenizer,
)
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Example, Split

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


QUESTION = "ask"
# Facts that a post may leave out, and that can be asked for.
MINOR = tuple(slot for slot in SLOTS if slot not in CORE)
# The key of `Example.hidden` beside the facts: the slots that the post leaves out, as words.
UNSTATED = "unstated"

# A question's words and its end token.
QUESTION_TOKENS = 3
MAX_OBSERVATION = max(len(text.split()) for slot in MINOR for text in SENTENCES[slot])


@dataclass
class AuthorEnvironment:
    """The author of the post answers questions truthfully; anything else is the summary.

    The last of max_turns takes every action as the summary. question_cost: points of a question.
    progress_weight: times the importance of a fact that an answer states first, which is what it
    adds to the best summary, as MRT rewards progress (arXiv:2503.07572).
    """

    max_turns: int
    question_cost: float
    progress_weight: float = 0.0
    _hidden: Mapping[str, str] = field(default_factory=dict, init=False)
    _seed: int = field(default=0, init=False)
    _turns: int = field(default=0, init=False)
    _asked: set[str] = field(default_factory=set, init=False)

    def reset(self, example: Example, seed: int) -> str:
        """Begin an episode; the author adds nothing to the post."""
        self._hidden, self._seed = example.hidden, seed
        self._turns, self._asked = 0, set()
        return ""

    def step(self, action: str, finished: bool) -> Turn:
        """The answer to a question, or the end of the episode with the gold score."""
        self._turns += 1
        slot = asked_slot(action)
        if slot is None or not finished or self._turns == self.max_turns:
            points = score(self._hidden, action, finished)
            return Turn(reward=points, is_done=True, info=counted(0, 0))
        is_useful = slot in unstated_slots(self._hidden) and slot not in self._asked
        self._asked.add(slot)
        observation = f" {answer(self._hidden, slot, self._seed)}"
        progress = IMPORTANCE[slot] if is_useful else 0.0
        reward = self.progress_weight * progress - self.question_cost
        return Turn(observation, reward, info=counted(1, int(is_useful)))


def counted(questions: int, useful: int) -> dict[str, float]:
    """What a turn adds to the metrics of its episode; a summary adds zeros, so that episodes
    without a question are counted too."""
    return {"questions": questions, "useful_questions": useful}


def asked_slot(action: str) -> str | None:
    """The slot that an action asks for; None if it is no question."""
    words = action.split()
    is_question = len(words) == 2 and words[0] == QUESTION and words[1] in MINOR
    return words[1] if is_question else None


def question(slot: str) -> str:
    return f"{QUESTION} {slot}"


def answer(facts: Mapping[str, str], slot: str, seed: int) -> str:
    """The author's sentence about a fact: the same one however often, and whenever, it is asked."""
    sentences = SENTENCES[slot]
    number = stable_hash(seed, "ask_nano", "answer", slot) % len(sentences)
    return sentences[number].format(**facts)


def unstated_slots(hidden: Mapping[str, str]) -> tuple[str, ...]:
    """The slots that the post leaves out, in the order of the slots."""
    return tuple(hidden[UNSTATED].split())


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
        MAX_RESPONSE, min=MAX_RESPONSE, why="summaries have up to as many as the least"
    )
    max_observation_tokens: int = limits.tokens(
        10,
        min=MAX_OBSERVATION,
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
        return AuthorEnvironment(self.max_turns, self.question_cost, self.progress_weight)

    def demonstration(self, example: Example) -> list[str]:
        """Some questions for unstated facts, then an imperfect summary of what is known by then."""
        rng = random.Random(stable_hash(self.world_seed, "ask_nano", "demonstration", example.uid))
        unstated = unstated_slots(example.hidden)
        asked = [slot for slot in unstated if rng.random() < self.ask_rate][: self.max_turns - 1]
        unknown = set(unstated) - set(asked)
        known = {slot: example.hidden[slot] for slot in SLOTS if slot not in unknown}
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
    for word in dict.fromkeys((QUESTION, *MINOR)):
        words.setdefault(word, len(words))
    tokenizer.backend_tokenizer.model = WordLevel(words, unk_token="<unk>")
    return tokenizer
