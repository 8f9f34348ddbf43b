"""What a change gives back of a collapse, by numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_lab.cli.attribute import factors_of, parts_of, rounds_in
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.studies.attribution import Effect, collapse_of, effect_of, report
from tests.support.live_runs import round_row, write_rounds, write_run

CONFIG = {
    "mode": {"max_staleness": 2},
    "optim": {"lr": 0.5},
    "correction": {"name": "none"},
    "generator": {"round_weights": "bf16"},
    "run": {"groups_per_update": 4, "updates_per_round": 1, "group_size": 2},
}


def run_of(folder: Path, *rewards: float) -> Path:
    write_run(folder)
    rows = (round_row(step, **{"reward/mean": reward}) for step, reward in enumerate(rewards))
    write_rounds(folder, *rows)
    return folder


def test_a_collapse_is_the_fall_of_the_mean(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", 1.0, 3.0, 5.0, 2.0, 1.0)
    found = collapse_of(run, 3, "reward/mean", 2)
    assert (found.before, found.after, found.fall) == (4.0, 1.5, 2.5)
    forks = [run_of(tmp_path / name, 1.0, 3.0, 5.0, *ends) for name, ends in FORKS.items()]
    effect = effect_of(found, forks)
    assert effect.differences == (2.0, 2.5) and effect.mean == 2.25
    # Half of 12.706 * 0.3536 / sqrt(2).
    assert effect.interval == pytest.approx((2.25 - 3.1766, 2.25 + 3.1766), abs=1e-4)


FORKS = {"a": (3.0, 4.0), "b": (4.0, 4.0)}


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ((2.0, 2.1, 2.2), "removes it"),
        ((0.1, 0.2, 0.1), "does not"),
        ((0.1, 2.0, 1.0), "undecided"),
        ((9.0,), "undecided"),
    ],
)
def test_a_change_removes_a_collapse_if_it_surely_gives_back_half(
    differences: tuple[float, ...], expected: str
) -> None:
    assert Effect(differences).verdict(2.5) == expected


@pytest.mark.parametrize(
    ("round_", "last", "metric", "complaint"),
    [
        (1, 1, "reward/mean", r"does not fall: 1 before round 1, 2 at the end"),
        (9, 1, "reward/mean", r"round=9 with --last=1: .* has 3 rounds"),
        (1, 2, "reward/mean", r"choose a round from 2 to 2"),
        (1, 1, "reward/other", r"--metric=reward/other is not in every round"),
    ],
)
def test_what_is_no_collapse_is_refused(
    tmp_path: Path, round_: int, last: int, metric: str, complaint: str
) -> None:
    run = run_of(tmp_path / "run", 1.0, 3.0, 2.0)
    with pytest.raises(UserError, match=complaint):
        collapse_of(run, round_, metric, last)


def test_the_report_has_the_largest_difference_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collapse = collapse_of(run_of(tmp_path / "run", 5.0, 1.0), 1, "reward/mean", 1)
    forks = {
        "rate": [run_of(tmp_path / "a", 5.0, 2.0), run_of(tmp_path / "b", 5.0, 2.0)],
        "lag": [run_of(tmp_path / "c", 5.0, 5.0), run_of(tmp_path / "d", 5.0, 5.0)],
    }
    factors = {"rate": ["optim.lr=0.1"], "lag": ["mode=sync"]}
    report(collapse, forks, factors, {"mismatch": "no"}, Console(quiet=False))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0].endswith("fell by 4, from 5 to 1; forks less it, at the end")
    assert lines[2] == "lag mode=sync 2 +4 [+4, +4] 100% removes it"
    assert lines[3] == "rate optim.lr=0.1 2 +1 [+1, +1] 25% does not"
    assert lines[4] == "mismatch was not forked: no"


def test_factors_are_what_the_run_has() -> None:
    found = factors_of(CONFIG, 0.25, "truncated_is")
    assert found["lag"] == ("mode=sync",)
    assert found["rate"] == ("optim.lr=0.125",)
    assert found["correction"] == ("correction=truncated_is",)
    assert found["mismatch"] == ("generator.round_weights=none",)
    assert found["rows 0 to 1"] == ("fork.without_rows=[0,1]",)
    plain = {
        **CONFIG,
        "mode": {"max_staleness": 0},
        "correction": {"name": "split"},
        "generator": {},
    }
    others = factors_of(plain, 0.25, "truncated_is")
    assert {"lag", "mismatch"} & set(others) == set()
    assert others["correction"] == ("correction=none",)


def test_tenths_are_of_whole_groups_and_have_every_row_once() -> None:
    parts = parts_of(25, 3)
    assert len(parts) == 10
    assert [row for rows in parts for row in rows] == list(range(75))
    assert {len(rows) for rows in parts} == {6, 9}


def test_rounds_are_read_with_both_ends() -> None:
    assert list(rounds_in("round=3..5")) == [3, 4, 5]
    assert list(rounds_in("round=4")) == [4]
    for text in ("round=5..3", "4", "round=x"):
        with pytest.raises(UserError, match=r"names no rounds: write round=R\.\.Q"):
            rounds_in(text)
