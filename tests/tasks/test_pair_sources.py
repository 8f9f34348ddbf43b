"""Preference sets in the columns that they are published in, from JSONL and from Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.pair_sources import given_pairs
from rlhf_lab.tasks.pairs import PairColumns, with_tokens
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.training.stages.options import RewardModelOptions
from rlhf_lab.training.stages.scored_rows import cut_pair
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Split
from tests.conftest import MakeConfig

# The column names of vwxyzjn/summarize_from_feedback_oai_preprocessing_1706381144.
NPLUS = PairColumns(prompt="query", held_out="validation")


def published(count: int) -> list[dict[str, Any]]:
    """Rows as N+ published them: answers with the end token, tokens under other names, facts."""
    examples = TldrNano().examples(Split.train)
    return [
        {
            "info": {"id": f"t3_{number}", "subreddit": "tifu"},
            "query": examples[number].prompt,
            "query_token": [50277, 5],
            "chosen": f" {examples[number].reference.strip()}<|endoftext|>",
            "chosen_token": [1, 0],
            "rejected": " i<|endoftext|>",
            "rejected_token": [2, 0],
            "policies": "ref--sup2",
            "choice": 1,
        }
        for number in range(count)
    ]


def write(folder: Path, suffix: str, parts: dict[str, list[dict[str, Any]]]) -> Path:
    folder.mkdir()
    for name, rows in parts.items():
        path = folder / f"{name}{suffix}"
        if suffix == ".parquet":
            arrow = pytest.importorskip("pyarrow")
            pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(rows), path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_published_set_is_read_by_its_columns(suffix: str, tmp_path: Path) -> None:
    rows = published(6)
    folder = write(tmp_path / "set", suffix, {"train": rows[:4], "validation": rows[4:]})
    pairs = given_pairs(str(folder), 0, "labels.path", NPLUS)
    assert (len(pairs.train), len(pairs.held_out)) == (4, 2)
    first = pairs.train[0]
    assert first["prompt"] == rows[0]["query"]
    assert (first["chosen"] + "<|endoftext|>", first["rejected"]) == (rows[0]["chosen"], " i")
    tokenizer = TldrNano().tokenizer()
    tokens = with_tokens(first, tokenizer)["rejected_tokens"]
    assert tokens.count(tokenizer.eos_token_id) == 1 and tokens[-1] == tokenizer.eos_token_id


def test_a_column_that_is_missing_is_named_with_the_option(tmp_path: Path) -> None:
    folder = write(tmp_path / "set", ".jsonl", {"train": published(3), "held_out": published(3)})
    with pytest.raises(UserError, match=r"no field 'prompt'.*labels\.prompt_column"):
        given_pairs(str(folder), 0, "labels.path")


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_published_set_trains_a_reward_model(
    suffix: str, make_config: MakeConfig, tmp_path: Path
) -> None:
    rows = published(40)
    folder = write(tmp_path / "set", suffix, {"train": rows[:32], "validation": rows[32:]})
    config = make_config(
        *(f"labels.path={folder}", "labels.prompt_column=query", "sft.steps=3"),
        *("labels.held_out_split=validation", "reward_model.batch=16"),
        "reward_model.max_response_tokens=6",
    )
    assert Artifacts(config, Console(quiet=True)).reward_model().metrics["held_out_pairs"] == 8


def test_answers_are_cut_at_the_lengths_and_keep_their_end() -> None:
    row = {"prompt": "p", "prompt_tokens": [5] * 4, "chosen_tokens": [6, 7, 8, 9, 0]}
    row |= {"rejected_tokens": [6, 7, 8]}
    response = cut_pair(row, (0,), RewardModelOptions(max_response_tokens=3))
    assert (response["chosen_tokens"], response["rejected_tokens"]) == ([6, 7, 0], [6, 7, 8])
    both = cut_pair(row, (0,), RewardModelOptions(max_tokens=6))
    # The rejected answer was not finished, and is not made so.
    assert (both["chosen_tokens"], both["rejected_tokens"]) == ([6, 0], [6, 7])
    assert cut_pair(row, (0,), RewardModelOptions()) == row
    with pytest.raises(UserError, match=r"reward_model\.max_tokens=5: the prompt 'p' has 4 tokens"):
        cut_pair(row, (0,), RewardModelOptions(max_tokens=5))
