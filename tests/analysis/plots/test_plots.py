"""The six forms of figures: their numbers by hand, their looks, and what they refuse."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy import stats

import rlhf_lab
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.plots.command import selection_of
from rlhf_lab_analysis.plots.figure import Plot, draw
from rlhf_lab_analysis.plots.lines import interval
from rlhf_lab_analysis.plots.panels import Form, Request
from rlhf_lab_analysis.plots.style import Style, looks, on_paper, read_style, write
from tests.support.figure_tables import BY_MODE, EVERY, LADDER, grid
from tests.support.table_records import config, record, tables

MODES = [{"mode": "sync"}, {"mode": "async"}]


def drawn(
    conditions: Any, style: Style | None = None, seeds: Any = (1, 2, 3), **wanted: Any
) -> Plot:
    request = Request(**wanted)
    selection = selection_of(grid(conditions, seeds), request.form)
    return draw(selection, request, style or Style(), None)


def means(made: Plot) -> pd.DataFrame:
    return made.data[made.data["seed"] == "mean"]


def test_curves_are_means_with_students_interval_on_log_odds() -> None:
    made = means(drawn(MODES, y=["win_rate"]))
    rates = [0.51, 0.52, 0.53]
    last = made[(made["condition"] == "sync") & (made["x"] == made["x"].max())].iloc[0]
    assert last["y"] == pytest.approx(0.52) and last["n"] == 3
    half = stats.t.ppf(0.975, 2) * 0.01 / math.sqrt(3) / (0.52 * 0.48)
    odds = math.log(0.52 / 0.48)
    assert last["low"] == pytest.approx(1 / (1 + math.exp(half - odds)))
    assert last["high"] == pytest.approx(1 / (1 + math.exp(-half - odds)))
    assert sum(rates) / 3 == pytest.approx(last["y"])


@pytest.mark.parametrize(("seeds", "has_interval"), [((1, 2), False), ((1, 2, 3), True)])
def test_intervals_take_three_seeds(seeds: tuple[int, ...], has_interval: bool) -> None:
    made = drawn(MODES, seeds=seeds)
    assert means(made)["low"].notna().all() == has_interval
    assert ("no intervals" in made.sentence) != has_interval


def test_what_is_never_negative_has_no_negative_end() -> None:
    y_SP = np.array([[0.0, -0.1], [0.1, -0.1], [2.0, -0.1]])
    assert interval(y_SP, "kl/sft_k1")[0].tolist() == pytest.approx([0.0, -0.1])
    assert interval(y_SP, "gold/mean")[0][0] < 0


def test_differences_are_of_pairs_of_seeds() -> None:
    made = drawn(MODES, y=["win_rate"], diff="mode=sync", form=Form.ends)
    (row,) = means(made).to_dict("records")
    # Each next condition of the grid is .02 better in every seed.
    assert (row["condition"], row["n"]) == ("async", 3)
    assert row["y"] == pytest.approx(0.02) and row["low"] == pytest.approx(0.02)


def test_a_difference_takes_the_baseline_that_equals_it_in_all_else() -> None:
    made = means(drawn(LADDER, diff="updates_per_round=1", form=Form.ends, y=["win_rate"]))
    found = dict(zip(made["condition"], made["y"].round(4), strict=True))
    assert found == {
        "PPO N=4": 0.02, "PPO N=16": 0.04, "online DPO N=4": 0.02, "online DPO N=16": 0.04,
    }  # fmt: skip


@pytest.mark.parametrize("form", [Form.ends, Form.heat])
def test_each_value_of_a_ladder_and_of_a_heat_map_has_a_tick(form: Form) -> None:
    rates = [1e-5, 2e-5, 1e-4, 3e-4]
    grid_of = [{"lr": rate, "algo": algo} for algo in ("ppo", "online_dpo") for rate in rates]
    by = ["optim.lr", "algo"] if form is Form.heat else []
    axes = drawn(grid_of, form=form, by=by, y=["win_rate"]).figure.axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == [f"{rate:g}" for rate in rates]


def test_sync_without_staleness_is_the_baseline_of_every_staleness() -> None:
    stale = [{"mode": "lagged", "max_staleness": s} for s in (1, 4)]
    made = means(drawn([MODES[0], *stale], diff="mode=sync", form=Form.ends, y=["win_rate"]))
    assert [name.split()[0] for name in made["condition"]] == ["lagged", "lagged"]
    by_letter, by_key = (
        drawn(LADDER, diff=diff, form=Form.ends, y=["win_rate"])
        for diff in ("N=1", "updates_per_round=1")
    )
    assert means(by_letter)["y"].equals(means(by_key)["y"])
    assert by_letter.sentence == by_key.sentence


def test_seeds_that_only_one_condition_has_are_in_no_difference() -> None:
    one, other = grid(MODES[:1], (1, 2, 3)), grid(MODES[1:], (2, 3, 4))
    both = pd.concat([one.runs, other.runs])
    assert len(both) == 6
    records = [*runs_of(MODES[:1], (1, 2, 3)), *runs_of(MODES[1:], (2, 3, 4))]
    request = Request(y=["win_rate"], diff="mode=sync", form=Form.ends)
    made = draw(cells(tables(*records)), request, Style(), None)
    assert set(made.data["seed"]) == {2, 3, "mean"}


def runs_of(conditions: Any, seeds: Any) -> list[Any]:
    from tests.support.figure_tables import end_of, run_of

    return [run_of(s, parts, end_of(s, 0.02), "own") for parts in conditions for s in seeds]


def test_by_and_facet_divide_the_keys_between_lines_and_panels() -> None:
    by, facet = drawn(LADDER, by=["updates_per_round"]), drawn(LADDER, facet=["algo"])
    for made in (by, facet):
        assert made.data["panel"].nunique() == 2
        assert set(made.data["condition"]) == {"N=1", "N=4", "N=16"}


def test_tasks_have_panels_and_policies_lines() -> None:
    made = drawn([{**mode, "task": task} for mode in MODES for task in ("arithmetic", "tldr")])
    assert made.data["panel"].nunique() == 2 and set(made.data["condition"]) == {"sync", "async"}
    assert drawn(BY_MODE).data["condition"].nunique() == len(BY_MODE)


def test_a_front_names_who_is_on_it() -> None:
    made = drawn(MODES, form=Form.front, x=["wall_clock"], y=["win_rate"])
    assert any("async: on the front in 100%" in note for note in made.notes)


@pytest.mark.parametrize(
    ("starts", "machines", "reason"),
    [
        (("0:00", "1:00"), ("a", "a"), ""),
        (("0:00", "0:30"), ("a", "a"), "1 of 2 runs ran beside others"),
        (("0:00", "1:00"), ("a", "b"), "runs of 2 machines"),
    ],
)
def test_seconds_of_other_machines_and_of_runs_beside_each_other_are_noted(
    starts: tuple[str, str], machines: tuple[str, str], reason: str
) -> None:
    """A run of the records takes 40 seconds."""
    runs = [
        record(mode, config=config(1, mode), machine=machine, started=f"2026-01-01T00:0{start}")
        for start, machine, mode in zip(starts, machines, ("sync", "async"), strict=True)
    ]
    for x, expected in (("wall_clock", reason), ("updates", "")):
        request = Request(y=["reward"], x=[x])
        made = draw(selection_of(tables(*runs), request.form), request, Style(), None)
        found = [note for note in made.notes if "not comparable" in note]
        assert len(found) == bool(expected) and all(expected in note for note in found)


def test_a_heat_map_has_the_means_over_two_keys() -> None:
    made = drawn(LADDER, form=Form.heat, by=["algo", "updates_per_round"], y=["win_rate"])
    shown = {text.get_text() for text in made.figure.axes[0].texts}
    assert shown == {f"{y:.3g}" for y in means(made)["y"]} and len(shown) == len(LADDER)


def test_a_timeline_has_the_lanes_of_both_modes() -> None:
    made = drawn(MODES, form=Form.timeline)
    lanes = made.data.groupby("condition")["lane"].unique().map(set).to_dict()
    assert lanes == {"sync": {"trainer"}, "async": {"trainer", "generator"}}


@pytest.mark.parametrize("y", ["reward", "reward/mean"])
def test_metrics_of_rounds_are_curves_too(y: str) -> None:
    made = means(drawn(MODES, y=[y], x=["wall_clock"]))
    assert list(made[made["condition"] == "sync"]["x"]) == [10.0, 20.0, 30.0, 40.0]


def test_curves_show_runs_that_are_not_finished() -> None:
    running = record("r1", state="running")
    request = Request(y=["reward"])
    made = draw(selection_of(tables(running), request.form), request, Style(), None)
    assert len(made.data) == 2 * len(running.rounds)
    with pytest.raises(UserError, match="its state is running"):
        ends = Request(y=["reward"], form=Form.ends)
        draw(selection_of(tables(running), ends.form), ends, Style(), None)


REFUSED: dict[str, dict[str, Any]] = {
    "win_rat": {"y": ["win_rat"]},
    "x/upd": {"x": ["x/upd"]},
    "--facet optim.lr": {"facet": ["optim.lr"]},
    "--by sweeps": {"by": ["sweeps"]},
    "--diff mode=lagged": {"diff": "mode=lagged"},
    "--diff nothing": {"diff": "nothing"},
    "--heat": {"form": Form.heat},
    "order: lagged": {"style": Style(order=("lagged",))},
    "-x": {"x": ["updates", "rounds"], "y": ["gold", "proxy", "kl"]},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_runs_do_not_have_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(UserError, match=name):
        drawn(MODES, **REFUSED[name])


def shown_texts(figure: Figure) -> list[Text]:
    """The texts that are seen: tick labels beyond the limits of an axis are not."""
    figure.draw_without_rendering()
    hidden = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
            beyond = [one for one in ticks if not low <= one.get_loc() <= high or not axes.axison]
            hidden |= {label for one in beyond for label in (one.label1, one.label2)}
    every = figure.findobj(Text)
    return [t for t in every if t.get_visible() and t.get_text() and t not in hidden]


def cut_texts(figure: Figure) -> list[str]:
    """Texts that reach beyond the figure."""
    found = []
    for text in shown_texts(figure):
        box = text.get_window_extent()
        right, top = figure.bbox.width + 1, figure.bbox.height + 1
        if box.x0 < -1 or box.y0 < -1 or box.x1 > right or box.y1 > top:
            found.append(text.get_text())
    return found


def overlapping(figure: Figure) -> list[tuple[str, str]]:
    """Names of axes, titles and legends that lie on each other."""
    figure.draw_without_rendering()
    texts = [t for a in figure.axes for t in (a.title, a.xaxis.label, a.yaxis.label)]
    texts += [text for legend in figure.legends for text in legend.get_texts()]
    boxes = [(t.get_text(), t.get_window_extent()) for t in texts if t.get_text()]
    return [
        (one, other)
        for place, (one, box) in enumerate(boxes)
        for other, beside in boxes[place + 1 :]
        if box.overlaps(beside)
    ]


# Grids of other shapes each; those of the other figures are like them.
QUICK = ("fig1_win_rate_and_cost", "fig3_off_policy_ladder", "staleness", "slow_tools")


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize(
    "conditions",
    [pytest.param(EVERY[n], id=n, marks=[] if n in QUICK else pytest.mark.slow) for n in EVERY],
)
def test_no_text_is_cut_or_lies_on_another_one(conditions: Any, form: Form) -> None:
    wanted: dict[str, Any] = {"form": form}
    if form is Form.heat:
        wanted["by"] = list(dict.fromkeys(key for one in conditions for key in one))[:2]
    try:
        made = drawn(conditions, **wanted)
    except UserError:
        assert form is Form.heat
        return
    assert not cut_texts(made.figure) and not overlapping(made.figure)
    panels = [axes for axes in made.figure.axes if axes.axison and axes.get_label() != "<colorbar>"]
    widths = [axes.get_position().width * made.figure.get_figwidth() for axes in panels]
    assert min(widths) > 1.0


def test_long_names_are_not_cut() -> None:
    many = [
        {"mode": "lagged", "max_staleness": s, "correction": c, "updates_per_round": n}
        for s in (1, 4)
        for c in ("none", "truncated_is", "sequence_is")
        for n in (1, 2)
    ]
    for form in (Form.curves, Form.ends, Form.front):
        assert not cut_texts(drawn(many, form=form).figure)


def test_no_two_of_a_hundred_conditions_look_alike() -> None:
    names = [f"c{index}" for index in range(100)]
    for is_number in (False, True):
        found = looks(names, Style(), is_number)
        assert len({(one.colour, one.marker, str(one.line)) for one in found.values()}) == 100


def test_a_style_file_gives_order_labels_colours_size_and_scales(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        "size: [4, 3]\nfont: 9\norder: [async]\nlabels: {async: ours}\n"
        "colours: {async: '#ff0000'}\nlog: [x]\nseeds: false\n"
    )
    made = drawn(MODES, read_style(path), x=["wall_clock"]).figure
    assert list(made.get_size_inches()) == [4, 3] and made.axes[0].get_xscale() == "log"
    texts = [text.get_text() for text in made.legends[0].get_texts()]
    assert texts == ["ours", "sync"]
    colours = [line.get_color() for line in made.axes[0].get_lines()]
    assert colours[0] == "#ff0000" and len(colours) == 2


@pytest.mark.parametrize(
    "text",
    ["colour: x", "size: wide", "log: [z]", "colours: {a: reddish}", "- a", "font: 1", "a: b: c"],
)
def test_a_style_that_cannot_be_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(UserError):
        read_style(path)


def test_the_call_of_python_draws_into_given_axes_and_takes_labels() -> None:
    figure, axes = plt.subplots()
    given = rlhf_lab.plot(grid(MODES), "win_rate", ax=axes, labels={"sync": "baseline"})
    plt.close(figure)
    assert given is figure and axes.get_ylabel() == "gold win-rate"
    legend = axes.get_legend()
    assert legend is not None
    assert {text.get_text() for text in legend.get_texts()} == {"baseline", "async"}
    with pytest.raises(UserError, match="ax: "):
        rlhf_lab.plot(grid(BY_MODE), facet="model", ax=axes)


def test_equal_figures_are_equal_files_with_letters_that_can_be_searched(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(drawn(MODES).figure, tmp_path / name, ["png", "pdf", "svg"])
    for kind in ("png", "pdf", "svg"):
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"two.{kind}").read_bytes()
    assert b"/Type0" in (tmp_path / "one.pdf").read_bytes()
    assert b"/Type3" not in (tmp_path / "one.pdf").read_bytes()


def test_no_matplotlibrc_changes_a_figure(tmp_path: Path) -> None:
    """What matplotlib read from the working folder, the user's or none: the same bytes."""
    drawn = []
    own: Any = {"axes.facecolor": "red", "axes.grid": True, "savefig.facecolor": "blue"}
    for name, rc in (("plain", {}), ("own", own)):
        with matplotlib.rc_context(rc):
            with on_paper(Style()):
                figure = Figure()
                figure.subplots().plot([0, 1], [1, 0])
            (path,) = write(figure, tmp_path / name, ["svg"])
        drawn.append(path.read_bytes())
    assert drawn[0] == drawn[1]
