"""`task=gymnasium`: environments of gymnasium's registry (arXiv:2407.17032) in text.

Environments with text spaces are played as they are. Discrete ones are too: their observations are
numbers or, with task.show=rendering, what they draw in text; actions are numbers, or the names that
task.actions gives them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rlhf_lab.tasks.optional_packages import require_package
from rlhf_lab.tasks.text_games import NoAction, TextGames, refused_settings
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError

PACKAGE = "gymnasium"
WHOLE = re.compile("-?[0-9]+")


class Show(Enum):
    """What the policy reads."""

    observation = "observation"
    rendering = "rendering"


@dataclass(frozen=True)
class Gymnasium(TextGames):
    """Environments of gymnasium with text or discrete spaces."""

    name: str = limits.name(PACKAGE)
    env_id: str = limits.option(
        "FrozenLake-v1",
        about="Name in gymnasium's registry; MODULE:NAME imports the module that registers it.",
        trust=True,
    )
    show: Show = limits.option(
        Show.observation,
        about="What the policy reads: the observation, or the environment's drawing in text.",
    )
    actions: list[str] = limits.collection(
        list, about="Names of a discrete environment's actions, in their order; empty: numbers."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if "render_mode" in self.settings():
            raise UserError(
                f"task.config={self.config} sets 'render_mode': set task.show=rendering instead"
            )

    def require_usable(self, key: str) -> None:
        require_package(PACKAGE, PACKAGE, f"{key}={self.name}")

    def game(self) -> GymnasiumGame:
        """A game of the package. Raises UserError if it has none that can be played in text."""
        require_package(PACKAGE, PACKAGE, f"task={self.name}")
        import gymnasium

        try:
            env = gymnasium.make(self.env_id, **self.settings())
        # Environments may ask for anything when they are made.
        except Exception as error:
            raise refused_settings(self, error) from error
        self._check_spaces(env)
        if self.show is Show.rendering:
            env = gymnasium.make(self.env_id, render_mode="ansi", **self.settings())
        return GymnasiumGame(self, env)

    def _check_spaces(self, env: Any) -> None:
        """Refuse what has no text."""
        from gymnasium.spaces import Discrete, Text

        can_draw = "ansi" in env.metadata.get("render_modes", [])
        if self.show is Show.observation and not is_text(env.observation_space):
            raise UserError(
                f"task.env_id={self.env_id} shows {env.observation_space}, which is neither text "
                f"nor whole numbers: pass {'task.show=rendering, or ' if can_draw else ''}another "
                "environment"
            )
        if self.show is Show.rendering and not can_draw:
            raise UserError(
                f"task.show=rendering: task.env_id={self.env_id} draws nothing in text (render "
                "mode ansi): pass task.show=observation, or another environment"
            )
        if not isinstance(env.action_space, Discrete | Text):
            raise UserError(
                f"task.env_id={self.env_id} takes {env.action_space}, which is neither text nor "
                "one of a few actions: choose another environment"
            )
        num = int(env.action_space.n) if isinstance(env.action_space, Discrete) else 0
        if self.actions and len(set(self.actions)) != num:
            raise UserError(
                f"task.actions={self.actions}: task.env_id={self.env_id} has {num or 'no'} "
                "numbered actions; give each a name of its own, or leave the option out"
            )


@dataclass
class GymnasiumGame:
    """One game. env: of the package."""

    task: Gymnasium
    env: Any

    def reset(self, seed: int) -> str:
        return self._text(self.env.reset(seed=seed)[0])

    def step(self, action: str) -> tuple[str, float, bool, dict[str, float]]:
        """One step. The environment's own limit of steps ends the game too."""
        chosen = self._action(action.strip())
        shown, reward, terminated, truncated, _ = self.env.step(chosen)
        is_over = bool(terminated or truncated)
        return self._text(shown), float(reward), is_over, {"truncated": int(bool(truncated))}

    def _action(self, text: str) -> Any:
        """The action that a text is. Raises NoAction."""
        from gymnasium.spaces import Text

        space, names = self.env.action_space, list(self.task.actions)
        if isinstance(space, Text):
            if space.contains(text):
                return text
            raise NoAction("no action")
        first, last = int(space.start), int(space.start + space.n) - 1
        if names:
            if text in names:
                return first + names.index(text)
            raise NoAction(f"no action: choose {', '.join(names)}")
        if WHOLE.fullmatch(text) and space.contains(int(text)):
            return int(text)
        raise NoAction(f"no action: choose {first} to {last}")

    def _text(self, observation: Any) -> str:
        """What the policy reads of an observation."""
        if self.task.show is Show.observation:
            return as_text(observation)
        return str(self.env.render()).strip()


def is_text(space: Any) -> bool:
    """Whether observations of a space are text or whole numbers."""
    from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete, Text, Tuple

    if isinstance(space, Tuple):
        return all(is_text(part) for part in space.spaces)
    return isinstance(space, Text | Discrete | MultiBinary | MultiDiscrete)


def as_text(observation: Any) -> str:
    """An observation of such a space; the parts of several with commas between them."""
    if isinstance(observation, str):
        return observation
    if isinstance(observation, tuple):
        return ", ".join(as_text(part) for part in observation)
    values = observation.tolist() if hasattr(observation, "tolist") else observation
    return ", ".join(map(str, values)) if isinstance(values, list) else str(values)
