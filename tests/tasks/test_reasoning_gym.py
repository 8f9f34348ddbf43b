"""Rows and verifiers of reasoning-gym; skipped, and said so, where the package is not installed."""

from __future__ import annotations

import itertools
import pickle
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from rlhf_lab.experiment.rules.checks import check, require_readable_splits, warnings
from rlhf_lab.rewards.data_rewards import RuleScorer
from rlhf_lab.tasks import reasoning_gym as module
from rlhf_lab.tasks.optional_packages import MOST_ROWS
from rlhf_lab.tasks.prompts import PromptStream
from rlhf_lab.tasks.reasoning_gym import ReasoningGym, answer_of
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Finish, Group, Sample, Split
from tests.conftest import MakeConfig


@pytest.fixture
def package() -> None:
    pytest.importorskip("reasoning_gym", reason="needs pip install 'rlhf-lab[reasoning]'")


needs_package = pytest.mark.usefixtures("package")


@pytest.mark.parametrize(
    ("text", "tag", "answer"),
    [
        ("so 4\nAnswer: 12\n", "Answer:", "12"),
        ("Answer: 1\nno,\nAnswer: 2", "Answer:", "2"),
        ("Answer:\n1 2\n3 4", "Answer:", "1 2\n3 4"),
        ("the Answer: 3", "Answer:", "the Answer: 3"),
        (" 12 ", "Answer:", "12"),
        ("Answer: 12", "", "Answer: 12"),
        ("", "Answer:", ""),
    ],
)
def test_the_answer_follows_the_last_tag_that_begins_a_line(
    text: str, tag: str, answer: str
) -> None:
    assert answer_of(text, tag) == answer


@needs_package
@pytest.mark.parametrize("dataset", ["leg_counting", "chain_sum", "list_functions", "pool_matrix"])
def test_rows_are_a_function_of_their_place_and_references_are_right(dataset: str) -> None:
    task = ReasoningGym(dataset=dataset)
    rows = task.examples(Split.train)
    first = [rows[index] for index in range(6)]
    module.generator_of.cache_clear()
    again = ReasoningGym(dataset=dataset).examples(Split.train)
    assert [again[index] for index in reversed(range(6))] == first[::-1]
    assert pickle.loads(pickle.dumps(first)) == first
    for row in first:
        assert task.judge(row, row.reference, True) == 1.0
        assert task.judge(row, "no idea", True) < 1.0
    with pytest.raises(IndexError):
        rows[len(rows)]


@needs_package
def test_global_random_numbers_are_left_as_they_were() -> None:
    rows = ReasoningGym(dataset="pool_matrix").examples(Split.train)
    before = random.getstate(), repr(np.random.get_state())
    _ = rows[3]
    assert (random.getstate(), repr(np.random.get_state())) == before


@needs_package
def test_prompts_ask_for_the_tag_and_references_have_it() -> None:
    row = ReasoningGym(answer_tag="So:").examples(Split.test)[0]
    assert row.prompt.endswith("\nEnd with a line that begins with 'So:'.\n")
    assert row.reference == f"So: {row.hidden['entry']['answer']}"
    assert row.uid == "reasoning_gym/leg_counting/test/0"
    plain = ReasoningGym(answer_tag="", template="{question}").examples(Split.test)[0]
    assert plain.prompt == row.hidden["entry"]["question"].strip()
    assert plain.reference == row.hidden["entry"]["answer"]


@needs_package
def test_splits_have_ranges_of_seeds_that_never_meet() -> None:
    task = ReasoningGym()
    starts = [module.generator_of(task, split).seed for split in Split]
    for one, other in itertools.pairwise(starts):
        assert other - one >= 2 * MOST_ROWS
    assert starts[-1] + MOST_ROWS < 2**32
    prompts = [{task.examples(split)[index].prompt for index in range(200)} for split in Split]
    assert len(set().union(*prompts)) == sum(map(len, prompts))
    assert module.generator_of(ReasoningGym(world_seed=1), Split.train).seed != starts[0]


@needs_package
def test_settings_of_the_generator_come_as_json(config_of: MakeConfig) -> None:
    text = '{"min_animals": 1, "max_animals": 1}'
    quoted = text.replace('"', '\\"')
    config = config_of("task=reasoning_gym", f'task.config="{quoted}"')
    assert config.task.config == text
    check(config)
    require_readable_splits(config)
    entry = config.task.examples(Split.train)[0].hidden["entry"]
    assert len(entry["metadata"]["animals"]) == 1


@needs_package
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"dataset": "leg_countin"},
            r"task.dataset=leg_countin is not .* near names are leg_count",
        ),
        ({"dataset": "composite"}, r"task.dataset=composite is not a generator"),
        ({"config": '{"legs": 2}'}, r"leg_counting has no setting 'legs'; it has min_animals, max"),
        ({"config": '{"min_animals": 99}'}, r"leg_counting refuses it \(max_animals must be >="),
        ({"config": '{"min_animals": "x"}'}, r"leg_counting refuses it"),
    ],
)
def test_what_the_package_lacks_is_refused_before_the_first_step(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        ReasoningGym(**options).examples(Split.train)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"config": "{"}, r"task.config=\{ is not JSON"),
        ({"config": "[1]"}, r"task.config=\[1\] is not a JSON object"),
        ({"config": '{"seed": 1}'}, r"sets 'seed': set task.world_seed instead"),
        ({"config": '{"size": 1}'}, r"sets 'size': set task.train_size and its like instead"),
        ({"template": "Solve"}, r"task.template='Solve' has no \{question\}"),
        ({"validation_size": 0}, r"task.validation_size=0"),
        ({"train_size": MOST_ROWS + 1}, r"task.train_size=\d+ is out of range: choose 1 to \d+"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ReasoningGym(**options)


def test_a_missing_package_is_named_with_its_extra(
    config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlhf_lab.tasks.optional_packages.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"task=reasoning_gym needs .*'rlhf-lab\[reasoning\]'"):
        check(config_of("task=reasoning_gym"))


@dataclass(frozen=True)
class Broken:
    """A verifier that fails."""

    error: Exception

    def score_answer(self, answer: str, entry: Any) -> float:
        raise self.error


@needs_package
def test_a_verifier_that_raises_is_an_error_with_the_prompts_name_and_no_reward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = ReasoningGym()
    stream = PromptStream(task.examples(Split.train), lambda row: [1], 1, 10)
    prompt = stream[0]
    row = prompt.example
    cause = KeyError("oops")
    monkeypatch.setattr(module, "generator_of", lambda task, split: Broken(cause))
    sample = Sample((5,), (0.0,), 0, Finish.eos, "Answer: 3")
    with pytest.raises(
        RuntimeError, match=rf"^{row.uid}: the verifier .*KeyError: .* '3'$"
    ) as told:
        RuleScorer(task).score([Group(prompt, (sample,))])
    assert told.value.__cause__ is cause
    assert str(pickle.loads(pickle.dumps(told.value))) == str(told.value)


@needs_package
def test_generators_without_a_known_answer_have_an_empty_reference() -> None:
    row = ReasoningGym(dataset="graph_color").examples(Split.train)[0]
    assert row.reference == "Answer:"


def test_rows_that_follow_the_hash_seed_are_warned_about(
    config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    config = config_of("task=reasoning_gym", "task.dataset=word_ladder")
    assert any("PYTHONHASHSEED=0" in told for told in warnings(config))
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    assert warnings(config) == []
    assert warnings(config_of("task=reasoning_gym")) == []
