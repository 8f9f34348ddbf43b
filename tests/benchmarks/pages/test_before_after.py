"""What training changed, by split and seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.pages import before_after
from benchmarks.pages.before_after import TRAINING, Change, rows_of
from tests.support import study_runs
from tests.support.table_records import write_lines


def make_run(folder: Path, seed: int, after: float, first_version: int = 0) -> None:
    """A run whose gold score goes from 0.2 to `after`, on test prompts 0.1 further."""
    rows = {
        label: [
            {
                "version": version,
                "gold/mean": score,
                "kl/sft_k1": float(version),
                "eval/prompts": 50,
            }
            for version, score in ((first_version, 0.2), (4, after + gain))
        ]
        for label, gain in (("", 0.0), ("test", 0.1))
    }
    metrics = {"reward/mean_generated": 0.25, "kl/sampled_reference_k1": 0.5}
    study_runs.make_run(folder, seed, rows[""], metrics=metrics)
    write_lines(folder / "evals-test.jsonl", rows["test"])


def test_a_run_changes_on_each_set_of_prompts_and_in_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "one", 1, 0.3)
    make_run(tmp_path / "two", 2, 0.5)
    assert before_after.main([str(tmp_path)]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    def ends(*cells: str) -> bool:
        return any(line.split()[-len(cells) :] == list(cells) for line in lines)

    assert ends("test", "1", "50", "0.200", "0.400", "+0.200", "4.00")
    assert ends("test", "2", "50", "0.200", "0.600", "+0.400", "4.00")
    # A quarter of four rounds is one, of 8 prompts.
    assert ends("training", "prompts", "1", "8", "0.250", "0.250", "+0.000", "0.50")


def test_the_mean_over_seeds_has_its_interval() -> None:
    changes = [
        Change("grpo", "test", seed, 10, 0.0, size, 0.0) for seed, size in ((1, 0.1), (2, 0.3))
    ]
    # t(0.975, 1) = 12.706, and the standard error is 0.1414 / sqrt(2) = 0.1.
    assert rows_of(changes)[-1][6] == "0.200 [-1.071, 1.471]"
    assert len(rows_of([*changes, Change("grpo", TRAINING, 1, 8, 0.0, 0.0, 0.0)])) == 4


def test_evaluations_without_the_beginning_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "one", 1, 0.3, first_version=2)
    assert before_after.main([str(tmp_path)]) == 2
    assert "do not begin with version 0" in capsys.readouterr().err
