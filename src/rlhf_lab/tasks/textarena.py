"""`task=textarena`: games of one player of the package textarena (arXiv:2504.11442).

The policy reads each message once, as the package hands it out: its prompt, and behind an action
what the game says to it. Observation wrappers of the package, which repeat the whole game or its
latest board, are not used; wrappers of actions are.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

from rlhf_lab.tasks.optional_packages import importing, require_package
from rlhf_lab.tasks.text_games import NoTurn, TextGames, refused_settings
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError

PACKAGE = "textarena"


@dataclass(frozen=True)
class TextArena(TextGames):
    """Games of one player of the package textarena."""

    name: str = limits.name(PACKAGE)
    env_id: str = limits.option(
        "GuessTheNumber-v0", about="Name of a game of one player in textarena's registry."
    )

    def require_usable(self, key: str) -> None:
        require_package(PACKAGE, PACKAGE, f"{key}={self.name}")

    def game(self) -> TextArenaGame:
        """A game of the package. Raises UserError if it has none of that name for one player."""
        require_package(PACKAGE, PACKAGE, f"task={self.name}")
        with importing():
            from textarena.envs.registration import ENV_REGISTRY, make

        if self.env_id not in ENV_REGISTRY:
            near = difflib.get_close_matches(self.env_id, sorted(ENV_REGISTRY), n=5, cutoff=0.0)
            raise UserError(
                f"task.env_id={self.env_id} is not a game of textarena: near names are "
                f"{', '.join(near)}"
            )
        try:
            # It imports the game's own module.
            with importing():
                return TextArenaGame(self, make(self.env_id, **self.settings()))
        # Games read files and services, and some files of the package are no Python 3.11.
        except Exception as error:
            raise refused_settings(self, error) from error


@dataclass
class TextArenaGame:
    """One game. env: of the package."""

    task: TextArena
    env: Any

    def reset(self, seed: int) -> str:
        """Begin. Returns the prompt of the game, and what it shows. Raises UserError for games of
        several players."""
        from textarena import SinglePlayerState

        try:
            self.env.reset(num_players=1, seed=seed)
        except Exception as error:
            raise refused_settings(self.task, error) from error
        if not isinstance(self.env.state, SinglePlayerState):
            raise UserError(
                f"task.env_id={self.task.env_id} is a game of several players: choose one of one "
                "player, such as GuessTheNumber-v0"
            )
        if self.env.state.done:
            raise NoTurn
        return self._messages()

    def step(self, action: str) -> tuple[str, float, bool, dict[str, float]]:
        """One move. The game gives its reward at the end; a move that it does not allow has its
        answer, and a second one in a row ends most games."""
        is_over, _ = self.env.step(action)
        text = self._messages()
        if not is_over:
            return text, 0.0, False, {"lost_by_invalid": 0}
        rewards, infos = self.env.close()
        return text, float(rewards[0]), True, {"lost_by_invalid": int(infos[0]["invalid_move"])}

    def _messages(self) -> str:
        """The messages of the game since the last call, without the player's own words."""
        from textarena import GAME_ID, ObservationType

        messages = self.env.state.get_current_player_observation()
        return "\n".join(
            text
            for sender, text, kind in messages
            if sender == GAME_ID and kind is not ObservationType.PLAYER_ACTION
        ).strip()
