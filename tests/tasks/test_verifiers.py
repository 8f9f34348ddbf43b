"""Environments of verifiers; skipped, and said so, where the package is not installed."""

from __future__ import annotations

import gc
import importlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.tasks import verifiers as module
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.tasks.verifiers import Verifiers
from rlhf_lab.tasks.verifiers_agent import Exchange
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split
from tests.conftest import MakeConfig
from tests.support.in_memory import run_in_memory
from tests.support.short_actions import brief_run

SUPPORT = Path(__file__).parents[1] / "support"
SIZES: dict[str, Any] = {"train_size": 40, "validation_size": 8, "test_size": 8}


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pytest.importorskip("verifiers.v1", reason="needs pip install 'rlhf-lab[verifiers]'")
    monkeypatch.syspath_prepend(SUPPORT)
    module.loaded.cache_clear()
    yield
    module.loaded.cache_clear()


needs_package = pytest.mark.usefixtures("package")


def quiz(**options: Any) -> Verifiers:
    return Verifiers(env_id="verifiers_quiz", **{**SIZES, **options})


def guess(**options: Any) -> Verifiers:
    return Verifiers(env_id="verifiers_guess", **{**SIZES, **options})


def play(task: Verifiers, row: Example, *actions: str) -> list[Turn]:
    """The turns of an episode, up to its end."""
    environment, turns = task.environment(), list[Turn]()
    assert environment.reset(row, 0) == ""
    for action in actions:
        turns.append(environment.step(action, True))
        if turns[-1].is_done:
            break
    return turns


@needs_package
def test_a_plain_taskset_has_one_answer_with_its_weighted_rewards_and_metrics() -> None:
    task = quiz()
    row = task.examples(Split.validation)[2]
    assert row.prompt == "Add.\n\n42+1=\n" and row.uid == "verifiers/verifiers_quiz/validation/2"
    (right,) = play(task, row, "43")
    assert right.is_done and right.reward == pytest.approx(2.0 - 0.2)
    assert right.info == {
        "invalid": 0,
        "reward_right": 2.0,
        "reward_brief": pytest.approx(-0.2),
        "metric_messages": 3.0,
    }
    (wrong,) = play(task, row, "7")
    assert wrong.is_done and wrong.reward == pytest.approx(-0.1)


@needs_package
def test_splits_are_rows_that_never_meet() -> None:
    task = quiz()
    prompts = [[row.prompt for row in task.examples(split)] for split in Split]
    assert [len(one) for one in prompts] == [40, 8, 8]
    assert len(set(itertools.chain(*prompts))) == 56
    assert all(row.reference == "" for row in task.examples(Split.test))


@needs_package
def test_an_environment_that_speaks_first_answers_until_the_number_is_found() -> None:
    task = guess(config='{"cost": 0.125}')
    row = task.examples(Split.train)[3]
    assert row.prompt == "Guess a digit.\n"
    turns = play(task, row, *"7" * 60)
    assert len(turns) > 1 and turns[-1].is_done
    assert turns[-1].reward == 1.0 - 0.125 * (len(turns) - 1)
    assert turns[-1].info["metric_traces"] == 1
    assert all(turn.observation.startswith("\nno, and the next is below ") for turn in turns[:-1])
    assert all(turn.reward == 0 and not turn.is_done for turn in turns[:-1])


@needs_package
def test_episodes_that_take_turns_do_not_share_random_numbers() -> None:
    task = guess()
    rows = [task.examples(Split.train)[number] for number in range(4)]
    alone = [play(task, row, *"7" * 20) for row in rows]
    assert len({repr(turns) for turns in alone}) == 4
    environments = [task.environment() for _ in rows]
    for environment, row in zip(environments, rows, strict=True):
        environment.reset(row, 0)
    together: list[list[Turn]] = [[] for _ in rows]
    for _ in range(20):
        for environment, turns in zip(environments, together, strict=True):
            if not turns or not turns[-1].is_done:
                turns.append(environment.step("7", True))
    assert together == alone


@needs_package
def test_the_environments_own_limit_of_turns_ends_an_episode() -> None:
    task = guess(config='{"player": {"max_turns": 2}}')
    turns = play(task, task.examples(Split.train)[0], "x", "x", "x")
    assert [turn.is_done for turn in turns] == [False, True]


@needs_package
def test_what_an_environment_raises_is_raised() -> None:
    task = guess()
    with pytest.raises(KeyError, match="no such digit"):
        play(task, task.examples(Split.train)[0], "crash")


@needs_package
def test_an_episode_that_nobody_plays_on_is_ended_and_does_no_harm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[Exchange] = []
    abandon = Exchange.abandon

    def noted(self: Exchange) -> None:
        ended.append(self)
        abandon(self)

    monkeypatch.setattr(Exchange, "abandon", noted)
    task = guess()
    row = task.examples(Split.train)[0]
    gc.collect()
    ended.clear()
    environment = task.environment()
    environment.reset(row, 0)
    environment.step("x", True)
    del environment
    gc.collect()
    assert len(ended) == 1
    assert not play(task, row, "x")[0].is_done
    assert ended[0]._task.cancelled()


@needs_package
def test_textarena_of_verifiers_is_played_with_the_words_that_nltk_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nltk = pytest.importorskip("nltk")
    pytest.importorskip("textarena")
    words = tmp_path / "corpora" / "words"
    words.mkdir(parents=True)
    for name in ("README", "en", "en-basic"):
        (words / name).write_text("apple\n")
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    # The taskset asks for words from the network.
    monkeypatch.setattr(nltk, "download", lambda *_, **__: True)
    settings = json.dumps({"taskset": {"game": "Hangman-v0"}})
    task = Verifiers(env_id="textarena", config=settings, **SIZES)
    row = task.examples(Split.train)[0]
    assert "You are a competitive game player." in row.prompt and "apple" not in row.prompt
    won = play(task, row, "[a]", "I say [p]", "[l]", "[e]")
    assert [turn.reward for turn in won] == [0, 0, 0, 1] and won[-1].is_done
    assert won[-1].info["reward_game_reward"] == 1.0
    lost = play(task, row, *(f"[{letter}]" for letter in "zyxwvu"))
    assert lost[-1].is_done and lost[-1].reward == 0


@needs_package
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"NEEDS_CONTAINER": True}, r"runs in a container"),
        ({"toolsets": classmethod(lambda cls, config: [object()])}, r"has tools on servers"),
        ({"setup": lambda self, trace, runtime: None}, r"prepares a runtime \(setup\)"),
        ({"finalize": lambda self, trace, runtime: None}, r"ends in a runtime \(finalize\)"),
    ],
)
def test_what_needs_more_than_a_conversation_is_refused_before_the_first_step(
    change: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = importlib.import_module("verifiers_quiz").Sum
    for name, value in change.items():
        monkeypatch.setattr(row, name, value)
    with pytest.raises(UserError, match=rf"verifiers_quiz, row 0, {message}"):
        quiz().examples(Split.train)


@needs_package
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env_id": "verifiers_nothing"}, r"cannot be made \(ModuleNotFoundError: taskset"),
        ({"env_id": ""}, r"task.env_id='': pass task.env_id=<an installed taskset>"),
        ({"config": '{"taskset": {"colour": 1}}'}, r"cannot be made \(ValidationError"),
        ({"config": '{"taskset": {"rows": 50}}'}, r"has 50 rows, and the splits need 56: lower"),
        ({"config": '{"id": "user-sim"}'}, r"has the agents assistant, user"),
    ],
)
def test_what_the_package_lacks_is_refused_before_the_first_step(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        quiz_of = {"env_id": "verifiers_quiz", **SIZES, **options}
        Verifiers(**quiz_of).examples(Split.train)


class Row:
    """A row of a taskset."""

    def with_data(self) -> Row:
        return self


def test_an_environment_that_ends_without_a_turn_is_refused_with_its_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The package is not needed: what it is asked before an episode begins is answered here."""

    async def ends(*_: Any) -> None:
        return None

    environment = SimpleNamespace(config=SimpleNamespace(player=None))
    monkeypatch.setattr(Verifiers, "require_usable", lambda *_: None)
    monkeypatch.setattr(module, "loaded", lambda task: (environment, [Row()] * 56))
    monkeypatch.setattr(module, "require_plain", lambda *_: None)
    monkeypatch.setattr(module, "agents_of", lambda _: ["player"])
    monkeypatch.setattr(module, "play", ends)
    complaint = r"^row verifiers/verifiers_quiz/validation/0 ends before the policy may act: pass "
    with pytest.raises(UserError, match=complaint):
        quiz().examples(Split.validation)


def test_a_missing_package_is_named_with_its_extra(
    config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlhf_lab.tasks.optional_packages.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"task=verifiers needs .*'rlhf-lab\[verifiers\]'"):
        check(config_of("task=verifiers", "task.env_id=quiz"))


@needs_package
def test_a_policy_is_trained_in_an_environment(make_config: MakeConfig, tmp_path: Path) -> None:
    words = (
        *brief_run(tmp_path, "0123456789"),
        "task=verifiers",
        "task.env_id=verifiers_guess",
        "task.train_size=16",
        "task.validation_size=4",
        "task.test_size=4",
        "task.max_turns=4",
        "task.max_turn_tokens=6",
        "task.max_response_tokens=24",
        "mode=sync",
    )
    rows, _ = run_in_memory(make_config(*words))
    assert len(rows) == 2
    assert all(row["episode/turns"] > 1 and row["episode/observed_tokens"] > 0 for row in rows)
