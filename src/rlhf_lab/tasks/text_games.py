"""Tasks whose rows are games of another package: one game a seed, played in text.

What such a package is adapted to is a `Game`, the API of gymnasium with text for observations and
actions. A task of one needs `game()` and its name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from rlhf_lab.tasks import fields
from rlhf_lab.tasks.byte_tokenizer import byte_tokenizer
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.tasks.optional_packages import MOST_ROWS, RandomNumbers, first_seed, json_settings
from rlhf_lab.tasks.task_options import GeneratedTask, require_placeholder
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split

PLACE = "{observation}"


class NoAction(Exception):
    """The text is no action of the game, which stays as it is. The message is what the policy reads
    next."""


class NoTurn(Exception):
    """The game is over before the policy may act."""


class Game(Protocol):
    """A game of one player, in text. Random numbers: of the seed, or, where its task declares
    `shares_random`, Python's and NumPy's global ones, which each game has for itself."""

    def reset(self, seed: int) -> str:
        """Begin. Returns the first observation. Raises NoTurn where the game is over with it."""
        ...

    def step(self, action: str) -> tuple[str, float, bool, dict[str, float]]:
        """Observation, reward of the turn, whether the game is over, and numbers for metrics, the
        same in every turn. Raises NoAction for a text that is none."""
        ...


@dataclass(frozen=True)
class TextGames(GeneratedTask):
    """Rows are games of one environment, each with its own seed."""

    env_id: str = limits.option("", about="Name of the environment in its package.")
    config: str = limits.option("{}", about="Settings of the environment, a JSON object as text.")
    template: str = limits.option(
        f"{PLACE}\n",
        about="Text of the prompt, with the first observation as {observation} in it.",
    )
    observation_template: str = limits.option(
        f"\n{PLACE}\n",
        about="Text that the policy reads behind an action, with the {observation} in it.",
    )
    invalid_reward: float = limits.score(
        0,
        about=(
            "Reward of a turn whose action is none: it was cut at a limit, which ends the episode, "
            "or the environment cannot take it."
        ),
    )
    train_size: int = fields.size(4096, "train", max=MOST_ROWS)
    validation_size: int = fields.size(256, "validation", max=MOST_ROWS)
    test_size: int = fields.size(256, "test", max=MOST_ROWS)
    max_prompt_tokens: int = fields.prompt_tokens(512)
    max_response_tokens: int = fields.episode_tokens(192)
    max_turns: int = limits.count(12, about="Turns of an episode.")
    max_turn_tokens: int = fields.turn_tokens(16)
    max_observation_tokens: int = limits.count(
        256, about="Longest observation in tokens, with task.observation_template."
    )
    has_rule: ClassVar[bool] = False
    has_references: ClassVar[bool] = False
    other_judges: ClassVar[str] = "reward@judge=environment"
    shares_random: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_placeholder(self.template, PLACE)
        if PLACE not in self.observation_template:
            raise UserError(
                f"task.observation_template={self.observation_template!r} has no {PLACE}: add it "
                "where the text belongs"
            )
        self.settings()

    def settings(self) -> dict[str, Any]:
        return json_settings("config", self.config, '{"max_turns": 8}')

    @abstractmethod
    def game(self) -> Game:
        """A game before its beginning. Raises UserError if there is none."""

    def examples(self, split: Split) -> Sequence[Example]:
        """The rows of a split; the first game begins now, so that bad settings fail now."""
        self.row(split, 0)
        return super().examples(split)

    def row(self, split: Split, index: int) -> Example:
        """The game of one seed: its prompt is the first observation."""
        seed = self.seed(split, index)
        uid = f"{self.name}/{self.env_id}/{split.value}/{index}"
        first = PlayedGame(self).begin(seed, uid)
        prompt = self.template.replace(PLACE, first)
        return Example(uid, prompt, "", {"seed": seed, "first": first})

    def seed(self, split: Split, index: int) -> int:
        """What names the game of a row: no other row has it."""
        return first_seed(self.name, self.world_seed, split) + index

    def environment(self) -> PlayedGame:
        return PlayedGame(self)

    def tokenizer(self) -> Any:
        """One token a byte, for models trained from random weights."""
        return byte_tokenizer()


@dataclass
class PlayedGame:
    """The environment of one sample. The row fixes everything random in its game: samples of a
    prompt play the same one."""

    task: TextGames
    _game: Game | None = field(default=None, init=False)
    _random: RandomNumbers = field(default_factory=lambda: RandomNumbers(0), init=False)

    def begin(self, seed: int, uid: str) -> str:
        """A new game, of the row of this name. Returns its first observation. Raises UserError if
        it has no turn, which an episode needs."""
        self._random = RandomNumbers(seed)
        try:
            with self._drawing():
                self._game = self.task.game()
                return self._game.reset(seed)
        except NoTurn as over:
            raise UserError(
                f"row {uid} ends before the policy may act: pass other settings in task.config, "
                "or choose another environment"
            ) from over

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Context of a call of the game: its own global random numbers, if it draws from them."""
        if not self.task.shares_random:
            yield
            return
        with self._random.drawn():
            yield

    def reset(self, example: Example, seed: int) -> str:
        """Begin the row's game, whose first observation the prompt has. Raises UserError if it
        begins otherwise here than where the prompt was made."""
        first = self.begin(example.hidden["seed"], example.uid)
        if first != example.hidden["first"]:
            raise UserError(
                f"row {example.uid} began with {example.hidden['first']!r}, and then with "
                f"{first!r}: task.env_id={self.task.env_id} is no function of its seed; if it "
                "follows the order of Python's sets, PYTHONHASHSEED=0 in the environment helps; "
                "else choose another"
            )
        return ""

    def step(self, action: str, finished: bool) -> Turn:
        """The game's answer to an action. One that was cut is not taken."""
        assert self._game is not None, "reset comes first"
        if not finished:
            return Turn(reward=self.task.invalid_reward, is_done=True, info={"invalid": 1})
        try:
            with self._drawing():
                text, reward, is_over, info = self._game.step(action)
        except NoAction as refused:
            shown = self._shown(str(refused))
            return Turn(shown, self.task.invalid_reward, info={"invalid": 1})
        return Turn(self._shown(text), float(reward), is_over, {"invalid": 0, **info})

    def _shown(self, observation: str) -> str:
        return self.task.observation_template.replace(PLACE, observation)


def refused_settings(task: TextGames, error: Exception) -> UserError:
    """What to raise where a package cannot make the environment."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return UserError(
        f"task.env_id={task.env_id} with task.config={task.config} cannot be made ({text}): "
        "correct the settings, provide what it asks for, or choose another environment"
    )
