"""The world of twenty_questions: prompts of few or many items, who knows the item, and a player."""

from __future__ import annotations

import itertools
import math
import random
import string
from dataclasses import dataclass, field

from rlhf_lab.tasks.arithmetic import split_of
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.types.samples import Example, Split

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
        """Begin an episode; nothing in it is random."""
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
    exponent `tail`, cut behind `most`. uniform: from 0 up to, and without, 1."""
    rest = (FEWEST / (most + 1)) ** tail
    drawn: float = FEWEST * (1 - uniform * (1 - rest)) ** (-1 / tail)
    return min(most, math.floor(drawn))


def draw_prompt(num: int, split: Split, rng: random.Random) -> str:
    """That many items, drawn until the prompt belongs to the split."""
    prompts = ("".join(rng.sample(ITEMS, num)) + END for _ in itertools.count())
    return next(prompt for prompt in prompts if split_of(prompt) is split)
