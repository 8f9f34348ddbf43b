"""Games of textarena; skipped, and said so, where the package is not installed."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.experiment.rules.tasks import require_working_environment
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.tasks.textarena import TextArena
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split
from tests.conftest import MakeConfig
from tests.support.in_memory import run_in_memory
from tests.support.short_actions import brief_run

# Of 1 to 20, at most ten guesses.
GUESS = TextArena()
# Every press draws a random number.
BANDIT = TextArena(env_id="Bandit-v0")


@pytest.fixture
def package() -> None:
    pytest.importorskip("textarena", reason="needs pip install 'rlhf-lab[textarena]'")


needs_package = pytest.mark.usefixtures("package")


def play(task: TextArena, row: Example, *actions: str) -> list[Turn]:
    """The turns of an episode."""
    environment = task.environment()
    assert environment.reset(row, 0) == ""
    return [environment.step(action, True) for action in actions]


def search(row: Example) -> list[Turn]:
    """Guess the number by halves."""
    low, high, turns = 1, 20, list[Turn]()
    environment = GUESS.environment()
    environment.reset(row, 0)
    while not turns or not turns[-1].is_done:
        guess = (low + high) // 2
        turns.append(environment.step(f"I say [{guess}]", True))
        if "higher" in turns[-1].observation:
            low = guess + 1
        else:
            high = guess - 1
    return turns


@needs_package
def test_guesses_by_halves_win_every_game() -> None:
    rows = GUESS.examples(Split.train)
    games = [search(rows[number]) for number in range(30)]
    assert all(len(turns) <= 5 and turns[-1].reward == 1.0 for turns in games)
    assert all(turn.reward == 0 for turns in games for turn in turns[:-1])
    assert len({len(turns) for turns in games}) > 2
    hints = {turn.observation for turns in games for turn in turns[:-1]}
    assert hints == {"\nThe target number is higher.\n", "\nThe target number is lower.\n"}


@needs_package
def test_a_number_without_brackets_gets_them_and_two_moves_that_are_none_lose() -> None:
    row = GUESS.examples(Split.train)[0]
    assert play(GUESS, row, "10") == play(GUESS, row, "[10]")
    first, second = play(GUESS, row, "ten", "[eleven]")
    assert not first.is_done
    assert first.observation.startswith("\nYou attempted an invalid move. Reason: ")
    assert (second.is_done, second.reward) == (True, 0.0)
    assert second.info == {"invalid": 0, "lost_by_invalid": 1}


@needs_package
def test_a_game_with_too_many_guesses_is_lost() -> None:
    row = GUESS.examples(Split.train)[0]
    right = len(search(row))
    number = next(n for n in range(1, 21) if play(GUESS, row, str(n))[0].reward == 1.0)
    wrong = [str(n) for n in range(1, 21) if n != number]
    turns = play(GUESS, row, *wrong[:11])
    # The package counts ten guesses behind the first.
    assert right < 10 and [turn.is_done for turn in turns] == [False] * 10 + [True]
    assert 0 < turns[-1].reward < 1 and turns[-1].info["lost_by_invalid"] == 0


@needs_package
def test_an_action_that_was_cut_is_not_taken() -> None:
    task = TextArena(invalid_reward=-0.5)
    row = task.examples(Split.train)[0]
    environment = task.environment()
    environment.reset(row, 0)
    assert environment.step("[10]", False) == Turn(reward=-0.5, is_done=True, info={"invalid": 1})


@needs_package
def test_tower_of_hanoi_is_won_in_seven_moves() -> None:
    task = TextArena(env_id="TowerOfHanoi-v0")
    moves = "A C,A B,C B,A C,B A,B C,A C".split(",")
    turns = play(task, task.examples(Split.test)[0], *moves)
    assert [turn.is_done for turn in turns] == [False] * 6 + [True]
    assert turns[-1].reward == 1.0
    assert "You moved disk 1 from A to C" in turns[0].observation
    assert "[A C]" not in turns[0].observation


@needs_package
def test_hangman_is_played_with_the_words_that_nltk_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nltk

    words = tmp_path / "corpora" / "words"
    words.mkdir(parents=True)
    for name in ("README", "en", "en-basic"):
        (words / name).write_text("apple\n")
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    # Importing the game asks for words from the network.
    monkeypatch.setattr(nltk, "download", lambda *_, **__: True)
    task = TextArena(env_id="Hangman-v0")
    row = task.examples(Split.train)[0]
    assert "_   _   _   _   _" in row.prompt and "apple" not in row.prompt
    won = play(task, row, "a", "p", "l", "e")
    assert [turn.reward for turn in won] == [0, 0, 0, 1] and won[-1].is_done
    assert "A   P   P   _   _" in won[1].observation
    lost = play(task, row, *"zyxwvu")
    assert (lost[-1].is_done, lost[-1].reward) == (True, 0.0)


@needs_package
def test_episodes_that_take_turns_do_not_share_random_numbers() -> None:
    rows = BANDIT.examples(Split.train)
    presses = ["red", "blue"] * 8
    alone = [play(BANDIT, rows[number], *presses) for number in range(3)]
    assert alone[0] != alone[1]
    environments = [BANDIT.environment() for _ in range(3)]
    for number, environment in enumerate(environments):
        environment.reset(rows[number], seed=number)
    together: list[list[Turn]] = [[], [], []]
    for press in presses:
        for environment, turns in zip(environments, together, strict=True):
            random.random()
            turns.append(environment.step(press, True))
    assert together == alone


@needs_package
def test_episodes_in_threads_are_those_of_one() -> None:
    rows = [BANDIT.examples(Split.train)[number] for number in range(8)]
    presses = ["red", "green"] * 8
    with ThreadPoolExecutor(4) as pool:
        games = list(pool.map(lambda row: play(BANDIT, row, *presses), rows))
    assert games == [play(BANDIT, row, *presses) for row in rows]


@needs_package
def test_global_random_numbers_are_left_as_they_were() -> None:
    random.seed(3)
    before = random.getstate(), repr(np.random.get_state())
    play(BANDIT, BANDIT.examples(Split.train)[5], "red", "blue")
    assert (random.getstate(), repr(np.random.get_state())) == before


@needs_package
def test_rows_are_a_function_of_their_place_and_splits_never_meet() -> None:
    task = TextArena(env_id="2048-v0")
    rows = {split: [task.examples(split)[number] for number in range(20)] for split in Split}
    assert rows == {
        split: [TextArena(env_id="2048-v0").examples(split)[n] for n in range(20)]
        for split in reversed(Split)
    }
    seeds = [row.hidden["seed"] for split in Split for row in rows[split]]
    assert len(set(seeds)) == 60
    row = rows[Split.train][3]
    assert row.uid == "textarena/2048-v0/train/3" and row.reference == ""
    assert len({row.prompt for row in rows[Split.train]}) > 10
    other = TextArena(env_id="2048-v0", world_seed=1).examples(Split.train)[3]
    assert other.hidden["seed"] != row.hidden["seed"]


@needs_package
def test_prompts_and_observations_stand_in_their_templates() -> None:
    task = TextArena(
        template="Play.\n{observation}\n> ", observation_template="<{observation}>", max_turns=3
    )
    row = task.examples(Split.train)[0]
    assert row.prompt.startswith("Play.\nYou are Player 0. You are playing Guess The Number.")
    assert row.prompt.endswith("Enter your guess.\n> ")
    (turn,) = play(task, row, "[1]")
    assert turn.observation == "<The target number is higher.>"


@needs_package
def test_a_game_that_begins_otherwise_than_its_prompt_is_refused() -> None:
    row = GUESS.examples(Split.train)[0]
    other = Example(row.uid, row.prompt, "", {**row.hidden, "first": "Guess"})
    with pytest.raises(UserError, match=r"began with 'Guess', and then .*PYTHONHASHSEED=0"):
        GUESS.environment().reset(other, 0)


@needs_package
def test_a_game_that_is_over_at_its_reset_is_refused_with_its_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = GUESS.examples(Split.train)[0]
    from textarena.envs.GuessTheNumber.env import GuessTheNumberEnv

    reset = GuessTheNumberEnv.reset

    def over(self: Any, *given: Any, **named: Any) -> None:
        reset(self, *given, **named)
        self.state.set_outcome(reward=1.0)

    monkeypatch.setattr(GuessTheNumberEnv, "reset", over)
    complaint = r"^row textarena/GuessTheNumber-v0/{}/0 ends before the policy may act: pass other"
    with pytest.raises(UserError, match=complaint.format("test")):
        GUESS.examples(Split.test)
    with pytest.raises(UserError, match=complaint.format("train")):
        GUESS.environment().reset(row, 0)


@needs_package
def test_settings_of_the_game_come_as_json(config_of: MakeConfig) -> None:
    config = config_of("task=textarena", 'task.config="{\\"max_number\\": 7}"')
    assert isinstance(config.task, TextArena) and config.task.is_episodic
    check(config)
    require_working_environment(config)
    assert "between 1 and 7" in config.task.examples(Split.train)[0].prompt


@needs_package
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("reward@judge=task_rule",), r"no rule of its own; pass reward@judge=environment$"),
        (("reward=task_rule",), r"no rule of its own; pass reward=environment$"),
        (("reward=reward_model",), r"the task has none: pass reward=environment, or"),
    ],
)
def test_scores_that_need_a_rule_or_references_are_refused(
    config_of: MakeConfig, overrides: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        check(config_of("task=textarena", *overrides))


@needs_package
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env_id": "GuessNumber-v0"}, r"is not a game of textarena: near names are Guess"),
        ({"env_id": "KuhnPoker-v0"}, r"env_id=KuhnPoker-v0 .* cannot be made \(AssertionError"),
        ({"env_id": "PublicGoodsGame-v0"}, r"PublicGoodsGame-v0 is a game of several players"),
        ({"env_id": "GuessWho-v0"}, r"cannot be made \(ValueError: OpenRouter API key not found"),
        ({"config": '{"colour": 1}'}, r"cannot be made \(TypeError: .*'colour'"),
    ],
)
def test_what_cannot_be_played_is_refused_before_the_first_step(
    options: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    with pytest.raises(UserError, match=message):
        TextArena(**options).examples(Split.train)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"config": "{"}, r"task.config=\{ is not JSON"),
        ({"config": "[1]"}, r"task.config=\[1\] is not a JSON object"),
        ({"template": "Play"}, r"task.template='Play' has no \{observation\}"),
        ({"observation_template": ""}, r"task.observation_template='' has no \{observation\}"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TextArena(**options)  # type: ignore[arg-type]


def test_there_are_no_demonstrations() -> None:
    with pytest.raises(UserError, match=r"task=textarena has no demonstrations, .*: pass model="):
        GUESS.demonstration(Example("row", "", ""))


def test_a_missing_package_is_named_with_its_extra(
    config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlhf_lab.tasks.optional_packages.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"task=textarena needs .*'rlhf-lab\[textarena\]'"):
        check(config_of("task=textarena"))


def run_of_games(folder: Path) -> tuple[str, ...]:
    return (
        *brief_run(folder, "123"),
        "task=textarena",
        "task.max_prompt_tokens=600",
        "task.max_turns=4",
        "task.max_turn_tokens=4",
        "task.max_response_tokens=16",
    )


@needs_package
def test_a_policy_is_trained_on_games(make_config: MakeConfig, tmp_path: Path) -> None:
    rows, _ = run_in_memory(make_config(*run_of_games(tmp_path), "mode=sync"))
    assert len(rows) == 2
    assert all(row["episode/turns"] > 1 and row["episode/observed_tokens"] > 0 for row in rows)
    assert all("episode/lost_by_invalid" in row for row in rows)
    assert any(row["reward/mean"] > 0 for row in rows)


@pytest.mark.slow
@needs_package
def test_games_have_the_same_bits_in_processes(
    make_config: MakeConfig, tmp_path: Path, processes: None
) -> None:
    words = (*run_of_games(tmp_path), "mode.max_staleness=1")
    lagged = run_in_memory(make_config(*words, "mode=lagged"))
    processes_ = run_in_memory(make_config(*words, "mode=async", "mode.executor=process"))
    assert processes_ == lagged
    assert lagged[1] != run_in_memory(make_config(*run_of_games(tmp_path), "mode=sync"))[1]
