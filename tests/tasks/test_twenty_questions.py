"""Which item is it: prompts with a long tail of items, replies, and a player who is not perfect."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from rlhf_lab.tasks.arithmetic import character_tokenizer, split_of
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.tasks.twenty_questions import Player, TwentyQuestions, num_items, question_tokenizer
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split
from tests.support.turns import turns_of

ROW = Example("twenty_questions/train/7", "kqaf:", "q", {"item": "a"})
NOTHING = {"questions": 0, "useful_questions": 0}
TASKS = [
    TwentyQuestions(),
    TwentyQuestions(max_items=2, repeat_rate=0.5, guess_rate=0),
    TwentyQuestions(max_items=26, tail=0.2, max_prompt_tokens=27),
    TwentyQuestions(max_turns=3, tail=0.5, guess_rate=0.3),
]


def asked(reply: str, useful: int, cost: float = 0.02) -> Turn:
    return Turn(reply, -cost, info={"questions": 1, "useful_questions": useful})


def answered(reward: float) -> Turn:
    return Turn(reward=reward, is_done=True, info=NOTHING)


def test_it_is_a_task_of_episodes() -> None:
    task = TwentyQuestions()
    assert task.is_episodic
    assert (task.max_turns, task.max_turn_tokens, task.max_observation_tokens) == (20, 3, 1)


def test_an_episode_by_hand() -> None:
    task = TwentyQuestions(question_cost=0.25)
    turns = turns_of(task, ROW, ["k?", "q?", "k?", "a?", "a"])
    assert turns == [
        asked("-", 1, 0.25),
        asked("-", 1, 0.25),
        asked("-", 0, 0.25),
        asked("+", 1, 0.25),
        answered(1.0),
    ]
    assert sum(turn.reward for turn in turns) == 0.0


def test_progress_is_what_a_reply_adds_to_the_chance_of_a_right_answer() -> None:
    """One of four, of three, the same again, and certain; in all, 1 less a quarter."""
    task = TwentyQuestions(question_cost=0.25, progress_weight=2)
    turns = turns_of(task, ROW, ["k?", "k?", "a?", "a"])
    chances = [1 / 4, 1 / 3, 1 / 3, 1]
    steps = [2 * (after - before) - 0.25 for before, after in pairwise(chances)]
    assert [turn.reward for turn in turns] == pytest.approx([*steps, 1])
    assert sum(turn.reward for turn in turns) == pytest.approx(1 + 2 * (1 - 1 / 4) - 3 * 0.25)


@pytest.mark.parametrize("action", ["", "k", "aa", "+", "a:", "?a"])
def test_any_other_answer_gets_nothing(action: str) -> None:
    assert turns_of(TwentyQuestions(), ROW, [action]) == [answered(0.0)]


@pytest.mark.parametrize("question", ["?", "z?", "aa?", "a??", "ka?"])
def test_a_question_for_no_item_of_the_prompt_costs_as_much_and_helps_nobody(question: str) -> None:
    assert turns_of(TwentyQuestions(), ROW, [question, "a"]) == [asked("-", 0), answered(1.0)]


def test_the_last_turn_and_an_action_without_its_end_are_taken_as_the_answer() -> None:
    task = TwentyQuestions(max_turns=2)
    assert turns_of(task, ROW, ["k?", "a?"]) == [asked("-", 1), answered(0.0)]
    assert turns_of(task, ROW, ["k?", "a"])[1] == answered(1.0)
    for action in ("a", "a?"):
        environment = TwentyQuestions().environment()
        environment.reset(ROW, 0)
        assert environment.step(action, False) == answered(0.0)


def test_an_environment_begins_anew() -> None:
    environment = TwentyQuestions(max_turns=3).environment()
    for _ in range(2):
        environment.reset(ROW, 0)
        assert environment.step("a?", True) == asked("+", 1)
        assert environment.step("a?", True) == asked("+", 0)
        assert environment.step("a", True) == answered(1.0)


def test_the_player_asks_in_order_and_knows_the_last_item_without_asking() -> None:
    player = Player(repeat_rate=0, guess_rate=0, max_turns=20)
    played = [player.actions("kqaf:", item, random.Random(0)) for item in "kqaf"]
    assert played == [
        ["k?", "k"],
        ["k?", "q?", "q"],
        ["k?", "q?", "a?", "a"],
        ["k?", "q?", "a?", "f"],
    ]
    short = Player(repeat_rate=0, guess_rate=0, max_turns=2)
    assert {tuple(short.actions("kqaf:", "f", random.Random(seed))) for seed in range(40)} == {
        ("k?", "q"),
        ("k?", "a"),
        ("k?", "f"),
    }


def test_the_player_repeats_questions_and_guesses_at_the_rates_that_are_set() -> None:
    rng, items = random.Random(3), "abcdefghijklmnopqrst:"
    guesser = Player(repeat_rate=0, guess_rate=0.25, max_turns=20)
    at_once = sum(len(guesser.actions(items, "t", rng)) == 1 for _ in range(2000))
    repeater = Player(repeat_rate=0.4, guess_rate=0, max_turns=3)
    twice = sum(repeater.actions(items, "t", rng)[:2] == ["a?", "a?"] for _ in range(2000))
    # Three standard errors of a share.
    assert at_once / 2000 == pytest.approx(0.25, abs=3 * (0.1875 / 2000) ** 0.5)
    assert twice / 2000 == pytest.approx(0.4, abs=3 * (0.24 / 2000) ** 0.5)


@pytest.mark.parametrize("tail", [0.5, 1.0, 3.0])
def test_the_number_of_items_is_that_of_pareto_cut_at_the_most(tail: float) -> None:
    numbers = [num_items((step + 0.5) / 10**4, tail, 20) for step in range(10**4)]
    assert min(numbers) == 2 and numbers == sorted(numbers)

    def share(least: int) -> float:
        """Of prompts with so many items or more, by the definition of Pareto's distribution."""
        end: float = (2 / 21) ** tail
        begun: float = (2 / least) ** tail
        return (begun - end) / (1 - end)

    for least in (3, 5, 10, 20):
        found = sum(number >= least for number in numbers) / 10**4
        assert found == pytest.approx(share(least), abs=2e-4)
    assert num_items(1 - 2**-53, tail, 20) == 20


@pytest.mark.parametrize("task", TASKS)
def test_rows_and_demonstrations_fit_their_limits_and_can_be_read(task: TwentyQuestions) -> None:
    tokenizer = question_tokenizer()

    def length(text: str) -> int:
        # The tokenizer itself refuses other characters.
        return len(tokenizer(text)["input_ids"])

    rows = task.examples(Split.train)
    for index in range(300):
        row, actions = rows[index], task.demonstration(rows[index])
        assert row == rows[index] and task.demonstration(row) == actions
        items = row.prompt.removesuffix(":")
        assert 2 <= len(items) == len(set(items)) <= task.max_items and row.hidden["item"] in items
        assert actions[-1] == row.reference and row.reference in items
        turns = turns_of(task, row, actions)
        assert [turn.is_done for turn in turns] == [False] * (len(actions) - 1) + [True]
        assert turns[-1].reward == task.judge(row, row.reference, True)
        assert length(row.prompt) <= task.max_prompt_tokens
        assert all(length(action) + 1 <= task.max_turn_tokens for action in actions)
        assert sum(length(action) + 1 for action in actions) <= task.max_response_tokens
        assert all(length(turn.observation) <= task.max_observation_tokens for turn in turns)


def test_some_episodes_have_two_turns_and_some_many() -> None:
    task = TwentyQuestions(repeat_rate=0, guess_rate=0)
    rows = task.examples(Split.train)
    turns = sorted(len(task.demonstration(rows[index])) for index in range(1000))
    assert turns[0] == 2 and turns[500] <= 3 and turns[900] >= 5
    assert turns[990] >= 12 and turns[-1] >= 19


def test_the_player_leaves_something_to_learn() -> None:
    task = TwentyQuestions()
    rows = [task.examples(Split.train)[index] for index in range(1000)]
    found = sum(task.judge(row, row.reference, True) for row in rows) / 1000
    useless = sum(
        turn.info["questions"] - turn.info["useful_questions"]
        for row in rows
        for turn in turns_of(task, row, task.demonstration(row))
    )
    assert 0.75 < found < 0.9 and useless > 200


def test_splits_share_no_prompt() -> None:
    rows = {split: TwentyQuestions(max_items=3).examples(split) for split in Split}
    for split, found in rows.items():
        assert all(split_of(found[index].prompt) is split for index in range(300))


def test_the_tokenizer_has_a_token_for_each_character() -> None:
    tokenizer = question_tokenizer()
    assert len(tokenizer) == 32 and len(character_tokenizer()) == 16
    ids = tokenizer("kqz:?+-")["input_ids"]
    assert len(set(ids)) == 7
    ended = [*ids, tokenizer.eos_token_id]
    assert tokenizer.decode(ended, skip_special_tokens=True) == "kqz:?+-"
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1)
    with pytest.raises(Exception, match="UNK"):
        tokenizer("1")


def test_the_rule() -> None:
    task = TwentyQuestions()
    assert task.is_verifiable
    assert task.judge(ROW, "a", True) == 1.0
    assert task.judge(ROW, "a", False) == task.judge(ROW, "a?", True) == 0.0
    assert task.answer("a") == "a" and task.answer("") is None
    assert task.is_same_answer("a", "a") and not task.is_same_answer("a", "k")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_items": 1}, "task.max_items=1 is out of range: choose 2 to 26"),
        ({"max_items": 27}, "task.max_items=27 is out of range: choose 2 to 26"),
        ({"tail": 0}, "task.tail=0 is out of range"),
        ({"repeat_rate": 1.1}, "task.repeat_rate=1.1 is out of range: choose 0 to 1"),
        ({"guess_rate": -0.1}, "task.guess_rate=-0.1 is out of range: choose 0 to 1"),
        ({"question_cost": -1}, "task.question_cost=-1 is out of range"),
        ({"max_turns": 0}, "task.max_turns=0 is out of range"),
        ({"max_turn_tokens": 2}, "task.max_turn_tokens=2 is out of range.*questions have as many"),
        (
            {"max_prompt_tokens": 20},
            "task.max_prompt_tokens=20: with task.max_items=20 there are up to 21 tokens; choose "
            "that or more",
        ),
        (
            {"max_response_tokens": 58},
            "task.max_response_tokens=58: with task.max_turns=20 there are up to 59 tokens; choose",
        ),
    ],
)
def test_bad_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TwentyQuestions(**options)  # type: ignore[arg-type]
