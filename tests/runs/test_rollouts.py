"""Samples that runs keep: which ones, and how they are read again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rlhf_lab.runs.folder import ROLLOUTS
from rlhf_lab.runs.reading import Unreadable
from rlhf_lab.runs.rollouts import chosen, read_rollouts
from rlhf_lab.runs.schema import RolloutSample, Written
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample

KEPT = RolloutSample(
    round=3,
    updates=6,
    prompt_id=17,
    uid="train-17",
    sample=1,
    prompt="2 + 2 = ",
    response="4",
    reward=1.0,
    credit=0.5,
    is_kept=True,
    version=2,
    newest_version=2,
    lag_rounds=1,
    lag_updates=2,
    tokens=2,
    finish="eos",
    steps=[],
)


def groups_of(ids: list[int], size: int = 2) -> list[Group]:
    sample = Sample((1,), (0.0,), 0, Finish.eos, "x")
    return [
        Group(Prompt(number, (1,), Example(str(number), "", "")), (sample,) * size)
        for number in ids
    ]


def test_kept_samples_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert read_rollouts(tmp_path) == []
    line = json.dumps(KEPT.row()) + "\n"
    (tmp_path / ROLLOUTS).write_text(line + line[:20])
    assert read_rollouts(tmp_path) == [KEPT]


def test_samples_that_no_version_of_the_run_wrote_are_read(tmp_path: Path) -> None:
    """As are those of rounds with a share of fixed samples, mode=offline_share."""
    turn = Written(writer="policy", text="4", token_texts=["4"], logps=[None], version=-1)
    fixed = replace(KEPT, version=-1, newest_version=-1, turns=[turn])
    (tmp_path / ROLLOUTS).write_text(json.dumps(fixed.row()) + "\n")
    assert read_rollouts(tmp_path) == [fixed]
    (tmp_path / ROLLOUTS).write_text(json.dumps(replace(KEPT, version=-2).row()) + "\n")
    with pytest.raises(Unreadable):
        read_rollouts(tmp_path)


@pytest.mark.parametrize("change", [{"reward": None}, {"round": -1}, {"steps": [[1]]}])
def test_a_damaged_row_is_named_with_its_line(tmp_path: Path, change: dict[str, object]) -> None:
    rows = [KEPT.row(), KEPT.row() | change]
    (tmp_path / ROLLOUTS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(Unreadable, match=r"rollouts\.jsonl, line 2"):
        read_rollouts(tmp_path)


def test_the_choice_follows_from_the_prompts_not_from_their_order() -> None:
    ids = [5, 3, 9, 4]
    forward, backward = groups_of(ids), groups_of(ids[::-1])
    found = [(forward[g].prompt.id, s) for g, s in chosen(forward, 3, seed=1)]
    assert found == [(backward[g].prompt.id, s) for g, s in chosen(backward, 3, seed=1)]
    assert len({number for number, _ in found}) == 3


@pytest.mark.parametrize(("num", "expected"), [(0, 0), (1, 1), (5, 5), (6, 6), (100, 6)])
def test_prompts_come_first_and_no_sample_twice(num: int, expected: int) -> None:
    found = list(chosen(groups_of([0, 1, 2]), num, seed=1))
    assert len(found) == len(set(found)) == expected
    assert len({one for one, _ in found}) == min(num, 3)
