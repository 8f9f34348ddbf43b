"""`task=openenv`: environments of OpenEnv on a server, each episode a session of its own.

The server is one that the user started, on this machine or elsewhere. Its actions and observations
are objects with fields: the policy writes one field and reads another.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rlhf_lab.tasks.optional_packages import require_package
from rlhf_lab.tasks.text_games import NoTurn, TextGames, refused_settings
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError

PACKAGE = "openenv"


@dataclass(frozen=True)
class OpenEnv(TextGames):
    """Episodes on a server of OpenEnv."""

    name: str = limits.name(PACKAGE)
    env_id: str = limits.option("http://127.0.0.1:8000", about="Address of the running server.")
    config: str = limits.option(
        "{}", about="Arguments of the server's reset other than the seed, a JSON object as text."
    )
    action_field: str = limits.option(
        "message", about="Field of the server's actions that the policy's text goes to."
    )
    observation_field: str = limits.option(
        "", about="Field of the server's observations that the policy reads."
    )
    timeout: float = limits.seconds(60, about="Longest wait for an answer of the server.")

    # The server draws them.
    shares_random: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if "seed" in self.settings():
            raise UserError(f"task.config={self.config} sets 'seed': each row has its own")

    def require_usable(self, key: str) -> None:
        require_package(PACKAGE, PACKAGE, f"{key}={self.name}")

    def game(self) -> OpenEnvGame:
        """A session before it is opened."""
        self.require_usable("task")
        from openenv.core import GenericEnvClient

        # An event loop in a thread answers the server's pings while the policy writes.
        client = GenericEnvClient(base_url=self.env_id, message_timeout_s=self.timeout).sync()
        return OpenEnvGame(self, client)


@dataclass
class OpenEnvGame:
    """One session, closed at its end or when it is abandoned."""

    task: OpenEnv
    client: Any
    _close: Any = field(default=None, init=False)

    def reset(self, seed: int) -> str:
        """Open the session. Returns the first observation."""
        self._close = weakref.finalize(self, self.client.close)
        try:
            self.client.connect()
            result = self.client.reset(seed=seed, **self.task.settings())
        # The server may not be there, or refuse what it gets.
        except Exception as error:
            raise refused_settings(self.task, error) from error
        if result.done:
            self._close()
            raise NoTurn
        return self._text(result.observation)

    def step(self, action: str) -> tuple[str, float, bool, dict[str, float]]:
        """Send an action. A reward that the server leaves out is 0."""
        result = self.client.step({self.task.action_field: action})
        text, reward = self._text(result.observation), float(result.reward or 0.0)
        if result.done:
            self._close()
        return text, reward, bool(result.done), {}

    def _text(self, observation: dict[str, Any]) -> str:
        """What the policy reads. Raises UserError if the observation has no such field."""
        name = self.task.observation_field
        if name not in observation:
            raise UserError(
                f"task.observation_field={name!r}: observations of task.env_id="
                f"{self.task.env_id} have {', '.join(sorted(observation))}; choose one of them"
            )
        return str(observation[name])
