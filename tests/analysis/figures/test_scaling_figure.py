"""The figure of the law of scaling: what is drawn is fitted, or has a reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlhf_lab_analysis.figures.catalogue import draw
from rlhf_lab_analysis.figures.figure_builder import DrawnFigure
from rlhf_lab_analysis.sources.record import Record, Row
from rlhf_lab_analysis.statistics.scaling_runs import Law
from tests.support.figure_tables import rounded, run_of
from tests.support.table_records import rounds, tables

pytestmark = pytest.mark.usefixtures("costly")

LAWS = {1: Law(0.4, 0.8, 1.5, 8.0), 4: Law(0.4, 0.7, 1.5, 8.0)}
SEEDS = (1, 2, 3, 4)


def curved(n: int, seed: int, updates: int, midpoint: float) -> Record:
    """A run with a version each four updates, on the law but for a little of its seed."""
    base = run_of(seed, {"algo": "ppo", "updates_per_round": n}, {}, "own")
    count, every = updates // n, 4 // n
    versions = np.arange(0, count + 1, every)
    off = 0.004 * (seed - 2.5) + 0.001 * np.cos(seed * versions)
    updates_P = np.array(versions * n, dtype=np.float64)
    law = replace(LAWS[n], midpoint=midpoint)
    values = law.at(updates_P) + np.where(versions > 0, off, 0.0)
    evals: list[Row] = [
        {"label": "", "version": int(version), "eval/prompts": 16, "eval/options": "quick",
         "gold/win_rate": float(value)}
        for version, value in zip(versions, values, strict=True)
    ]  # fmt: skip
    rows = [rounded(row, n, "sync") for row in rounds(count)]
    return replace(base, rounds=rows, evals=evals, facts=replace(base.facts, planned_rounds=count))


def drawn(updates: int, midpoint: float = 8.0) -> DrawnFigure:
    made = (curved(n, seed, updates, midpoint) for n in LAWS for seed in SEEDS)
    return draw("scaling", tables(*made))


def test_the_law_and_its_parameters_are_drawn_and_written() -> None:
    made = drawn(40)
    rows = {key: frame for key, frame in made.data.groupby(["condition", "part"])}
    for n, law in LAWS.items():
        ceiling, midpoint = (rows[f"N={n}", part].iloc[0] for part in ("A", "C_mid"))
        assert ceiling["y"] == pytest.approx(law.ceiling, abs=0.01)
        assert midpoint["low"] < 8 < midpoint["high"]
        line = rows[f"N={n}", "law"]
        assert line["y"].tolist() == pytest.approx(law.at(line["x"].to_numpy()), abs=0.01)
    change = rows["N=4", "difference of A"].iloc[0]
    assert change["verdict"] == "moves the ceiling"
    assert change["y"] == pytest.approx(-0.1, abs=0.01)
    assert "N=4 against N=1: moves the ceiling (A by -0.1" in made.caption
    # Half of 40 updates have points enough, so the rest is predicted.
    assert "error beyond 20 0.00" in made.caption
    left = made.figure.axes[0]
    across = [np.asarray(line.get_xdata()) for line in left.lines]
    assert [x[0] for x in across if len({*x}) == 1] == [20, 20]
    hollow = [
        x
        for x, line in zip(across, left.lines, strict=True)
        if line.get_markerfacecolor() == "white"
    ]
    assert all((x > 20).all() for x in hollow) and len(hollow) == 2


def test_a_ceiling_that_is_not_identified_has_a_reason_and_no_row() -> None:
    made = drawn(16, midpoint=32.0)
    parts = {*made.data["part"]}
    assert parts == {"measured", "law"}
    assert made.caption.count("A is not identified (") == 2
    assert "beyond the last compute of 16" in made.caption
    texts = [text.get_text() for text in made.figure.axes[1].texts]
    assert texts == ["no two ceilings are identified"]


def test_too_few_versions_are_drawn_without_a_law() -> None:
    made = drawn(8)
    assert {*made.data["part"]} == {"measured"}
    assert any("fewer than 3 common versions" in text for text in made.warnings)
