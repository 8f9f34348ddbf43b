"""The forest of claims: one unit on an axis, verdicts of what decides, and bars to be read."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from matplotlib.axes import Axes

from rlhf_lab_analysis.comparison.registry.answers import Answer, Number, Unit
from rlhf_lab_analysis.comparison.registry.decisions import Decision
from rlhf_lab_analysis.comparison.registry.definitions import Definition
from rlhf_lab_analysis.figures.catalogue import PAGE
from rlhf_lab_analysis.figures.claims_forest import claims_forest
from rlhf_lab_analysis.figures.figure_builder import DrawnFigure
from rlhf_lab_analysis.statistics.decisions import Verdict
from rlhf_lab_analysis.statistics.results import Basis, Estimate, Method, Options

T90 = Options(level=0.9, method=Method.t)


def number(label: str, point: float, half: float, unit: Unit = Unit.points) -> Number:
    basis = Basis((8,), 1, T90)
    return Number(label, Estimate("x", point, point - half, point + half, basis), unit)


def decision(name: str, *numbers: Number, margin: float = 0.02, **fields: Any) -> Decision:
    known = {"text": f"The text of {name}.", "measure": "quality", "source": "", "shows": "equal"}
    row: Any = {**known, **fields}
    answer = Answer(
        question="",
        claim=row["text"],
        source="",
        setting="nano_s, tldr_nano, ppo",
        verdict=Verdict.holds,
        evidence="",
        numbers=numbers,
        runs="16 runs",
        margin=margin,
    )
    return Decision(Definition(name, "", row), answer)


def with_beside() -> Decision:
    return decision(
        "rank",
        number("S=0", 0.07, 0.01),
        number("mean, S=0", 0.1, 0.01),
        number("kl, S=0", 2.4, 0.6, Unit.nats),
        beside=["quality_over_updates", "kl"],
    )


def panel_of(made: DrawnFigure) -> Axes:
    (panel,) = made.figure.axes
    return panel


def test_each_number_is_on_an_axis_of_its_own_unit() -> None:
    points, nats = claims_forest([with_beside()])
    assert set(points.data["unit"]) == {"points"} and set(nats.data["unit"]) == {"nats"}
    assert panel_of(points).get_xlabel().endswith("points")
    assert panel_of(nats).get_xlabel().endswith("nats")
    # Both say of which claim their numbers are.
    for made in (points, nats):
        assert "The text of rank." in {text.get_text() for text in panel_of(made).texts}


def test_what_is_beside_a_claim_has_neither_its_verdict_nor_its_margin() -> None:
    points, nats = claims_forest([with_beside()])
    assert points.data["verdict"].tolist() == ["holds", "beside"]
    assert points.data["margin"][0] == 2.0 and math.isnan(points.data["margin"][1])
    assert nats.data["verdict"].tolist() == ["beside"] and nats.data["margin"].isna().all()
    # Margins are the only areas that are filled.
    assert len(panel_of(points).collections) == 1 and not panel_of(nats).collections
    shown = [text.get_text() for text in panel_of(points).texts]
    assert shown == ["The text of rank.", "holds, 90%", "beside, 90%"]


def test_all_parts_of_a_claim_of_several_decide_it() -> None:
    parts = {"algo": {"after": "online_dpo", "before": ["others"]}}
    numbers = [number("less ppo", 0.04, 0.01), number("less grpo", 0.05, 0.01)]
    (made,) = claims_forest([decision("order", *numbers, more_than=parts)])
    assert made.data["verdict"].tolist() == ["holds", "holds"]


def test_a_margin_of_ratios_is_drawn_as_the_claim_has_it() -> None:
    ratio = number("S=1", 1.2, 0.1, Unit.times)
    one = decision("faster", ratio, measure="wall_clock", margin=math.log1p(0.05))
    (made,) = claims_forest([one])
    assert made.data["margin"].tolist() == pytest.approx([0.05])


def test_short_intervals_can_be_read_beside_one_of_a_hundred_points() -> None:
    wide, short = number("wide", 0.62, 0.36), number("short", 0.01, 0.01)
    (made,) = claims_forest([decision("both", wide), decision("one", short)])
    panel = panel_of(made)
    made.figure.draw_without_rendering()
    bars = [line for line in panel.lines if line.get_linewidth() == 4]
    widths = [line.get_window_extent().width for line in bars]
    marker = 2.6 / 72 * made.figure.dpi
    assert len(widths) == 2 and min(widths) > 2 * marker
    # Nothing is cut.
    assert panel.get_xlim()[0] < 0 and panel.get_xlim()[1] > 98
    assert "logarithmic beyond 5 points" in made.caption and len(made.caption.split()) < 120


def test_the_axis_of_near_intervals_is_linear() -> None:
    (made,) = claims_forest([decision("near", number("S=1", 0.03, 0.02))])
    assert panel_of(made).get_xscale() == "linear" and "logarithmic" not in made.caption


def test_pages_of_a_unit_have_one_axis_and_fit_a_page() -> None:
    many = [decision(f"claim{n}", number("S=1", 0.001 * n, 0.01)) for n in range(40)]
    pages = claims_forest(many)
    assert len(pages) > 1 and len({panel_of(made).get_xlim() for made in pages}) == 1
    assert all(made.figure.get_figheight() <= PAGE for made in pages)


def test_numbers_of_an_axis_of_two_hundred_points_do_not_touch() -> None:
    """-100, -20 and -5 were written over each other."""
    label = "mean over the updates, " + 2 * "LoRA of rank 1, learning rate 0.0005 less "
    far = [number(label, side * 0.6, 0.38) for side in (-1, 1)]
    (made,) = claims_forest([decision("both", *far)])
    made.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in panel_of(made).get_xticklabels()]
    # Half a letter.
    space = 4
    assert len(boxes) > 2
    assert all(one.x1 + space < other.x0 for one, other in pairwise(boxes))


def test_the_lines_of_the_axis_do_not_cross_the_text_of_a_claim() -> None:
    made, _ = claims_forest([with_beside()])
    (text,) = (one for one in panel_of(made).texts if one.get_text() == "The text of rank.")
    patch = text.get_bbox_patch()
    assert patch is not None and patch.get_facecolor() == (1, 1, 1, 1)
    assert text.get_zorder() > max(line.get_zorder() for line in panel_of(made).lines)
