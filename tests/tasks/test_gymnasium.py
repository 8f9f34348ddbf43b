"""Environments of gymnasium; skipped, and said so, where the package is not installed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.experiment.rules.tasks import require_working_environment
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.tasks.gymnasium import Gymnasium, Show
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split
from tests.conftest import MakeConfig
from tests.support.in_memory import run_in_memory
from tests.support.short_actions import brief_run

NAMES = ["left", "down", "right", "up"]
DRY = '{"is_slippery": false}'
LAKE = Gymnasium(config=DRY, actions=NAMES)
# The way across the lake of four by four.
WAY = "down down right right down right".split()


@pytest.fixture
def package() -> None:
    pytest.importorskip("gymnasium", reason="needs pip install 'rlhf-lab[gymnasium]'")


needs_package = pytest.mark.usefixtures("package")


@pytest.fixture
def sayings(package: None) -> Iterator[None]:
    """Registers an environment with text spaces, which draws from both kinds of random numbers."""
    import gymnasium

    class Sayings(gymnasium.Env):  # type: ignore[misc]
        """Say the word that is shown."""

        observation_space = gymnasium.spaces.Text(9)
        action_space = gymnasium.spaces.Text(3, min_length=1, charset="abc")

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, Any]:
            super().reset(seed=seed)
            self.word = "abc"[self.np_random.integers(3)]
            return self.word, {}

        def step(self, action: str) -> tuple[str, float, bool, bool, Any]:
            is_right = action == self.word
            self.word = random.choice("abc")
            return self.word, float(is_right), False, False, {}

    gymnasium.register("tests/Sayings-v0", entry_point=Sayings, max_episode_steps=6)
    yield
    del gymnasium.registry["tests/Sayings-v0"]


def play(task: Gymnasium, row: Example, *actions: str) -> list[Turn]:
    """The turns of an episode."""
    environment = task.environment()
    assert environment.reset(row, 0) == ""
    return [environment.step(action, True) for action in actions]


@needs_package
def test_a_way_across_the_lake_wins_and_a_hole_ends_the_game() -> None:
    row = LAKE.examples(Split.train)[0]
    assert row.prompt == "0\n" and row.uid == "gymnasium/FrozenLake-v1/train/0"
    won = play(LAKE, row, *WAY)
    assert [turn.observation.strip() for turn in won] == "4 8 9 10 14 15".split()
    assert [turn.reward for turn in won] == [0, 0, 0, 0, 0, 1]
    assert [turn.is_done for turn in won] == [False] * 5 + [True]
    lost = play(LAKE, row, "right", "down")
    assert [(turn.reward, turn.is_done) for turn in lost] == [(0, False), (0, True)]


@needs_package
def test_actions_are_numbers_where_they_have_no_names() -> None:
    task = Gymnasium(config=DRY)
    row = task.examples(Split.train)[0]
    by_number = play(task, row, *(str(NAMES.index(name)) for name in WAY))
    assert by_number == play(LAKE, row, *WAY)


@needs_package
def test_a_text_that_is_no_action_is_answered_and_changes_nothing() -> None:
    task = Gymnasium(config=DRY, invalid_reward=-0.1)
    row = task.examples(Split.train)[0]
    refused = Turn("\nno action: choose 0 to 3\n", -0.1, info={"invalid": 1})
    down, *wrong, back = play(task, row, "1", "4", "-1", "down", "", "3")
    assert wrong == [refused] * 4
    assert (down.observation, back.observation) == ("\n4\n", "\n0\n")
    (named,) = play(LAKE, row, "fly")
    assert named.observation == "\nno action: choose left, down, right, up\n"


@needs_package
def test_chances_are_those_of_the_row() -> None:
    task = Gymnasium()
    rows = task.examples(Split.train)
    moves = ["2"] * 20
    games = [play(task, rows[number], *moves) for number in range(8)]
    assert games == [play(task, rows[number], *moves) for number in range(8)]
    assert len({repr(turns) for turns in games}) > 2


@needs_package
def test_a_drawing_in_text_is_shown() -> None:
    task = Gymnasium(config=DRY, show=Show.rendering, actions=NAMES)
    row = task.examples(Split.train)[0]
    assert row.prompt == "\x1b[41mS\x1b[0mFFF\nFHFH\nFFFH\nHFFG\n"
    (turn,) = play(task, row, "right")
    assert turn.observation == "\n(Right)\nS\x1b[41mF\x1b[0mFF\nFHFH\nFFFH\nHFFG\n"


@needs_package
def test_observations_of_several_numbers_are_shown_with_commas() -> None:
    task = Gymnasium(env_id="Blackjack-v1")
    rows = task.examples(Split.validation)
    hands = {rows[number].prompt for number in range(20)}
    assert len(hands) > 10 and all(len(hand.split(", ")) == 3 for hand in hands)
    (stuck,) = play(task, rows[0], "0")
    assert stuck.is_done and stuck.reward in (-1, 0, 1)


@needs_package
def test_the_environments_own_limit_of_steps_ends_the_game() -> None:
    task = Gymnasium(env_id="CliffWalking-v1", config='{"max_episode_steps": 3}')
    turns = play(task, task.examples(Split.train)[0], "0", "0", "0")
    assert [turn.is_done for turn in turns] == [False, False, True]
    assert [turn.info["truncated"] for turn in turns] == [0, 0, 1]
    assert [turn.reward for turn in turns] == [-1, -1, -1]


@pytest.mark.usefixtures("sayings")
def test_text_is_played_as_it_is_and_games_share_no_random_numbers() -> None:
    task = Gymnasium(env_id="tests/Sayings-v0")
    rows = [task.examples(Split.train)[number] for number in range(4)]

    def begin(row: Example) -> tuple[Any, list[Turn]]:
        environment = task.environment()
        environment.reset(row, 0)
        return environment, []

    def follow(environment: Any, row: Example, turns: list[Turn]) -> None:
        shown = turns[-1].observation if turns else row.prompt
        turns.append(environment.step(shown, True))

    alone = [begin(row) for row in rows]
    for (environment, turns), row in zip(alone, rows, strict=True):
        for _ in range(6):
            follow(environment, row, turns)
    together = [begin(row) for row in rows]
    for _ in range(6):
        for (environment, turns), row in zip(together, rows, strict=True):
            follow(environment, row, turns)
    assert [turns for _, turns in together] == [turns for _, turns in alone]
    assert all(turn.reward == 1 for _, turns in alone for turn in turns)
    assert all(turns[-1].is_done and not turns[-2].is_done for _, turns in alone)
    (refused,) = play(task, rows[0], "dab")
    assert refused == Turn("\nno action\n", info={"invalid": 1})


@needs_package
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env_id": "FrozenLak-v1"}, r"cannot be made \(NameNotFound: .*Did you mean"),
        ({"env_id": "CartPole-v1"}, r"shows Box.*, which is neither .*: pass another environment"),
        ({"env_id": "CartPole-v1", "show": Show.rendering}, r"draws nothing in text"),
        ({"config": '{"map_name": "5x5"}'}, r"cannot be made \(KeyError: '5x5'\)"),
        ({"config": '{"lakes": 2}'}, r"cannot be made \(TypeError: .*'lakes'"),
        ({"actions": ["left", "right"]}, r"has 4 numbered actions; give each a name of its own"),
        ({"actions": ["a", "b", "c", "c"]}, r"has 4 numbered actions"),
    ],
)
def test_what_cannot_be_played_is_refused_before_the_first_step(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        Gymnasium(**options).examples(Split.train)


@pytest.mark.usefixtures("sayings")
def test_texts_have_no_numbered_actions_to_name() -> None:
    with pytest.raises(UserError, match=r"task.env_id=tests/Sayings-v0 has no numbered actions"):
        Gymnasium(env_id="tests/Sayings-v0", actions=["a"]).examples(Split.train)


def test_drawings_are_asked_for_by_their_option() -> None:
    with pytest.raises(UserError, match=r"sets 'render_mode': set task.show=rendering instead"):
        Gymnasium(config='{"render_mode": "ansi"}')


def test_a_missing_package_is_named_with_its_extra(
    config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlhf_lab.tasks.optional_packages.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"task=gymnasium needs .*'rlhf-lab\[gymnasium\]'"):
        check(config_of("task=gymnasium"))


@needs_package
def test_a_composed_config_is_checked_with_its_environment(config_of: MakeConfig) -> None:
    config = config_of("task=gymnasium", "task.actions=[left,down,right,up]")
    check(config)
    require_working_environment(config)


@needs_package
def test_a_policy_is_trained_and_evaluated_on_games(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    words = (
        *brief_run(tmp_path, "0123"),
        "task=gymnasium",
        "task.max_turns=8",
        "task.max_turn_tokens=4",
        "task.max_response_tokens=32",
        "task.invalid_reward=-1",
    )
    rows, _ = run_in_memory(make_config(*words))
    assert len(rows) == 2
    assert all(row["episode/turns"] > 1 and row["episode/truncated"] == 0 for row in rows)
    assert all(-8 <= row["reward/mean"] < 0 for row in rows)
