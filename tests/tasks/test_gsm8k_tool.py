"""GSM8K with a calculator: calls, answers, and solutions that become demonstrations."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from rlhf_lab.tasks.byte_tokenizer import byte_tokenizer
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.tasks.gsm8k import Gsm8k, Verify
from rlhf_lab.tasks.gsm8k_tool import MAX_DIGITS, Gsm8kTool, actions_of
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split
from tests.support.turns import turns_of

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "gsm8k"
SOLUTION = (
    " Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n"
    "She sold 48+24 = <<48+24=72>>72 clips altogether.\n#### 72"
)
ACTIONS = [
    " Natalia sold 48/2 = <<48/2>>",
    " clips in May.\nShe sold 48+24 = <<48+24>>",
    " clips altogether.\n#### 72",
]
ROW = Example("train.jsonl:1", "?", SOLUTION, {"answer": "72"})
NO_CALL = {"calls": 0, "errors": 0}


def answered(reward: float) -> Turn:
    return Turn(reward=reward, is_done=True, info=NO_CALL)


def called(result: str, errors: int = 0, cost: float = 0.0) -> Turn:
    return Turn(result, -cost, info={"calls": 1, "errors": errors})


def test_it_is_a_task_of_episodes() -> None:
    task = Gsm8kTool()
    assert task.is_episodic and not Gsm8k().is_episodic
    assert (task.max_turns, task.max_turn_tokens, task.max_observation_tokens) == (10, 256, 40)
    assert task.max_observation_tokens >= MAX_DIGITS


def test_an_episode_by_hand() -> None:
    assert Gsm8kTool().demonstration(ROW) == ACTIONS
    turns = turns_of(Gsm8kTool(call_cost=0.25), ROW, ACTIONS)
    assert turns == [called("24", cost=0.25), called("72", cost=0.25), answered(1.0)]
    read = "".join(a + turn.observation for a, turn in zip(ACTIONS, turns, strict=True))
    assert read == re.sub(r"=\d+>>", ">>", SOLUTION)


@pytest.mark.parametrize(
    ("action", "result"),
    [
        ("<<3*(4+5)>>", "27"),
        ("first <<1+1>> then <<2+2>>", "4"),
        ("so <<1+1>> \n", "2"),
        ("<< 1 + 1 >>", "2"),
    ],
)
def test_an_action_that_ends_with_a_call_is_answered(action: str, result: str) -> None:
    assert turns_of(Gsm8kTool(), ROW, [action, "#### 72"]) == [called(result), answered(1.0)]


@pytest.mark.parametrize(
    ("action", "error"),
    [
        ("<<>>", "error: unreadable"),
        ("<<48/2=24>>", "error: unreadable"),
        ("<<9**9**9>>", "error: too large"),
        ("<<1/0>>", "error: division by 0"),
        ("<<__import__('os')>>", "error: unreadable"),
    ],
)
def test_what_cannot_be_calculated_is_an_error_that_is_read(action: str, error: str) -> None:
    assert turns_of(Gsm8kTool(), ROW, [action, "#### 72"]) == [called(error, 1), answered(1.0)]


@pytest.mark.parametrize(
    ("action", "reward"),
    [
        ("#### 72", 1.0),
        ("so it is\n#### 72.", 1.0),
        ("#### 7", 0.0),
        ("72", 0.0),
        ("", 0.0),
        ("<<48+24", 0.0),
        ("<<48+24>> clips", 0.0),
        # A final answer ends the episode, whatever stands behind it.
        ("#### 72 <<1+1>>", 1.0),
    ],
)
def test_any_other_action_ends_the_episode_as_gsm8k_judges_it(action: str, reward: float) -> None:
    assert turns_of(Gsm8kTool(), ROW, [action]) == [answered(reward)]
    assert Gsm8k().judge(ROW, action, True) == reward


def test_the_last_turn_and_an_action_without_its_end_are_taken_as_the_answer() -> None:
    task = Gsm8kTool(max_turns=2)
    assert turns_of(task, ROW, ["<<1+1>>", "<<1+1>>"]) == [called("2"), answered(0.0)]
    environment = Gsm8kTool().environment()
    environment.reset(ROW, 0)
    assert environment.step("<<1+1>>", False) == answered(0.0)
    for _ in range(2):
        environment.reset(ROW, 0)
        assert [environment.step(action, True).is_done for action in ACTIONS] == [
            False,
            False,
            True,
        ]


def test_equal_answers_count_as_they_do_without_a_tool() -> None:
    pytest.importorskip("math_verify", reason="needs pip install 'rlhf-lab[math]'")
    (turn,) = turns_of(Gsm8kTool(verify=Verify.math_verify), ROW, ["#### 144/2"])
    assert turn == answered(1.0)
    assert turns_of(Gsm8kTool(), ROW, ["#### 144/2"]) == [answered(0.0)]


@pytest.mark.parametrize(
    ("solution", "actions"),
    [
        # Behind an annotation a number may be written otherwise.
        ("a <<9*500=4500>>4,500, b\n#### 4", ["a <<9*500>>", ", b\n#### 4"]),
        ("$<<2*15=30>>30.00.\n#### 3", ["$<<2*15>>", ".\n#### 3"]),
        ("<<.5*1=.5>>.5 b\n#### 3", ["<<.5*1>>", " b\n#### 3"]),
        ("<<3-5=-2>>-2 b\n#### 3", ["<<3-5>>", " b\n#### 3"]),
        # The calculator says 3.333333, nothing, or that it cannot.
        ("a <<10/3=3.33>>3.33 b\n#### 3", ["a 3.33 b\n#### 3"]),
        ("a <<3/4=3/4>>3/4 b\n#### 3", ["a 3/4 b\n#### 3"]),
        ("a <<1+1=2>>two b\n#### 3", ["a two b\n#### 3"]),
        ("a <<1+1=2>>- b\n#### 3", ["a - b\n#### 3"]),
        ("a <<x+1=2>>2 b\n#### 3", ["a 2 b\n#### 3"]),
        ("no calls\n#### 3", ["no calls\n#### 3"]),
        ("a\n#### <<1+2=3>>3", ["a\n#### <<1+2=3>>3"]),
    ],
)
def test_solutions_become_actions(solution: str, actions: list[str]) -> None:
    assert actions_of(solution, 9) == actions


def test_annotations_beyond_the_last_turn_are_left_out() -> None:
    text = "<<1+1=2>>2, <<2+2=4>>4, <<4+4=8>>8\n#### 8"
    assert actions_of(text, 2) == ["<<1+1>>", ", <<2+2>>", ", 8\n#### 8"]
    assert actions_of(text, 0) == ["2, 4, 8\n#### 8"]
    row = Example("row", "?", text, {"answer": "8"})
    assert len(Gsm8kTool(max_turns=2).demonstration(row)) == 2


def test_rows_are_those_of_gsm8k(tmp_path: Path) -> None:
    rows = [
        {"question": f"{i}?", "answer": f"<<{i}+1={i + 1}>>{i + 1}\n#### {i + 1}"} for i in (1, 2)
    ]
    for file in ("train", "test"):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{file}.jsonl").write_text(text, encoding="utf-8")
    task = Gsm8kTool(path=str(tmp_path), validation_size=1)
    plain = Gsm8k(path=str(tmp_path), validation_size=1)
    for split in Split:
        assert list(task.examples(split)) == list(plain.examples(split))
    (row,) = task.examples(Split.train)
    assert task.demonstration(row) == [" <<1+1>>", "\n#### 2"]
    assert (task.is_verifiable, task.answer("#### 2"), task.judge(row, "#### 2", True)) == (
        True,
        "2",
        1.0,
    )
    assert task.tokenizer() is byte_tokenizer()
    (asked,) = replace(task, chat=True).examples(Split.train)
    assert asked.messages == (("user", row.prompt),) and not row.messages
    assert (asked.uid, asked.prompt, asked.hidden) == (row.uid, row.prompt, row.hidden)
    # What stands in front of an answer is the template's.
    assert task.demonstration(asked) == ["<<1+1>>", "\n#### 2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"call_cost": -0.1}, "task.call_cost=-0.1 is out of range"),
        ({"max_turns": 0}, "task.max_turns=0 is out of range"),
        ({"max_observation_tokens": 19}, "task.max_observation_tokens=19 is out of range"),
        ({"template": "Solve"}, r"task.template='Solve' has no \{question\}"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Gsm8kTool(**options)  # type: ignore[arg-type]


@pytest.mark.skipif(not REAL.is_dir(), reason="the real GSM8K is not beside the checkout")
def test_the_real_solutions_are_episodes_with_the_right_answer() -> None:
    task, calls, errors = Gsm8kTool(path=str(REAL)), 0, 0
    for split in Split:
        for row in task.examples(split):
            actions = task.demonstration(row)
            turns = turns_of(task, row, actions)
            assert [turn.is_done for turn in turns] == [False] * (len(actions) - 1) + [True]
            assert turns[-1].reward == 1.0
            assert all(len(turn.observation) <= MAX_DIGITS for turn in turns)
            calls += len(actions) - 1
            errors += int(sum(turn.info["errors"] for turn in turns))
    # All annotations but one, which is a fraction.
    assert (calls, errors) == (27997, 0)
