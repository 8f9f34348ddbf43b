"""What training changed, by split and seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis import before_after
from analysis.before_after import TRAINING, Change, table
from rlhf_lab.runs.folder import METRICS, RunDirectory


def make_run(folder: Path, seed: int, after: float, first_version: int = 0) -> None:
    manifest = {"mode": "sync", "seed": seed}
    record = RunDirectory.create(folder, manifest, "")
    rounds = [
        {
            "step": step,
            "reward/mean_generated": step / 10,
            "kl/sampled_reference_k1": 0.25,
            "total/prompts": 4 * (step + 1),
        }
        for step in range(8)
    ]
    (record.folder / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rounds))
    for label, gain in (("", 0.0), ("-test", 0.1)):
        rows = [
            {
                "version": version,
                "gold/mean": score,
                "kl/sft_k1": float(version),
                "eval/prompts": 50,
            }
            for version, score in ((first_version, 0.2), (8, after + gain))
        ]
        path = folder / f"evals{label}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    record.finish("finished")


def test_a_run_changes_on_each_set_of_prompts_and_in_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "one", 1, 0.3)
    make_run(tmp_path / "two", 2, 0.5)
    assert before_after.main([str(tmp_path)]) == 0
    text = capsys.readouterr().out
    lines = [line.split() for line in text.splitlines() if line.strip()]
    assert ["test", "1", "50", "0.200", "0.400", "+0.200", "8.00"] in lines
    assert ["test", "2", "50", "0.200", "0.600", "+0.400", "8.00"] in lines
    # Quarters of 8 rounds: the mean of 0.0 and 0.1, and of 0.6 and 0.7; 4 prompts in each of 2.
    assert ["training", "prompts", "1", "8", "0.050", "0.650", "+0.600", "0.25"] in lines


def test_the_mean_over_seeds_has_its_interval() -> None:
    changes = [Change("test", seed, 10, 0.0, size, 0.0) for seed, size in ((1, 0.1), (2, 0.3))]
    # t(0.975, 1) = 12.706, and the standard error is 0.1414 / sqrt(2) = 0.1.
    assert table(changes)[-1][5] == "0.200 [-1.071, 1.471]"
    assert len(table([*changes, Change(TRAINING, 1, 8, 0.0, 0.0, 0.0)])) == 4


def test_evaluations_without_the_beginning_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "one", 1, 0.3, first_version=4)
    assert before_after.main([str(tmp_path)]) == 2
    assert "does not begin with version 0" in capsys.readouterr().err
