"""What figures draw has the extent of what was measured: bars, and rounds of thinned tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import Line2D

from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.figures.catalogue import draw
from rlhf_lab_analysis.figures.style import on_paper
from rlhf_lab_analysis.plots.round_seconds import sums_of
from rlhf_lab_analysis.sources.record import Record
from rlhf_lab_analysis.tables.compact import choose_rounds
from tests.support.figure_tables import EVERY, end_of, grid, run_of
from tests.support.table_records import tables

pytestmark = pytest.mark.usefixtures("costly")

WIDE = 3.0
DPI = 400


def bars_of(panel: Axes) -> list[Line2D]:
    """The lines that are intervals drawn as bars."""
    return [line for line in panel.lines if line.get_linewidth() >= WIDE]


def drawn_extent(panel: Axes, bar: Line2D) -> tuple[float, float]:
    """From where to where a bar colours pixels, in the panel's own units, with all else hidden."""
    figure = panel.figure
    for artist in figure.findobj(lambda one: one is not figure):
        artist.set_visible(False)
    for shown in (panel, bar):
        shown.set_visible(True)
    panel.set_axis_off()
    canvas = FigureCanvasAgg(figure)  # type: ignore[arg-type]
    figure.set_dpi(DPI)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())[..., :3]  # type: ignore[no-untyped-call]
    columns = np.flatnonzero((pixels < 250).any(axis=(0, 2)))
    edges = [(float(columns[0]), 0.0), (float(columns[-1] + 1), 0.0)]
    low, high = panel.transData.inverted().transform(edges)[:, 0]
    return float(low), float(high)


@pytest.mark.parametrize("name", ["differences", "corrections"])
def test_a_bar_is_as_long_as_its_interval(name: str) -> None:
    with on_paper():
        runs = [run_of(s, parts, end_of(s, 0.02 * place + 0.003 * s * (place + 1)), "own")
                for place, parts in enumerate(EVERY[name]) for s in (1, 2, 3)]  # fmt: skip
        figure = draw(name, tables(*runs)).figure
        figure.set_layout_engine("none")
        panel = next(one for one in figure.axes if bars_of(one))
        bar = bars_of(panel)[-1]
        low, high = (float(value) for value in np.asarray(bar.get_xdata()))
        panel.set_xlim(low - (high - low or 0.1), high + (high - low or 0.1))
        found = drawn_extent(panel, bar)
        pixel = abs(np.diff(panel.transData.inverted().transform([(0, 0), (1, 0)])[:, 0])[0])
    # Caps of a line of 4 points would lie 2 points beyond each end: 11 pixels.
    assert found == pytest.approx((low, high), abs=1.5 * pixel)


@pytest.mark.parametrize("name", ["fig4_losses", "frontier"])
def test_no_line_of_any_figure_goes_beyond_its_ends(name: str) -> None:
    with on_paper():
        line = Line2D([], [])
    assert line.get_solid_capstyle() == "butt"
    for panel in draw(name, grid(EVERY[name], seeds=(1, 2))).figure.axes:
        assert {one.get_solid_capstyle() for one in panel.lines} <= {"butt"}


def long_run(points: int | None, mode: str = "async") -> Record:
    """A run of 16 rounds that take ever longer, of which so many rows were kept."""
    base = run_of(1, {"mode": mode}, end_of(1, 0.0), "own")
    last = base.rounds[-1]
    rounds = []
    for n in range(1, 17):
        spent = n * (n + 1) / 2
        seconds = {"generate": 2.0, "score": 1.0, "train": 3.0, "wall": 4.0, "wait": 0.5}
        told = {f"seconds/{key}": value * spent for key, value in seconds.items()}
        rounds.append({**last, **told, "total/rounds": n, "total/updates": n})
    evals = [{**row, "version": 4 * int(row["version"])} for row in base.evals]
    held = rounds if points is None else choose_rounds(rounds, evals, points)
    return replace(base, rounds=held, evals=evals)


def test_rows_of_thinned_tables_are_rounds_again() -> None:
    whole, thin = (sums_of(cells(tables(long_run(points))).cells[0], 1) for points in (None, 4))
    assert len(whole) == len(thin) == 16
    # Rows that were kept have their own sums, and each round in between an equal part.
    assert thin.iloc[[3, 7, 11, 15]].equals(whole.iloc[[3, 7, 11, 15]])
    steps = thin.diff().fillna(thin.iloc[:1])["seconds/generate"]
    # Rounds 5 to 8 took 10, 12, 14 and 16 seconds: 13 each.
    assert steps.iloc[4:8].tolist() == pytest.approx([13.0] * 4)


def test_the_staleness_bound_is_of_rounds_however_few_rows_were_kept() -> None:
    def begins(points: int | None) -> dict[int, float]:
        runs = [long_run(points), long_run(points, "sync")]
        data = draw("fig2_timelines", tables(*runs)).data
        own = data[data.condition.str.startswith("async") & data.part.eq("generator: generate")]
        return dict(zip(own.version, own.x_high - own.x_low, strict=True))

    whole, thin = begins(None), begins(4)
    assert list(whole) == list(thin) == [6, 7, 8, 9]
    # Round 7 of the run is number 6: it took 14 seconds, and its row stands for 10 to 16.
    assert whole[6] == pytest.approx(14.0) and thin[6] == pytest.approx(13.0)
    made = draw("fig2_timelines", tables(long_run(4), long_run(4, "sync")))
    assert "keep one round in 4, so a round is the mean" in made.caption
