"""`task=twenty_questions`: which of these items is it? Few items in most rows, many in some.

An episode:

    prompt        kqaf:
    action        k?
    observation   -
    action        q?
    observation   +
    action        q

A question names one item, so that no clever question makes an episode of many items short: lengths
have a long tail, however good the policy is.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
import random
import string
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.tasks import fields
from rlhf_lab.tasks.arithmetic import SPECIAL, character_tokenizer, split_of
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.tasks.task_options import GeneratedTask
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Example, Split

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


ITEMS = string.ascii_lowercase
FEWEST = 2
ASK, END = "?", ":"
YES, NO = "+", "-"


@dataclass
class ItemEnvironment:
    """Replies to questions; anything else is the answer.

    The last of max_turns takes every action as the answer. question_cost: reward that a question
    costs. progress_weight: times what a reply adds to the chance of a right answer, as MRT rewards
    progress (arXiv:2503.07572); over an episode it adds up to the chance at its end less that at
    its beginning.
    """

    max_turns: int
    question_cost: float
    progress_weight: float = 0.0
    _item: str = field(default="", init=False)
    _unasked: set[str] = field(default_factory=set, init=False)
    _turns: int = field(default=0, init=False)

    def reset(self, example: Example, seed: int) -> str:
        self._item, self._turns = example.hidden["item"], 0
        self._unasked = set(items_of(example.prompt))
        return ""

    def step(self, action: str, finished: bool) -> Turn:
        """The reply to a question, or the end of the episode: 1 for the item, else 0."""
        self._turns += 1
        if not action.endswith(ASK) or not finished or self._turns == self.max_turns:
            # Zeros, so that episodes without a question are counted too.
            info = {"questions": 0, "useful_questions": 0}
            is_found = finished and action == self._item
            return Turn(reward=float(is_found), is_done=True, info=info)
        asked = action.removesuffix(ASK)
        is_useful = asked in self._unasked
        chance_before = self._chance
        self._unasked.discard(asked)
        reply = YES if asked == self._item else NO
        info = {"questions": 1, "useful_questions": int(is_useful)}
        progress = self._chance - chance_before
        return Turn(reply, self.progress_weight * progress - self.question_cost, info=info)

    @property
    def _chance(self) -> float:
        """Probability that a player who remembers every reply answers correctly now."""
        return 1 / len(self._unasked) if self._item in self._unasked else 1.0


@dataclass(frozen=True)
class Player:
    """Asks for the items in the order of the prompt; repeats questions and guesses early, at these
    rates. max_turns: in which it must have answered."""

    repeat_rate: float
    guess_rate: float
    max_turns: int

    def actions(self, prompt: str, item: str, rng: random.Random) -> list[str]:
        """The questions and the answer of an episode."""
        unasked, questions = list(items_of(prompt)), ""
        while len(unasked) > 1 and len(questions) < self.max_turns - 1:
            if rng.random() < self.guess_rate:
                break
            is_repeat = questions and rng.random() < self.repeat_rate
            questions += rng.choice(questions) if is_repeat else unasked.pop(0)
            if questions[-1] == item:
                unasked = [item]
        return [*(f"{asked}{ASK}" for asked in questions), rng.choice(unasked)]


def items_of(prompt: str) -> str:
    """The items that a prompt names."""
    return prompt.removesuffix(END)


def num_items(uniform: float, tail: float, most: int) -> int:
    """A number of items from 2 to `most`, by the inverse of its distribution: of Pareto's with the
    exponent `tail`, cut after `most`. uniform: from 0 up to, and without, 1."""
    rest = (FEWEST / (most + 1)) ** tail
    drawn: float = FEWEST * (1 - uniform * (1 - rest)) ** (-1 / tail)
    return min(most, math.floor(drawn))


def draw_prompt(num: int, split: Split, rng: random.Random) -> str:
    """That many items, drawn until the prompt belongs to the split."""
    prompts = ("".join(rng.sample(ITEMS, num)) + END for _ in itertools.count())
    return next(prompt for prompt in prompts if split_of(prompt) is split)


# The item and the end token; a question has one character more.
ANSWER_TOKENS = 2
QUESTION_TOKENS = ANSWER_TOKENS + len(ASK)


@dataclass(frozen=True)
class TwentyQuestions(GeneratedTask):
    """A prompt names items, one of which is hidden: `k?` asks whether it is k, `k` is the answer.

    The number of items has a long tail.
    """

    name: str = limits.name("twenty_questions")
    max_items: int = limits.count(
        20, min=FEWEST, max=len(ITEMS), about="Most items of a prompt; the fewest are 2."
    )
    tail: float = limits.number(
        1.0,
        above=0,
        max=100,
        about=(
            "How fast the share of prompts with m items or more falls: as m to the power of "
            "-tail, up to task.max_items; the lower, the more prompts have many."
        ),
    )
    repeat_rate: float = limits.share(
        0.2, about="Chance that a demonstration's question is one that it has asked before."
    )
    guess_rate: float = limits.share(
        0.1,
        about=(
            "Chance, at each turn, that a demonstration guesses among the items that it has not "
            "asked for."
        ),
    )
    question_cost: float = limits.coefficient(0.02, about="Reward that each question costs.")
    progress_weight: float = fields.progress_weight()
    max_turns: int = fields.turns(20)
    max_turn_tokens: int = fields.turn_tokens(
        QUESTION_TOKENS, min=QUESTION_TOKENS, why="questions have as many as the least"
    )
    max_observation_tokens: int = limits.count(1, about="Longest reply in tokens.")
    max_prompt_tokens: int = fields.prompt_tokens(24)
    max_response_tokens: int = fields.episode_tokens(60)
    is_verifiable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        needed = {
            "max_prompt_tokens": (self.max_items + len(END), "max_items"),
            "max_response_tokens": (
                (self.max_turns - 1) * QUESTION_TOKENS + ANSWER_TOKENS,
                "max_turns",
            ),
        }
        for key, (tokens, cause) in needed.items():
            if getattr(self, key) < tokens:
                raise UserError(
                    f"task.{key}={getattr(self, key)}: with task.{cause}={getattr(self, cause)} "
                    f"there are up to {tokens} tokens; choose that or more"
                )

    def row(self, split: Split, index: int) -> Example:
        """One row. Its reference is the answer of its demonstration. Rows may repeat, but never
        the prompts of other splits."""
        rng = random.Random(stable_hash(self.world_seed, "twenty_questions", split.value, index))
        num = num_items(rng.random(), self.tail, self.max_items)
        prompt = draw_prompt(num, split, rng)
        uid, item = f"twenty_questions/{split.value}/{index}", rng.choice(items_of(prompt))
        *_, reference = self._played(uid, prompt, item)
        return Example(uid, prompt, reference, {"item": item})

    def tokenizer(self) -> PreTrainedTokenizerFast:
        return question_tokenizer()

    def environment(self) -> ItemEnvironment:
        return ItemEnvironment(self.max_turns, self.question_cost, self.progress_weight)

    def demonstration(self, example: Example) -> list[str]:
        """The questions and the answer of a player who repeats questions and guesses early."""
        return self._played(example.uid, example.prompt, example.hidden["item"])

    def judge(self, example: Example, text: str, finished: bool) -> float:
        """1 if the text is the item and ended with the end token; else 0."""
        return float(finished and text == example.hidden["item"])

    def answer(self, text: str) -> str | None:
        """The whole text, as `judge` reads it."""
        return text or None

    def _played(self, uid: str, prompt: str, item: str) -> list[str]:
        key = (self.world_seed, "twenty_questions", "demonstration", uid)
        player = Player(self.repeat_rate, self.guess_rate, self.max_turns)
        return player.actions(prompt, item, random.Random(stable_hash(*key)))


@functools.cache
def question_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character, as that of arithmetic has it, of the characters of this game."""
    from tokenizers.models import WordLevel

    tokenizer = copy.deepcopy(character_tokenizer())
    symbols = [*SPECIAL, *ITEMS, ASK, END, YES, NO]
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    tokenizer.backend_tokenizer.model = WordLevel(numbers)
    return tokenizer
