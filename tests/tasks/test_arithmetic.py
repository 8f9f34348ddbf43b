"""The smallest task: prompts, splits, near misses, the exact rule, and a run of seconds."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.arithmetic import (
    OPERATIONS,
    Arithmetic,
    character_tokenizer,
    near_miss,
    split_of,
    value,
)
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Split
from tests.conftest import MakeConfig
from tests.support.examples import FACTS


@pytest.mark.parametrize(
    ("numbers", "operations", "expected"),
    [
        ([12, 7], "+", 19),
        ([3, 11], "-", -8),
        ([12, 7], "*", 84),
        ([2, 3, 4], "+*", 14),
        ([2, 3, 4], "-*", -10),
        ([2, 3, 4, 5], "*-+", 7),
    ],
)
def test_products_come_first(numbers: list[int], operations: str, expected: int) -> None:
    assert value(numbers, operations) == expected


def test_rows_are_a_function_of_their_place() -> None:
    one, other = (Arithmetic(digits=2).examples(Split.validation) for _ in range(2))
    assert [other[i] for i in (5, 0, 5)] == [one[5], one[0], one[5]]
    assert Arithmetic(digits=2, world_seed=1).examples(Split.validation)[5] != one[5]
    with pytest.raises(IndexError):
        one[len(one)]


@pytest.mark.parametrize("terms", [2, 3])
def test_splits_share_no_prompt(terms: int) -> None:
    task = Arithmetic(operations=OPERATIONS, terms=terms)
    prompts = {
        split: {task.examples(split)[index].prompt for index in range(500)} for split in Split
    }
    for split, texts in prompts.items():
        assert texts and all(split_of(text) is split for text in texts)
    assert sum(map(len, prompts.values())) == len(set().union(*prompts.values()))


@pytest.mark.parametrize(
    "task",
    [
        Arithmetic(),
        Arithmetic(digits=2, operations=OPERATIONS),
        Arithmetic(digits=3, terms=3, operations=OPERATIONS, max_response_tokens=12),
    ],
)
def test_rows_fit_their_lengths_and_have_the_answer_of_their_prompt(task: Arithmetic) -> None:
    tokenizer = character_tokenizer()
    rows = task.examples(Split.train)
    for index in range(1000):
        row = rows[index]
        assert row.hidden["answer"] == str(eval(row.prompt.removesuffix("="), {}))
        assert len(tokenizer(row.prompt)["input_ids"]) <= task.max_prompt_tokens
        assert len(tokenizer(row.reference)["input_ids"]) + 1 <= task.max_response_tokens


def test_the_tokenizer_gives_text_back_and_knows_no_other_character() -> None:
    tokenizer = character_tokenizer()
    text = f"0123456789{OPERATIONS}="
    ids = tokenizer(text)["input_ids"]
    assert len(ids) == len(text)
    ended = [*ids, tokenizer.eos_token_id]
    assert tokenizer.decode(ended, skip_special_tokens=True) == text
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    with pytest.raises(Exception, match="UNK"):
        tokenizer("1 + 1")


def test_references_are_right_at_the_rate_that_is_set_and_nearly_right_otherwise() -> None:
    rows = Arithmetic(digits=2, operations=OPERATIONS, reference_accuracy=0.6).examples(Split.train)
    right = 0
    for index in range(3000):
        given, answer = int(rows[index].reference), int(rows[index].hidden["answer"])
        right += given == answer
        assert abs(given - answer) in {0, 1, 10, 100, 1000}
    # three standard errors of a share
    assert right / 3000 == pytest.approx(0.6, abs=3 * math.sqrt(0.24 / 3000))


def test_a_near_miss_is_always_wrong() -> None:
    rng = random.Random(1)
    for answer in (0, 7, -8, 9999):
        misses = {near_miss(answer, rng) - answer for _ in range(200)}
        assert misses == {s * 10**p for s in (-1, 1) for p in range(len(str(abs(answer))))}


def test_only_the_exact_and_ended_answer_counts() -> None:
    task = Arithmetic()
    row = task.examples(Split.test)[0]
    answer = row.hidden["answer"]
    assert task.judge(row, answer, True) == 1.0
    assert task.judge(row, answer, False) == 0.0
    for text in (f"0{answer}", f"{answer}0", f"+{answer}", "", "="):
        assert task.judge(row, text, True) == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operations": ""}, r"task.operations='': choose some of \+-\*"),
        ({"operations": "+/"}, r"task.operations='\+/'"),
        ({"operations": "++"}, r"each once"),
        ({"terms": 1}, "task.terms=1 is out of range: choose 2 "),
        ({"digits": 0}, "task.digits=0"),
        ({"test_size": 0}, "task.test_size=0"),
        ({"reference_accuracy": 1.5}, "task.reference_accuracy=1.5"),
        (
            {"digits": 3, "operations": "*"},
            r"task.max_response_tokens=8: with task.digits=3 .* up to 9 tokens",
        ),
        ({"terms": 9, "digits": 2}, r"task.max_prompt_tokens=16: .* up to 27 tokens"),
    ],
)
def test_bad_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Arithmetic(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_tiny_run_trains_on_the_rule_and_is_evaluated(
    make_config: MakeConfig, tmp_path: Path, mode: str
) -> None:
    folder = tmp_path / mode
    config = make_config("task=arithmetic", "algo=rloo", f"mode={mode}", f"output.dir={folder}")
    check(config)
    lifecycle.train(config, Console(quiet=True), FACTS)
    rounds = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rounds
    last = json.loads((folder / "evals.jsonl").read_text().splitlines()[-1])
    assert 0 <= last["gold/mean"] <= 1 and last["proxy/mean"] == last["gold/mean"]
    rows = config.task.examples(Split.validation)
    exact = sum(rows[i].reference == rows[i].hidden["answer"] for i in range(16)) / 16
    assert last["gold/reference_mean"] == exact
