"""Episodes of ask_nano: a policy asks the author of a post for facts, then writes its summary."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rlhf_lab.tasks import tldr_nano_judge
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.tasks.tldr_nano_world import CORE, IMPORTANCE, SENTENCES, SLOTS, Facts
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Example

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
            points = tldr_nano_judge.score(self._hidden, action, finished)
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
    """The action that asks for a fact."""
    return f"{QUESTION} {slot}"


def answer(facts: Mapping[str, str], slot: str, seed: int) -> str:
    """The author's sentence about a fact: the same one however often, and whenever, it is asked."""
    sentences = SENTENCES[slot]
    number = stable_hash(seed, "ask_nano", "answer", slot) % len(sentences)
    return sentences[number].format(**facts)


def unstated_slots(hidden: Mapping[str, str]) -> tuple[str, ...]:
    """The slots that the post leaves out, in the order of the slots."""
    return tuple(hidden[UNSTATED].split())


def known_facts(hidden: Mapping[str, str], asked: Collection[str]) -> Facts:
    """The facts that the post states or that were asked for."""
    unknown = set(unstated_slots(hidden)) - set(asked)
    return {slot: hidden[slot] for slot in SLOTS if slot not in unknown}


def question_words() -> list[str]:
    """Every word of questions, each once, in a fixed order."""
    return list(dict.fromkeys((QUESTION, *MINOR)))
