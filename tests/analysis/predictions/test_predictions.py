"""Predictions: extrapolated by hand, read with refusals, and scored by runs that came later."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy import special, stats

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.predictions.__main__ import main
from rlhf_lab_analysis.predictions.extrapolation import Point, by_law, by_line, interval_score
from rlhf_lab_analysis.predictions.rows import Prediction, read_predictions
from rlhf_lab_analysis.predictions.scoring import remade, score, summary
from rlhf_lab_analysis.statistics.curves import RunCurve
from rlhf_lab_analysis.statistics.scaling_runs import SHARES, Law, ScalingRuns
from rlhf_lab_analysis.tables.table import Tables
from tests.analysis.figures.test_scaling_figure import LAWS, curved
from tests.support import table_records as made
from tests.support.question_records import Made

ROW: dict[str, Any] = {
    "text": "PPO at N = 16 is there.",
    "written": "2026-11-25",
    "number": 0.7,
    "interval": [0.6, 0.8],
    "level": 0.9,
    "prompts": "last",
    "of": {"algo": "ppo", "run.updates_per_round": 16},
    "by": "line",
    "from": [
        {"runs": {"algo": "ppo", "run.updates_per_round": 1}, "at": 0.0},
        {"runs": {"algo": "ppo", "run.updates_per_round": 4}, "at": 2.0},
    ],
    "to": 4.0,
    "known": False,
}


def written(folder: Path, **rows: dict[str, Any]) -> Path:
    """A folder with one file of predictions; each is ROW with other values."""
    file = {"title": "T", "predictions": {name: {**ROW, **own} for name, own in rows.items()}}
    # Through JSON, so that what two rows share is written twice.
    (folder / "p.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(file))))
    return folder


def one(folder: Path, **own: Any) -> Prediction:
    (found,) = read_predictions(written(folder, one=own))
    return found


def ladder(**ends: tuple[float, ...]) -> Selection:
    """PPO runs by N, such as n4=(0.5, 0.6): the ends of two seeds."""
    records = [run for n, shares in ends.items() for run in Made(per_round=int(n[1:])).runs(shares)]
    return cells(made.tables(*records))


def test_a_line_of_log_odds_by_hand() -> None:
    """Log odds of 0 at 0, of 1 at 1: of 2 at 2."""
    one, two = {1: 0.5, 2: 0.5}, {1: float(special.expit(1)), 2: float(special.expit(1))}
    found = by_line([Point(0, one), Point(1, two)], 2, 0.95)
    assert found.point == pytest.approx(special.expit(2))
    assert (found.low, found.high) == pytest.approx((found.point, found.point))


def test_its_interval_is_of_runs_to_come() -> None:
    """At a place that was run, the line has its mean: 0.65 with a standard error of 0.05."""
    points = [Point(0, {1: 0.5, 2: 0.5, 9: 0.1}), Point(1, {1: 0.6, 2: 0.7})]
    found = by_line(points, 1, 0.95)
    half = math.sqrt(2) * float(stats.t.ppf(0.975, 1)) * 0.05 / (0.65 * 0.35)
    assert found.point == pytest.approx(0.65)
    ends = special.expit(special.logit(0.65) + np.array([-half, half]))
    assert (found.low, found.high) == pytest.approx(tuple(ends), rel=1e-6)


def test_a_law_is_read_at_more_compute() -> None:
    law, compute_P = Law(0.4, 0.8, 1.5, 20.0), np.array([0.0, 8.0, 16.0, 32.0, 64.0])
    runs = ScalingRuns({seed: RunCurve(compute_P, law.at(compute_P)) for seed in (1, 2)}, SHARES)
    found = by_law(runs, 256, 0.95)
    assert found.point == pytest.approx(float(law.at(np.array([256.0]))[0]), abs=1e-4)
    assert found.point > law.at(compute_P).max()


@pytest.mark.parametrize(
    ("points", "why"),
    [
        ([Point(1, {1: 0.5, 2: 0.6})], "two settings"),
        ([Point(1, {1: 0.5, 2: 0.6}), Point(1, {1: 0.5, 2: 0.6})], "two settings"),
        ([Point(0, {1: 0.5}), Point(1, {1: 0.6})], "1 seed where an interval needs"),
        ([Point(0, {1: 1.0, 2: 1.0}), Point(1, {1: 0.6, 2: 0.6})], "no log odds"),
    ],
)
def test_what_is_no_line_is_refused(points: list[Point], why: str) -> None:
    with pytest.raises(UserError, match=why):
        by_line(points, 2, 0.95)


def test_the_interval_score_by_hand() -> None:
    assert interval_score(0.6, 0.8, 0.9, 0.7) == pytest.approx(0.2)
    # 0.05 outside, each at 2 / 0.1.
    assert interval_score(0.6, 0.8, 0.9, 0.85) == pytest.approx(0.2 + 20 * 0.05)
    assert interval_score(0.6, 0.8, 0.5, 0.55) == pytest.approx(0.2 + 4 * 0.05)


def test_outcomes_are_scored_when_they_come(tmp_path: Path) -> None:
    prediction = one(tmp_path)
    assert score(prediction, ladder(n1=(0.7, 0.8))) is None
    inside = score(prediction, ladder(n1=(0.7, 0.8), n16=(0.60, 0.66)))
    outside = score(prediction, ladder(n16=(0.82, 0.86)))
    assert inside is not None and outside is not None
    assert inside.outcome == pytest.approx(0.63) and inside.num_seeds == 2 and inside.is_inside
    assert not outside.is_inside and outside.score == pytest.approx(0.2 + 20 * 0.04)
    assert summary([inside, outside]) == "1 of 2 inside, mean interval score 60.0 points"
    assert summary([]) == "none is scored yet"


def test_a_number_is_made_again_from_its_runs(tmp_path: Path) -> None:
    prediction, ends = one(tmp_path), {"n1": (0.8, 0.82), "n4": (0.7, 0.72)}
    found = remade(prediction, ladder(**ends))
    logs = special.logit(0.81), special.logit(0.71)
    assert found.point == pytest.approx(special.expit(2 * logs[1] - logs[0]))
    with pytest.raises(UserError, match=r"one: no run has .*4"):
        remade(prediction, ladder(n1=ends["n1"]))


def test_a_number_is_made_again_by_a_law(tmp_path: Path) -> None:
    source = {"runs": {"algo": "ppo", "run.updates_per_round": 1}}
    prediction = one(tmp_path, by="law", **{"from": [source], "to": 80.0})
    selection = cells(made.tables(*(curved(1, seed, 40, 8.0) for seed in (1, 2, 3, 4))))
    found = remade(prediction, selection)
    assert found.point == pytest.approx(float(LAWS[1].at(np.array([80.0]))[0]), abs=0.01)
    assert found.low < found.point < found.high


def test_a_condition_that_is_not_one_is_refused(tmp_path: Path) -> None:
    prediction = one(tmp_path, of={"algo": "ppo"})
    with pytest.raises(UserError, match=r"2 conditions have .* name more keys"):
        score(prediction, ladder(n1=(0.7, 0.8), n4=(0.7, 0.8)))


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"number": 0.9}, r"interval=\[0.6, 0.8\] with number=0.9: pass \[low, high\]"),
        ({"interval": [0.8, 0.6]}, "interval"),
        ({"interval": [0.6]}, "interval"),
        ({"interval": [0.6, 1.2]}, "interval"),
        ({"level": 95.0}, "level=95.0: pass a share"),
        ({"written": "yesterday"}, "written=yesterday: pass a day"),
        ({"prompts": "all"}, "prompts=all: choose one of last, way"),
        ({"by": "guess"}, "by=guess: choose one of line, law"),
        ({"by": "law"}, "by=law: pass one source"),
        ({"from": ROW["from"][:1]}, "by=line: pass two sources"),
        ({"from": [{"runs": {}}, {"runs": {}}]}, "by=line: pass two sources .* with `at`"),
        ({"from": [{"runs": {}, "at": 1.0, "on": 2}]}, "key=on"),
        ({"of": {}}, "name the sweep"),
        ({"margin": 0.1}, "one: key=margin: choose one of by, from"),
        ({"number": "high"}, "number"),
        ({"known": None}, "known"),
    ],
)
def test_a_wrong_row_is_refused_with_its_key(tmp_path: Path, own: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        one(tmp_path, **own)


def test_names_are_plain_and_met_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no file of predictions"):
        read_predictions(tmp_path)
    with pytest.raises(UserError, match="small letters"):
        read_predictions(written(tmp_path, **{"No good": {}}))
    written(tmp_path, one={})
    (tmp_path / "q.yaml").write_text((tmp_path / "p.yaml").read_text())
    with pytest.raises(UserError, match="one is in another file too"):
        read_predictions(tmp_path)


def test_the_command_scores_what_was_run_and_names_what_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = {1: (0.8, 0.82), 4: (0.7, 0.72), 16: (0.60, 0.66)}
    for n, shares in ends.items():
        for number, run in enumerate(Made(per_round=n).runs(shares)):
            made.write_run(tmp_path / "runs" / f"{n}-{number}", run)
    later = {"of": {"algo": "ppo", "run.updates_per_round": 64}}
    of_way = {"prompts": "way"}
    folder = written(tmp_path, first={}, second={"known": True}, third=later, fourth=of_way)
    given = [str(tmp_path / "runs"), "--folder", str(folder)]
    assert main(given) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "0.630 (2 stage seeds) yes 20.0" in said and "waits for runs" in said
    assert "on the prompts of the way" in said and "outcome known" in said
    assert "made before its runs: 2 of 2 inside" in said
    assert "known when written: 1 of 1 inside" in said
    assert main([*given, "--remake"]) == 0
    logs = special.logit(0.81), special.logit(0.71)
    again = float(special.expit(2 * logs[1] - logs[0]))
    text = f"first: 0.700 [0.600, 0.800] (90%); made again {again:.3f} ["
    assert text in capsys.readouterr().out


@pytest.mark.pages
def test_the_tracked_predictions_are_what_their_runs_say(
    capsys: pytest.CaptureFixture[str], kept_benchmark: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The command would read the same tables, twice.
    monkeypatch.setattr(
        "rlhf_lab_analysis.predictions.__main__.gather", lambda *_, by: kept_benchmark
    )
    # Stage seeds from 19 on, and other seeds than 1, came with a later look.
    known = kept_benchmark.only(stage_seed=list(range(19)), seed=1)
    selection, predictions = cells(known), read_predictions()
    for prediction in predictions:
        found = remade(prediction, selection)
        own = (prediction.number, prediction.low, prediction.high)
        assert (found.point, found.low, found.high) == pytest.approx(own, abs=1e-3)
    for options in ([], ["--remake"]):
        assert main(options) == 0
        text = capsys.readouterr().out
        assert all(f"{prediction.name}: " in text for prediction in predictions)


def test_wrong_files_end_the_command_with_their_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--folder", str(written(tmp_path, one={"level": 2.0}))]) == 2
    assert "predictions: " in capsys.readouterr().err
