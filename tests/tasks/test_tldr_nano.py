"""The generated world: its rows, its tokenizer and its judge."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from rlhf_lab.tasks import tldr_nano
from rlhf_lab.tasks.tldr_nano import (
    CORE,
    MAX_PROMPT,
    MAX_RESPONSE,
    SLOTS,
    TldrNano,
    fluency,
    render_summary,
    score,
    split_of,
    vocabulary,
    word_tokenizer,
)
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Split
from tests.support.story import FACTS, PERFECT


def test_there_are_far_more_than_a_million_posts() -> None:
    assert math.prod(len(values) for values in SLOTS.values()) > 10**8
    rows = TldrNano().examples(Split.train)
    assert len({rows[index].prompt for index in range(3000)}) == 3000


def test_words_belong_to_one_slot_only() -> None:
    words = vocabulary()
    assert len(words) == len(set(words))


def test_rows_are_a_function_of_their_place() -> None:
    one, other = TldrNano().examples(Split.validation), TldrNano().examples(Split.validation)
    assert [other[i] for i in (5, 0, 5)] == [one[5], one[0], one[5]]
    assert TldrNano(world_seed=1).examples(Split.validation)[5] != one[5]
    with pytest.raises(IndexError):
        one[len(one)]


def test_splits_are_apart_by_their_facts() -> None:
    for split in Split:
        rows = TldrNano().examples(split)
        assert all(split_of(rows[index].hidden) is split for index in range(200))


@pytest.mark.parametrize("split", list(Split))
def test_rows_fit_their_lengths_and_have_no_unknown_word(split: Split) -> None:
    tokenizer = word_tokenizer()
    rows = TldrNano(num_distractors=9).examples(split)
    for index in range(1000):
        row = rows[index]
        prompt = tokenizer(row.prompt)["input_ids"]
        reference = tokenizer(row.reference)["input_ids"]
        assert len(prompt) <= MAX_PROMPT
        assert len(reference) + 1 <= MAX_RESPONSE
        assert tokenizer.unk_token_id not in [*prompt, *reference]


def test_every_fact_is_told_in_the_post() -> None:
    rows = TldrNano().examples(Split.train)
    for index in range(300):
        words = rows[index].prompt.split()
        assert all(value in words for value in rows[index].hidden.values())


def test_the_tokenizer_gives_text_back_and_tells_padding_from_the_end() -> None:
    tokenizer = word_tokenizer()
    assert tokenizer.decode(tokenizer(PERFECT)["input_ids"]) == PERFECT
    assert tokenizer.pad_token_id != tokenizer.eos_token_id


def test_references_drop_and_garble_at_the_rates_that_are_set() -> None:
    rows = TldrNano(drop_rate=0.4, garble_rate=0.1).examples(Split.train)
    dropped = garbled = minor = told = 0
    for index in range(3000):
        words = set(rows[index].reference.split())
        for slot, value in rows[index].hidden.items():
            found = words & set(SLOTS[slot])
            minor += slot not in CORE
            dropped += not found
            told += bool(found)
            garbled += bool(found) and value not in found
    # three standard errors of a share
    assert dropped / minor == pytest.approx(0.4, abs=3 * math.sqrt(0.24 / minor))
    assert garbled / told == pytest.approx(0.1, abs=3 * math.sqrt(0.09 / told))


def test_a_perfect_summary_by_hand() -> None:
    assert render_summary(FACTS) == PERFECT
    # 5.4 for all facts, 1.0 for fluency, 18 words at 0.03
    assert score(FACTS, PERFECT, finished=True) == pytest.approx(5.4 + 1.0 - 0.03 * 18)


@pytest.mark.parametrize(
    ("text", "loss"),
    [
        # no time: 0.4 less, one word fewer
        (PERFECT.replace(" monday", ""), 0.4 - 0.03),
        # wrong time: fact missing and another value told
        (PERFECT.replace("monday", "friday"), 0.4 + 0.4),
        # wrong object
        (PERFECT.replace("bike", "phone"), 1.0 + 1.0),
        # a value told twice: repeated, one word more, two of 20 pairs unheard of
        (PERFECT.replace("sad .", "sad sad ."), 0.3 + 0.03 + 1 / 20),
    ],
)
def test_faults_by_hand(text: str, loss: float) -> None:
    perfect = score(FACTS, PERFECT, finished=True)
    assert perfect - score(FACTS, text, finished=True) == pytest.approx(loss)


def test_a_missing_end_and_words_to_spare_cost() -> None:
    perfect = score(FACTS, PERFECT, finished=True)
    assert perfect - score(FACTS, PERFECT, finished=False) == pytest.approx(1.0)
    assert perfect - score(FACTS, f"so {PERFECT}", finished=True) == pytest.approx(0.03)


def test_fluency_is_the_share_of_pairs_that_the_grammar_knows() -> None:
    assert fluency(PERFECT.split()) == 1.0
    # <start> bike bike <end>: no pair of the three
    assert fluency(["bike", "bike"]) == 0.0
    assert fluency([]) == 0.0


def test_judging_a_row_uses_its_hidden_facts() -> None:
    task = TldrNano()
    row = task.examples(Split.test)[0]
    perfect = render_summary(row.hidden)
    assert task.judge(row, perfect, True) >= task.judge(row, row.reference, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_size": 0}, "task.train_size=0"),
        ({"garble_rate": -0.1}, "task.garble_rate=-0.1"),
        ({"num_distractors": -1}, "task.num_distractors=-1"),
        ({"max_prompt_tokens": 10}, "task.max_prompt_tokens=10"),
    ],
)
def test_bad_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TldrNano(**options)  # type: ignore[arg-type]


def test_the_generator_writes_rows_as_jsonl(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    tldr_nano.main(["--split", "test", "--num", "7", "--out", str(out)])
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    expected = TldrNano().examples(Split.test)
    assert len(rows) == 7
    assert rows[3]["prompt"] == expected[3].prompt
    assert rows[3]["hidden"] == expected[3].hidden
