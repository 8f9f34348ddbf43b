"""Posts that leave facts out: their rows, their authors who answer, and demonstrations."""

from __future__ import annotations

import functools
import random

import pytest

from rlhf_lab.tasks.ask_nano import MINOR, UNSTATED, AskNano, question_tokenizer
from rlhf_lab.tasks.tldr_nano import (
    CORE,
    SENTENCES,
    SLOTS,
    TldrNano,
    render_summary,
    split_of,
    word_tokenizer,
)
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split
from tests.support.story import FACTS, PERFECT
from tests.support.turns import turns_of

POST = "r/advice post : my sister broke my bike . should i forgive ? it was monday . tl;dr :"
ROW = Example("ask_nano/train/7", POST, "", {**FACTS, UNSTATED: "place feeling"})
# Coverage 5.4 and fluency 1, less 18 words at 0.03.
PERFECT_POINTS = 5.4 + 1.0 - 0.03 * 18


def stated_values(text: str) -> dict[str, str]:
    """The values that a text mentions, by their slots."""
    return {slot: word for word in text.split() for slot, values in SLOTS.items() if word in values}


def test_it_is_a_task_of_episodes() -> None:
    task = AskNano()
    assert task.is_episodic
    assert (task.max_turns, task.max_turn_tokens, task.max_observation_tokens) == (6, 24, 10)


def test_an_episode_by_hand() -> None:
    actions = [" ask place", "ask feeling", PERFECT]
    place, feeling, summary = turns_of(AskNano(question_cost=0.25), ROW, actions)
    assert place.observation in {
        " it happened in the park .",
        " we were at the park then .",
        " all of this was near the park .",
    }
    assert feeling.observation.strip() in {s.format(**FACTS) for s in SENTENCES["feeling"]}
    for turn in (place, feeling):
        assert turn.reward == -0.25 and not turn.is_done
        assert turn.info == {"questions": 1, "useful_questions": 1}
    assert summary.is_done and summary.observation == ""
    assert summary.reward == pytest.approx(PERFECT_POINTS)
    assert summary.info == {"questions": 0, "useful_questions": 0}
    total = place.reward + feeling.reward + summary.reward
    assert total == pytest.approx(5.86 - 0.5)


def test_an_answer_is_worth_the_importance_of_its_fact_less_words_and_question() -> None:
    (silent,) = turns_of(AskNano(), ROW, ["my sister broke my bike monday . i am sad ."])
    asked = turns_of(AskNano(), ROW, ["ask ask", "my sister broke my bike monday . i am sad ."])
    assert asked[-1].reward == silent.reward
    knowing = turns_of(
        AskNano(), ROW, ["ask place", "my sister broke my bike in the park monday . i am sad ."]
    )
    # 0.6 for the place, three words at 0.03, a question at 0.1.
    gain = sum(turn.reward for turn in knowing) - silent.reward
    assert gain == pytest.approx(0.6 - 3 * 0.03 - 0.1)


def test_a_question_is_useful_once_and_only_about_a_fact_that_the_post_leaves_out() -> None:
    actions = ["ask place", "ask place", "ask time", "ask feeling", "ask ask"]
    turns = turns_of(AskNano(), ROW, actions)
    assert [turn.info["useful_questions"] for turn in turns] == [1, 0, 0, 1, 0]
    assert all(turn.info["questions"] == 1 and turn.reward == -0.1 for turn in turns)
    assert turns[0].observation == turns[1].observation
    # Progress is the importance of a fact that the post leaves out, the first time.
    rewarded = turns_of(AskNano(progress_weight=0.5), ROW, actions)
    assert [t.reward for t in rewarded] == pytest.approx([0.2, -0.1, -0.1, 0.2, -0.1])
    assert "monday" in turns[2].observation.split()


@pytest.mark.parametrize("action", ["ask who", "ask", "place ask", "ask place place", "ask it", ""])
def test_what_is_no_question_ends_the_episode(action: str) -> None:
    (turn,) = turns_of(AskNano(), ROW, [action])
    assert turn.is_done
    assert turn.reward == AskNano().judge(ROW, action, True)


def test_the_last_turn_and_an_action_without_its_end_are_taken_as_the_summary() -> None:
    last = turns_of(AskNano(max_turns=2), ROW, ["ask place", "ask feeling"])[-1]
    # Two words at 0.03, no fact, and no pair of words that a summary has.
    assert last.is_done and last.reward == pytest.approx(-0.06)
    environment = AskNano().environment()
    environment.reset(ROW, 0)
    cut = environment.step("ask place", False)
    assert cut.is_done and cut.reward == pytest.approx(-0.06 - 1.0)
    assert cut.info == {"questions": 0, "useful_questions": 0}


def test_an_episode_is_a_function_of_example_seed_and_actions() -> None:
    task, rng = AskNano(), random.Random(1)
    used = task.environment()
    for index in range(100):
        row = task.examples(Split.train)[index]
        actions = [f"ask {rng.choice(MINOR)}" for _ in range(5)] + [row.reference]
        turns = turns_of(task, row, actions, seed=index)
        used.reset(row, index)
        assert turns == [used.step(action, True) for action in actions]
        # A sentence is the same in whatever turn it is asked for.
        backwards = turns_of(task, row, actions[4::-1], seed=index)
        assert [t.observation for t in backwards] == [t.observation for t in turns[4::-1]]


def test_seeds_choose_the_sentences_of_answers() -> None:
    texts = {turns_of(AskNano(), ROW, ["ask time"], seed)[0].observation for seed in range(50)}
    assert texts == {f" {sentence.format(**FACTS)}" for sentence in SENTENCES["time"]}


def test_posts_state_their_core_and_every_fact_that_is_not_hidden() -> None:
    rows = AskNano().examples(Split.train)
    hidden = 0
    for index in range(1000):
        words, facts = rows[index].prompt.split(), rows[index].hidden
        unstated = facts[UNSTATED].split()
        assert not set(unstated) & set(CORE)
        assert [slot for slot in SLOTS if facts[slot] not in words] == unstated
        hidden += len(unstated)
    # Three standard errors of a share.
    assert hidden / 4000 == pytest.approx(0.6, abs=3 * (0.24 / 4000) ** 0.5)


def test_rows_are_a_function_of_their_place_and_have_the_facts_of_tldr_nano() -> None:
    one, other = AskNano().examples(Split.validation), AskNano().examples(Split.validation)
    assert [other[i] for i in (5, 0, 5)] == [one[5], one[0], one[5]]
    assert AskNano(world_seed=1).examples(Split.validation)[5] != one[5]
    sibling = TldrNano().examples(Split.validation)[5]
    assert {slot: one[5].hidden[slot] for slot in SLOTS} == sibling.hidden


def test_nothing_is_hidden_at_rate_0_and_every_minor_fact_at_rate_1() -> None:
    open_row = AskNano(hidden_rate=0).examples(Split.test)[3]
    closed_row = AskNano(hidden_rate=1).examples(Split.test)[3]
    assert open_row.hidden[UNSTATED] == ""
    assert closed_row.hidden[UNSTATED] == "place time feeling ask"


def test_splits_are_apart_by_their_facts() -> None:
    for split in Split:
        rows = AskNano().examples(split)
        assert all(split_of(rows[index].hidden) is split for index in range(200))


def test_a_demonstration_by_hand() -> None:
    exact = functools.partial(AskNano, drop_rate=0, garble_rate=0)
    *questions, summary = exact(ask_rate=1).demonstration(ROW)
    assert questions == [" ask place", " ask feeling"]
    assert summary.endswith(f" {PERFECT}")
    (silent,) = exact(ask_rate=0).demonstration(ROW)
    assert silent.endswith(" my sister broke my bike monday . should i forgive ?")
    hurried = exact(ask_rate=1, max_turns=2).demonstration(ROW)
    assert hurried[0] == " ask place" and len(hurried) == 2
    assert stated_values(hurried[1]) == {k: v for k, v in FACTS.items() if k != "feeling"}


def test_demonstrations_end_their_episodes_and_state_only_what_is_known() -> None:
    task = AskNano(garble_rate=0)
    rows = task.examples(Split.train)
    asked = unstated = 0
    for index in range(1000):
        row = rows[index]
        *questions, summary = task.demonstration(row)
        assert task.demonstration(row) == [*questions, summary]
        turns = turns_of(task, row, [*questions, summary], seed=index)
        assert [turn.is_done for turn in turns] == [False] * len(questions) + [True]
        assert all(turn.info["useful_questions"] == 1 for turn in turns[:-1])
        known = " ".join([row.prompt, *(turn.observation for turn in turns)]).split()
        stated = stated_values(summary)
        assert set(stated) >= set(CORE)
        assert all(row.hidden[slot] == value in known for slot, value in stated.items())
        asked += len(questions)
        unstated += len(row.hidden[UNSTATED].split())
    # Three standard errors of a share.
    assert asked / unstated == pytest.approx(0.3, abs=3 * (0.21 / unstated) ** 0.5)


def test_demonstrations_drop_and_garble_facts_as_references_do() -> None:
    task = AskNano(ask_rate=1, drop_rate=1, garble_rate=1)
    row = task.examples(Split.train)[0]
    stated = stated_values(task.demonstration(row)[-1])
    assert set(stated) == set(CORE)
    assert all(stated[slot] != row.hidden[slot] for slot in CORE)


@pytest.mark.parametrize("split", list(Split))
def test_all_texts_fit_their_limits_and_have_no_unknown_word(split: Split) -> None:
    task = AskNano(num_distractors=9, hidden_rate=0.5, ask_rate=1, drop_rate=0)
    tokenizer = question_tokenizer()

    def length(text: str) -> int:
        tokens = tokenizer(text)["input_ids"]
        assert tokenizer.unk_token_id not in tokens
        return len(tokens)

    rows = task.examples(split)
    for index in range(300):
        row, actions = rows[index], task.demonstration(rows[index])
        turns = turns_of(task, row, actions, seed=index)
        assert length(row.prompt) <= task.max_prompt_tokens
        assert length(row.reference) + 1 <= task.max_turn_tokens
        assert all(length(action) + 1 <= task.max_turn_tokens for action in actions)
        assert sum(length(action) + 1 for action in actions) <= task.max_response_tokens
        assert all(length(turn.observation) <= task.max_observation_tokens for turn in turns)


def test_the_tokenizer_has_the_numbers_of_tldr_nano_and_four_words_more() -> None:
    before, now = word_tokenizer().get_vocab(), question_tokenizer().get_vocab()
    assert {word: now[word] for word in before} == before
    assert sorted(set(now) - set(before)) == ["ask", "feeling", "place", "time"]
    assert sorted(now.values()) == list(range(len(now)))
    text = f"ask ask ask place {PERFECT}"
    assert question_tokenizer().decode(question_tokenizer()(text)["input_ids"]) == text


def test_judging_a_row_uses_its_hidden_facts() -> None:
    assert AskNano().judge(ROW, PERFECT, True) == pytest.approx(PERFECT_POINTS)
    row = AskNano().examples(Split.test)[0]
    perfect = render_summary({slot: row.hidden[slot] for slot in SLOTS})
    assert AskNano().judge(row, perfect, True) >= AskNano().judge(row, row.reference, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_rate": 1.1}, "task.hidden_rate=1.1 is out of range: choose 0 to 1"),
        ({"ask_rate": -0.1}, "task.ask_rate=-0.1 is out of range"),
        ({"question_cost": -1}, "task.question_cost=-1 is out of range"),
        ({"max_turns": 0}, "task.max_turns=0 is out of range"),
        ({"max_prompt_tokens": 63}, "task.max_prompt_tokens=63 is out of range: choose 64 to"),
        (
            {"max_turn_tokens": 23},
            r"task.max_turn_tokens=23 .* choose 24 to .*summaries have up to as many",
        ),
        (
            {"max_observation_tokens": 7},
            r"task.max_observation_tokens=7 .* choose 8 to .*answers have up to as many",
        ),
        (
            {"max_response_tokens": 35},
            "task.max_response_tokens=35: with task.max_turns=6 demonstrations have up to 36 "
            "tokens; choose that or more",
        ),
    ],
)
def test_bad_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        AskNano(**options)  # type: ignore[arg-type]


def test_fewer_questions_need_fewer_tokens() -> None:
    AskNano(max_response_tokens=36)
    AskNano(max_turns=2, max_response_tokens=27)
    AskNano(ask_rate=0, max_response_tokens=24)
    task = AskNano(max_turns=1, max_response_tokens=24, ask_rate=1)
    assert len(task.demonstration(ROW)) == 1
    assert turns_of(task, ROW, ["ask place"])[0].is_done
