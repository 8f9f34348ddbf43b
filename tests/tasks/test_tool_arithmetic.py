"""Prompts of arithmetic with a calculator: calls, their results, answers and demonstrations."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from rlhf_lab.tasks.arithmetic import OPERATIONS, Arithmetic, character_tokenizer, split_of
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.tasks.tool_arithmetic import ToolArithmetic, calculate, calls_of, tool_tokenizer
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split
from tests.support.turns import turns_of

ROW = Example("tool_arithmetic/train/7", "12+7*3=", "34", {"answer": "33"})
TASKS = [
    ToolArithmetic(),
    ToolArithmetic(operations=OPERATIONS, tool_rate=1),
    ToolArithmetic(digits=1, terms=2, operations="-", tool_rate=1),
    ToolArithmetic(digits=3, operations=OPERATIONS, max_turn_tokens=13, max_response_tokens=60),
    ToolArithmetic(
        digits=1, terms=5, operations="+-", max_turns=5, max_turn_tokens=8, max_response_tokens=40
    ),
]


def test_it_is_a_task_of_episodes() -> None:
    task = ToolArithmetic()
    assert task.is_episodic
    assert (task.max_turns, task.max_turn_tokens, task.max_observation_tokens) == (4, 12, 12)


def test_an_episode_by_hand() -> None:
    turns = turns_of(ToolArithmetic(call_cost=0.25), ROW, ["7*3=", "12+21=", "33"])
    called = {"calls": 1, "errors": 0}
    assert turns == [
        Turn("21;", -0.25, False, called),
        Turn("33;", -0.25, False, called),
        Turn("", 1.0, True, {"calls": 0, "errors": 0}),
    ]
    assert sum(turn.reward for turn in turns) == 0.5


@pytest.mark.parametrize("action", ["", "34", "033", "+33", "33 ", "7*3", "!"])
def test_any_other_answer_gets_nothing(action: str) -> None:
    (turn,) = turns_of(ToolArithmetic(), ROW, [action])
    assert turn.is_done and turn.reward == 0.0


@pytest.mark.parametrize(
    "call",
    ["=", "33=", "12+7*3=", "7*=", "*3=", "7**3=", "7+-=", "+7*3=", "7*3==", "7 *3=", "7/3="],
)
def test_a_call_that_cannot_be_read_is_an_error_and_costs_as_much(call: str) -> None:
    turns = turns_of(ToolArithmetic(), ROW, [call, "33"])
    assert turns[0] == Turn("!;", -0.02, False, {"calls": 1, "errors": 1})
    assert turns[1].reward == 1.0 and turns[1].is_done


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("7*3=", "21"),
        ("3-12=", "-9"),
        ("-9+2=", "-7"),
        ("-9*-2=", "18"),
        ("4--2=", "6"),
        ("007+1=", "8"),
        ("99*99=", "9801"),
        ("0*-5=", "0"),
    ],
)
def test_results_by_hand(call: str, result: str) -> None:
    assert calculate(call, width=4) == result


@pytest.mark.parametrize(
    ("call", "is_shown"),
    [
        ("999+0=", True),
        ("999+1=", False),
        ("0-99=", True),
        ("0-100=", False),
        ("0000*1=", False),
        (f"{'9' * 10**4}*1=", False),
    ],
)
def test_the_display_shows_no_more_characters_than_it_has(call: str, is_shown: bool) -> None:
    assert (calculate(call, width=3) != "!") == is_shown


def test_the_longest_display_holds_products_that_python_can_write() -> None:
    assert calculate(f"{'9' * 1000}*{'9' * 1000}=", width=1000) == "!"


def test_the_last_turn_and_an_action_without_its_end_are_taken_as_the_answer() -> None:
    turns = turns_of(ToolArithmetic(), ROW, ["1+1="] * 4)
    assert [turn.is_done for turn in turns] == [False, False, False, True]
    assert turns[3] == Turn("", 0.0, True, {"calls": 0, "errors": 0})
    assert turns_of(ToolArithmetic(), ROW, ["1+1="] * 3 + ["33"])[3].reward == 1.0
    for action in ("33", "7*3="):
        environment = ToolArithmetic().environment()
        environment.reset(ROW, 0)
        assert environment.step(action, False) == Turn("", 0.0, True, {"calls": 0, "errors": 0})


def test_an_episode_is_a_function_of_example_and_actions() -> None:
    task, rng = ToolArithmetic(), random.Random(1)
    used = task.environment()
    for index in range(100):
        row = task.examples(Split.train)[index]
        calls = ["".join(rng.choices("0123456789+-*", k=5)) + "=" for _ in range(3)]
        actions = [*calls, row.reference]
        used.reset(row, index)
        assert turns_of(task, row, actions) == [used.step(action, True) for action in actions]


@pytest.mark.parametrize(
    ("prompt", "calls"),
    [
        ("12+7*3=", ["7*3=", "12+21="]),
        ("12*7+3=", ["12*7=", "84+3="]),
        ("2*3*4=", ["2*3=", "6*4="]),
        ("2-3*4+5=", ["3*4=", "2-12=", "-10+5="]),
        ("2*3-4*5=", ["2*3=", "4*5=", "6-20="]),
        ("1+2-4=", ["1+2=", "3-4="]),
    ],
)
def test_prompts_are_calculated_products_first(prompt: str, calls: list[str]) -> None:
    assert calls_of(prompt) == calls


def test_a_demonstration_by_hand() -> None:
    assert ToolArithmetic(tool_rate=1).demonstration(ROW) == ["7*3=", "12+21=", "33"]
    assert ToolArithmetic(tool_rate=0).demonstration(ROW) == ["34"]


@pytest.mark.parametrize("task", TASKS)
def test_demonstrations_end_their_episodes_and_calculate_what_they_answer(
    task: ToolArithmetic,
) -> None:
    rows = task.examples(Split.train)
    for index in range(300):
        row, actions = rows[index], task.demonstration(rows[index])
        assert task.demonstration(row) == actions
        turns = turns_of(task, row, actions)
        assert [turn.is_done for turn in turns] == [False] * (len(actions) - 1) + [True]
        assert all(turn.info["errors"] == 0 for turn in turns)
        if len(actions) > 1:
            assert len(actions) == task.terms
            assert turns[-2].observation == f"{actions[-1]};"
            assert turns[-1].reward == 1.0
        else:
            assert actions == [row.reference]


def test_demonstrations_use_the_calculator_and_are_right_at_the_rates_that_are_set() -> None:
    task = ToolArithmetic(tool_rate=0.4, reference_accuracy=0.6)
    rows = task.examples(Split.train)
    demonstrations = [task.demonstration(rows[index]) for index in range(2000)]
    straight = [index for index, actions in enumerate(demonstrations) if len(actions) == 1]
    right = sum(rows[i].hidden["answer"] == demonstrations[i][0] for i in straight)
    # Three standard errors of a share.
    assert len(straight) / 2000 == pytest.approx(0.6, abs=3 * (0.24 / 2000) ** 0.5)
    assert right / len(straight) == pytest.approx(0.6, abs=3 * (0.24 / len(straight)) ** 0.5)


@pytest.mark.parametrize("task", TASKS)
def test_all_texts_fit_their_limits_and_can_be_read(task: ToolArithmetic) -> None:
    tokenizer = tool_tokenizer()

    def length(text: str) -> int:
        # The tokenizer itself refuses other characters.
        return len(tokenizer(text)["input_ids"])

    rows = task.examples(Split.train)
    for index in range(300):
        row, actions = rows[index], task.demonstration(rows[index])
        assert length(row.prompt) <= task.max_prompt_tokens
        assert length(row.reference) + 1 <= task.max_turn_tokens
        assert all(length(action) + 1 <= task.max_turn_tokens for action in actions)
        assert sum(length(action) + 1 for action in actions) <= task.max_response_tokens
        for turn in turns_of(task, row, actions):
            assert length(turn.observation) <= task.max_observation_tokens


def test_rows_are_those_of_arithmetic_and_splits_share_no_prompt() -> None:
    sibling = Arithmetic(digits=2, terms=3, operations="+*", max_response_tokens=9)
    found = {split: ToolArithmetic().examples(split) for split in Split}
    for split, rows in found.items():
        assert all(split_of(rows[index].prompt) is split for index in range(300))
        row = rows[5]
        assert row.uid == f"tool_arithmetic/{split.value}/5"
        assert replace(row, uid="") == replace(sibling.examples(split)[5], uid="")
    prompts = [{rows[index].prompt for index in range(300)} for rows in found.values()]
    assert sum(map(len, prompts)) == len(set().union(*prompts))


def test_the_tokenizer_has_the_numbers_of_arithmetic_and_one_character_more() -> None:
    before, now = character_tokenizer().get_vocab(), tool_tokenizer().get_vocab()
    assert now == before | {"!": len(before), ";": len(before) + 1}
    ids = tool_tokenizer()("12-7*3=!")["input_ids"]
    ended = [*ids, tool_tokenizer().eos_token_id]
    assert tool_tokenizer().decode(ended, skip_special_tokens=True) == "12-7*3=!"
    for tokenizer, text in ((character_tokenizer(), "!"), (tool_tokenizer(), "?")):
        with pytest.raises(Exception, match="UNK"):
            tokenizer(text)


def test_the_rule_is_that_of_arithmetic() -> None:
    task = ToolArithmetic()
    assert task.is_verifiable
    assert task.judge(ROW, "33", True) == 1.0
    assert task.judge(ROW, "33", False) == task.judge(ROW, "34", True) == 0.0
    assert task.answer("33") == "33" and task.answer("") is None
    assert task.is_same_answer("33", "33") and not task.is_same_answer("33", "033")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operations": "+/"}, r"task.operations='\+/': choose some of \+-\*"),
        ({"tool_rate": 1.1}, "task.tool_rate=1.1 is out of range: choose 0 to 1"),
        ({"call_cost": -0.1}, "task.call_cost=-0.1 is out of range"),
        ({"terms": 31}, "task.terms=31 is out of range: choose 2 to 30"),
        ({"max_turns": 0}, "task.max_turns=0 is out of range"),
        (
            {"max_turns": 2},
            "task.max_turns=2: demonstrations with task.terms=3 take up to 3 turns; choose that "
            "or more, or task.tool_rate=0",
        ),
        (
            {"max_turn_tokens": 9},
            "task.max_turn_tokens=9: with task.digits=2 and task.terms=3 demonstrations need up "
            "to 10; choose that or more",
        ),
        ({"max_turn_tokens": 8, "tool_rate": 0}, "task.max_turn_tokens=8: .* need up to 9;"),
        ({"max_observation_tokens": 7}, "task.max_observation_tokens=7: .* need up to 8;"),
        ({"max_observation_tokens": 1001}, "task.max_observation_tokens=1001 is out of range"),
        ({"max_response_tokens": 28}, "task.max_response_tokens=28: .* need up to 29;"),
        ({"max_response_tokens": 8}, "task.max_response_tokens=8: .* up to 9 tokens"),
        ({"max_prompt_tokens": 8}, "task.max_prompt_tokens=8: .* up to 9 tokens"),
    ],
)
def test_bad_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ToolArithmetic(**options)  # type: ignore[arg-type]


def test_without_calls_in_demonstrations_one_turn_is_enough() -> None:
    task = ToolArithmetic(
        tool_rate=0, max_turns=1, max_turn_tokens=9, max_observation_tokens=1, max_response_tokens=9
    )
    assert turns_of(task, ROW, ["33"])[0].reward == 1.0
    assert turns_of(task, ROW, ["7*3="])[0] == Turn("", 0.0, True, {"calls": 0, "errors": 0})
