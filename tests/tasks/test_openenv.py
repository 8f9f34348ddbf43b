"""Environments of OpenEnv on a server here; skipped, and said so, without the package."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.tasks.openenv import OpenEnv, OpenEnvGame
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split
from tests.conftest import MakeConfig
from tests.support.in_memory import run_in_memory
from tests.support.short_actions import brief_run

SESSIONS = 16


def app() -> Any:
    """A server of a guessing game, by the package's own classes."""
    from openenv.core import Action, Environment, Observation, State, create_fastapi_app

    class Guess(Action):  # type: ignore[misc]
        message: str

    class Hint(Observation):  # type: ignore[misc]
        hint: str

    class Game(Environment):  # type: ignore[misc]
        SUPPORTS_CONCURRENT_SESSIONS = True

        def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Hint:
            self.number = random.Random(seed).randrange(10)
            return Hint(hint="Guess a digit.")

        def step(self, action: Guess, timeout_s: float | None = None, **_: Any) -> Hint:
            if action.message == str(self.number):
                return Hint(hint="yes", reward=1.0, done=True)
            return Hint(hint="higher" if action.message < str(self.number) else "lower")

        @property
        def state(self) -> State:
            return State()

    return create_fastapi_app(Game, Guess, Hint, max_concurrent_envs=SESSIONS)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a running server."""
    pytest.importorskip("openenv.core", reason="needs pip install 'rlhf-lab[openenv]'")
    uvicorn = pytest.importorskip("uvicorn")
    server = uvicorn.Server(uvicorn.Config(app(), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(20)


def play(task: OpenEnv, row: Example, *actions: str) -> list[Turn]:
    environment = task.environment()
    assert environment.reset(row, 0) == ""
    return [environment.step(action, True) for action in actions]


def number_of(row: Example) -> int:
    return random.Random(row.hidden["seed"]).randrange(10)


@pytest.mark.usefixtures("processes")
def test_games_are_won_and_take_turns(address: str) -> None:
    task = OpenEnv(env_id=address, observation_field="hint")
    rows = [row for row, _ in zip(task.examples(Split.train), range(6), strict=False)]
    assert rows[0].prompt == "Guess a digit.\n"
    assert len({number_of(row) for row in rows}) > 2
    environments = [task.environment() for _ in rows]
    for environment, row in zip(environments, rows, strict=True):
        environment.reset(row, 0)
    for guess in range(10):
        for environment, row in zip(environments, rows, strict=True):
            if guess <= number_of(row):
                turn = environment.step(str(guess), True)
                is_found = guess == number_of(row)
                assert (turn.reward, turn.is_done) == (float(is_found), is_found)
                assert turn.observation == ("\nyes\n" if is_found else "\nhigher\n")


@pytest.mark.usefixtures("processes")
def test_sessions_of_episodes_that_nobody_plays_on_are_closed(address: str) -> None:
    task = OpenEnv(env_id=address, observation_field="hint")
    row = task.examples(Split.train)[0]
    for _ in range(2 * SESSIONS):
        assert not play(task, row, "x")[0].is_done


@pytest.mark.usefixtures("processes")
def test_what_the_server_lacks_is_refused_before_the_first_step(address: str) -> None:
    with pytest.raises(
        UserError, match=r"observation_field='': .* have hint, metadata; choose one"
    ):
        OpenEnv(env_id=address).examples(Split.train)
    nowhere = OpenEnv(env_id="http://127.0.0.1:9", observation_field="hint")
    with pytest.raises(
        UserError, match=r"env_id=http://127.0.0.1:9 .* cannot be made \(Connection"
    ):
        nowhere.examples(Split.train)


@dataclass
class Answer:
    """The package's result of a reset or a step."""

    observation: dict[str, Any]
    reward: float | None = None
    done: bool = False


class Client:
    """The package's client of a server whose sessions are over as soon as they are reset."""

    closed = 0

    def connect(self) -> None:
        """Nobody is there."""

    def reset(self, **_: Any) -> Answer:
        return Answer({"hint": "too late"}, done=True)

    def close(self) -> None:
        Client.closed += 1


def test_a_session_that_is_over_at_its_reset_is_refused_with_its_row_and_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Client, "closed", 0)
    monkeypatch.setattr(OpenEnv, "game", lambda task: OpenEnvGame(task, Client()))
    complaint = r"^row openenv/http://a/train/0 ends before the policy may act: pass other settings"
    with pytest.raises(UserError, match=complaint):
        OpenEnv(env_id="http://a", observation_field="hint").examples(Split.train)
    assert Client.closed == 1


def test_a_seed_in_the_settings_is_refused() -> None:
    with pytest.raises(UserError, match=r"sets 'seed': each row has its own"):
        OpenEnv(config='{"seed": 1}')


def test_a_missing_package_is_named_with_its_extra(
    config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlhf_lab.tasks.optional_packages.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"task=openenv needs .*'rlhf-lab\[openenv\]'"):
        check(config_of("task=openenv"))


@pytest.mark.usefixtures("processes")
def test_a_policy_is_trained_on_a_server(
    address: str, make_config: MakeConfig, tmp_path: Path
) -> None:
    words = (
        *brief_run(tmp_path, "0123456789"),
        "task=openenv",
        f"task.env_id={address}",
        "task.observation_field=hint",
        "task.max_turns=4",
        "task.max_turn_tokens=6",
        "task.max_response_tokens=24",
        "mode=sync",
    )
    rows, _ = run_in_memory(make_config(*words))
    assert len(rows) == 2
    assert all(row["episode/turns"] > 1 and row["episode/observed_tokens"] > 0 for row in rows)
