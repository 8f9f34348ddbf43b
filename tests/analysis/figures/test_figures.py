"""Figures: what is drawn is what was measured, looks follow from conditions, captions say n."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.equal_kl import Plane, at_equal_kl
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.figures.aggregate_bars import shown_names
from rlhf_lab_analysis.figures.axis_limits import limits
from rlhf_lab_analysis.figures.catalogue import (
    FIGURES,
    PAGE,
    best_of,
    draw,
    draw_pages,
    missing,
    page_name,
)
from rlhf_lab_analysis.figures.figure_builder import DrawnFigure
from rlhf_lab_analysis.figures.grouping import by_sweep, distinct_names, separating_keys
from rlhf_lab_analysis.figures.mean_curves import mean_curve
from rlhf_lab_analysis.figures.series_style import KNOWN, value_style
from rlhf_lab_analysis.sources.record import Record, Row
from rlhf_lab_analysis.tables.table import Tables
from tests.support.figure_tables import EVERY, LADDER, end_of, grid, run_of
from tests.support.table_records import tables

pytestmark = pytest.mark.usefixtures("costly")

# 0.975 quantile of Student's t with 2 degrees of freedom.
T2 = 4.302652729911275
FIG3 = "fig3_off_policy_ladder"
N_LADDER = [{"algo": "ppo", "updates_per_round": n} for n in (1, 4)]


def on_log_odds(point: float, half: float) -> list[float]:
    """The ends of a share's interval whose half is that wide on the scale of shares."""
    moved = half / (point * (1 - point))
    centre = math.log(point / (1 - point))
    return [1 / (1 + math.exp(-(centre + sign * moved))) for sign in (-1, 1)]


def samples(made: DrawnFigure) -> dict[str, Line2D]:
    """By name without n the lines of the legend."""
    legend = made.figure.legends[0]
    texts = [text.get_text() for text in legend.get_texts()]
    lines = [line for line in legend.legend_handles if isinstance(line, Line2D)]
    return {text.partition(" (n=")[0]: line for text, line in zip(texts, lines, strict=True)}


def with_last(made: Record, **metrics: float) -> Record:
    """The same with other metrics of its last version."""
    return replace(made, evals=[*made.evals[:-1], {**made.evals[-1], **metrics}])


@functools.cache
def of_every(name: str) -> DrawnFigure:
    """A figure of the runs that all figures are tried on, drawn once for all that look at it."""
    return draw(name, grid(EVERY[name]))


@functools.cache
def of_ladder() -> DrawnFigure:
    """The same of the ladder of one algorithm."""
    return draw(FIG3, grid(N_LADDER))


def ladder_runs(seeds: tuple[int, ...] = (1, 2, 3)) -> list[Record]:
    return [run_of(s, parts, end_of(s, 0.0), "own") for parts in N_LADDER for s in seeds]


@pytest.mark.parametrize("name", list(FIGURES))
def test_every_figure_draws_its_runs_and_says_which(name: str) -> None:
    made = of_every(name)
    assert made.figure.axes and len(made.data)
    assert {"condition", "n", "seeds"} <= set(made.data)
    assert (made.data["seeds"].map(lambda text: len(text.split())) == made.data["n"]).all()
    assert "seed" in made.caption and "n = " in made.caption
    if "low" in made.data:
        held = made.data.dropna(subset=["low", "high"])
        assert (held["low"] <= held["y"]).all() and (held["y"] <= held["high"]).all()


def test_runs_of_before_a_node_are_of_one_condition_with_those_that_have_it() -> None:
    """Of a node that decides nothing. Before, no figure was drawn of such runs."""
    earlier, later = (run_of(seed, {"algo": "ppo"}, end_of(seed, 0), "own") for seed in (1, 2))
    node = {"tool_seconds": 0.0, "tool_deadline": 0.0}
    later = replace(later, config={**later.config, "episodes": node})
    every = cells(tables(earlier, later))
    assert len(every.cells) == 1
    assert "episodes.tool_deadline" in missing("stragglers", every)


def turned(row: Row) -> Row:
    """A version with a win-rate that falls where it rose."""
    return {**row, "gold/win_rate": 0.5 - float(row["gold/win_rate"])}


def test_an_algorithm_that_unlearns_has_no_target() -> None:
    """Every run would have reached it at SFT."""
    falling = [
        run_of(seed, {"algo": "ppo", "updates_per_round": n}, end_of(seed, -0.5), "falls")
        for n in (1, 4)
        for seed in (1, 2, 3)
    ]
    falling = [replace(one, evals=[turned(row) for row in one.evals]) for one in falling]
    rising = [
        run_of(seed, {"algo": "grpo", "updates_per_round": n}, end_of(seed, 0.1), "rises")
        for n in (1, 4)
        for seed in (1, 2, 3)
    ]
    made = draw("targets", tables(*falling, *rising))
    assert set(made.data["group"]) == {"grpo nano_s"}
    with pytest.raises(UserError, match="targets: it needs"):
        draw("targets", tables(*falling))


def test_every_figure_has_runs_to_be_tried_on() -> None:
    assert set(EVERY) == set(FIGURES)


def test_a_band_is_the_textbooks_t_interval_of_the_runs() -> None:
    data = of_ladder().data
    row = data[(data.condition == "N=1") & (data.version == 4) & (data.y_name == "gold/win_rate")]
    # Seeds end at .51, .52 and .53: mean .52, standard deviation .01.
    half = T2 * 0.01 / math.sqrt(3)
    first = row[row.x_name == "x/updates"].iloc[0]
    assert first[["x", "y"]].tolist() == pytest.approx([4, 0.52])
    assert first[["low", "high"]].tolist() == pytest.approx(on_log_odds(0.52, half))
    assert (first["n"], first["seeds"], first["interval"]) == (3, "1 2 3", "95% logit")
    # KL of seeds 1 to 3 is 2.1, 2.2, 2.3.
    against_kl = row[row.x_name == "kl/sft_k1"].iloc[0]
    assert against_kl[["x", "x_low"]].tolist() == pytest.approx([2.2, 2.2 - 10 * half])


def test_x_is_the_ledgers_with_its_unit() -> None:
    data = of_every("fig1_win_rate_and_cost").data
    last = data[(data.version == 4) & data.condition.eq("sync nano_s")].set_index("x_name")["x"]
    # Four rounds of 10 seconds on two devices, 1000 FLOPs each.
    assert last.to_dict() == pytest.approx(
        {"x/wall_seconds": 40, "x/device_hours": 80 / 3600, "x/flops": 4000}
    )


@pytest.mark.parametrize("key", list(KNOWN))
def test_no_two_values_of_a_part_look_alike(key: str) -> None:
    looks = [value_style(key, value) for value in KNOWN[key]]
    for one, other in combinations(looks, 2):
        assert one != other
        # Where the colour is the same, marker and line both tell.
        assert one.colour != other.colour or one.marker != other.marker


def test_numbers_rise_on_a_ramp_and_never_reach_each_other() -> None:
    looks = [value_style("updates_per_round", n) for n in (1, 2, 4, 8, 16, 32, 64, 128, 256)]
    assert len({each.colour for each in looks}) == len(looks)
    light = [sum(int(each.colour[i : i + 2], 16) for i in (1, 3, 5)) for each in looks]
    assert light == sorted(light)
    assert all(one.marker != other.marker for one, other in pairwise(looks))


def test_a_condition_looks_the_same_whichever_others_are_drawn() -> None:
    few = samples(of_ladder())
    many = samples(
        draw(FIG3, grid([{"algo": "ppo", "updates_per_round": n} for n in (64, 16, 4, 2, 1)]))
    )
    for name in ("N=1", "N=4"):
        for told in (Line2D.get_color, Line2D.get_marker, Line2D.get_linestyle):
            assert told(few[name]) == told(many[name])
    by_loss = samples(of_every("fig4_losses"))
    swapped = samples(draw("fig4_losses", grid(LADDER[::-1])))
    assert (
        by_loss["PPO"].get_color()
        == swapped["PPO"].get_color()
        == value_style("algo", "ppo").colour
    )


def test_an_unknown_name_has_a_look_of_its_own_that_stays() -> None:
    assert value_style("algo", "mine") == value_style("algo", "mine")
    assert value_style("algo", "mine") != value_style("algo", "yours")


def test_the_legend_says_n_and_its_range() -> None:
    runs = ladder_runs()[:-1]
    made = draw("fig4_losses", grid(LADDER, seeds=(1, 2)))
    texts = [text.get_text() for text in made.figure.legends[0].get_texts()]
    assert "PPO (n=2)" in texts and "N=16 (n=2)" in texts
    uneven = draw(FIG3, tables(*runs))
    shown = [text.get_text() for text in uneven.figure.legends[0].get_texts()]
    assert shown == ["N=1 (n=3)", "N=4 (n=2)"]
    assert "n = 3 (seeds 1 to 3)" in uneven.caption and "n = 2 (seeds 1, 2)" in uneven.caption


def test_the_caption_has_the_numbers_that_are_drawn() -> None:
    caption = of_ladder().caption
    half = T2 * 0.01 / math.sqrt(3)
    low, high = on_log_odds(0.52, half)
    assert f"N=1: gold win-rate 0.52 [{low:.3g}, {high:.3g}]" in caption
    assert "6 runs of 2 conditions" in caption and "95% t" in caption and "95% logit" in caption
    assert "kl/sft_k1" in caption and "fewer than 5" in caption


def test_one_seed_is_drawn_without_an_interval_and_says_so() -> None:
    made = draw(FIG3, grid(N_LADDER, seeds=(1,)))
    assert made.data[["low", "high"]].isna().all(axis=None)
    assert any("one seed" in text for text in made.warnings)
    assert made.figure.get_suptitle() == "n = 1: no interval"
    assert not [c for axes in made.figure.axes for c in axes.collections]


def test_what_needs_intervals_is_refused_for_one_seed() -> None:
    with pytest.raises(UserError, match="2 seeds each"):
        draw("differences", grid(N_LADDER, seeds=(1,)))


def test_five_seeds_are_not_called_few() -> None:
    made = draw(FIG3, grid(N_LADDER, seeds=range(1, 6)))
    assert made.figure.get_suptitle() == "" and not made.warnings


def test_a_version_that_is_nan_is_left_out_for_all_seeds_and_told() -> None:
    runs = ladder_runs()
    runs[1] = with_last(runs[1], **{"gold/win_rate": math.nan})
    made = draw(FIG3, tables(*runs))
    rates = made.data[(made.data.condition == "N=1") & (made.data.y_name == "gold/win_rate")]
    assert rates["version"].max() == 2 and made.data["version"].max() == 4
    assert any("seed 2 at [4]" in text for text in made.warnings)


def test_versions_that_a_seed_lacks_are_left_out_and_told() -> None:
    runs = ladder_runs()
    runs[0] = replace(runs[0], evals=runs[0].evals[:-1])
    made = draw(FIG3, tables(*runs))
    rates = made.data[(made.data.condition == "N=1") & (made.data.y_name == "gold/win_rate")]
    # At version 2 three quarters of .51, .52 and .53.
    assert rates["version"].max() == 2
    assert rates.loc[rates.version == 2, "y"].iloc[0] == pytest.approx(0.75 * 0.52)
    assert any("seed 1 at [4]" in text for text in made.warnings)


def test_a_condition_without_numbers_is_left_out_and_named() -> None:
    runs = ladder_runs()
    more = run_of(1, {"algo": "ppo", "updates_per_round": 16}, {"gold/win_rate": math.nan}, "own")
    made = draw(FIG3, tables(*runs, more))
    assert set(made.data["condition"]) == {"N=1", "N=4"}
    (text,) = (text for text in made.warnings if "N=16" in text)
    assert "its seeds do not all have gold/win_rate and kl/sft_k1 and x/updates" in text
    assert "1 left out" in made.caption


def test_seeds_that_are_too_few_for_an_interval_are_counted_as_the_reason() -> None:
    alone = run_of(1, {"algo": "ppo", "updates_per_round": 16}, end_of(1, 0.0), "own")
    made = draw("differences", tables(*ladder_runs(), alone))
    (text,) = (text for text in made.warnings if "N=16" in text)
    assert text.endswith("(1 seed, of 2 that it takes)")


def test_what_other_sweeps_lack_is_no_matter_of_a_figure_of_its_own_sweep() -> None:
    ours = [run_of(s, parts, end_of(s, 0.1), "off_policy_ladder_nano")
            for parts in N_LADDER for s in (1, 2)]  # fmt: skip
    other = run_of(1, {"algo": "ppo", "updates_per_round": 16}, {"gold/win_rate": 0.5}, "other")
    assert "left out" not in draw(FIG3, tables(*ours, other)).caption


def test_runs_that_did_not_finish_are_named() -> None:
    runs = ladder_runs()
    died = run_of(4, N_LADDER[0], end_of(4, 0.0), "own")
    made = draw(FIG3, tables(*runs, replace(died, facts=replace(died.facts, state="died"))))
    assert any("its state is died" in text for text in made.warnings)
    assert made.data["n"].max() == 3


def test_conditions_that_differ_in_more_than_is_told_are_never_in_one_panel() -> None:
    runs = ladder_runs()
    for seed in (1, 2, 3):
        for parts in N_LADDER:
            other = run_of(seed, {**parts, "schedule_per": "round"}, end_of(seed, 0.3), "own")
            runs.append(other)
    data = draw(FIG3, tables(*runs)).data
    last = data[(data.condition == "N=1") & (data.version == 4) & (data.y_name == "gold/win_rate")]
    # Two panels of a mean each, not one of both: .52 with the one rate, .82 with the other.
    assert sorted(set(last["y"].round(6))) == [0.52, 0.82] and (last["n"] == 3).all()


def test_a_figure_takes_the_runs_of_its_own_sweep_first() -> None:
    ours = [run_of(s, parts, end_of(s, 0.1), "off_policy_ladder_nano")
            for parts in N_LADDER for s in (1, 2)]  # fmt: skip
    made = draw(FIG3, tables(*ladder_runs((1, 2)), *ours))
    assert set(made.data["sweep"]) == {"off_policy_ladder_nano"}


def test_what_is_missing_names_what_varies_and_the_sweep() -> None:
    selection = cells(grid([{"algo": "ppo"}]))
    text = missing("staleness", selection)
    assert "staleness bound" in text and "correction" in text and "staleness[_nano]" in text
    with pytest.raises(UserError, match="the sweep staleness"):
        draw("staleness", grid([{"algo": "ppo"}]))
    with pytest.raises(UserError, match="no such figure, choose from"):
        draw("nothing", grid(N_LADDER))


def test_timelines_have_the_ledgers_seconds() -> None:
    data = of_every("fig2_timelines").data
    held = data[data.condition.str.startswith("sync nano_s")]
    first = held[held.version == 1].set_index("part")
    spans = {part: (row.x_low, row.x_high) for part, row in first.iterrows()}
    assert spans == {
        "trainer: generate": (0, 4), "trainer: score": (4, 5), "trainer: train": (5, 8),
        "trainer: other": (8, 10),
    }  # fmt: skip
    held = data[data.condition.str.startswith("async nano_s")].set_index(["part", "version"])
    # A round lasts 5.5 s, of which the trainer waits 2; S = 1 lets round 2 begin with version 1,
    # which is there after the first round.
    assert held.loc[("generator: generate", 2), "x_low"] == pytest.approx(5.5)
    assert held.loc[("trainer: train", 1), "x_low"] == pytest.approx(5.5 + 2)


def test_differences_are_in_pairs_and_judged_by_the_margin() -> None:
    runs = [run_of(s, parts, end_of(s, 0.05 * place + 0.001 * place * s), "own")
            for place, parts in enumerate(N_LADDER) for s in (1, 2, 3)]  # fmt: skip
    row = draw("differences", tables(*runs)).data.iloc[0]
    # Seeds are .051, .052 and .053 better: the interval of two one-sided tests is at 90%.
    half = 2.919985580355516 * 0.001 / math.sqrt(3)
    assert row[["y", "low", "high"]].tolist() == pytest.approx([0.052, 0.052 - half, 0.052 + half])
    assert row["interval"] == "90% t"
    assert row["verdict"] == "better by more than 2 points" and "N=4" in row["condition"]
    alike = [run_of(s, parts, end_of(s, 0.05 * place), "own")
             for place, parts in enumerate(N_LADDER) for s in (1, 2, 3)]  # fmt: skip
    row = draw("differences", tables(*alike)).data.iloc[0]
    assert row["verdict"].startswith("cannot tell: no seed differs from another")


def test_seeds_that_one_condition_alone_has_are_left_out_of_pairs() -> None:
    runs = ladder_runs((1, 2, 3, 4))[:-1]
    made = draw("differences", tables(*runs))
    row = made.data.iloc[0]
    assert (row["part"], row["n"], row["seeds"]) == ("paired difference", 3, "1 2 3")
    assert any("left out of the pairs" in text and "[4]" in text for text in made.warnings)


def test_the_front_has_what_nothing_dominates() -> None:
    cheap = {"mode": "async", "algo": "ppo"}
    dear = {"mode": "sync", "algo": "ppo"}
    runs = [run_of(s, parts, end_of(s, step), "own")
            for parts, step in ((cheap, 0.1), (dear, 0.0)) for s in (1, 2)]  # fmt: skip
    data = draw("pareto", tables(*runs)).data
    seconds = data[data.x_name == "x/wall_seconds"].set_index("condition")
    assert seconds["verdict"].to_dict() == {"async S=1": "on front", "sync S=0": "dominated"}
    assert seconds.loc["async S=1", "part"] == "membership 1.000"


def test_a_target_is_reached_on_the_way_to_the_end() -> None:
    made = draw("targets", grid(N_LADDER))
    data = made.data[(made.data.x_name == "x/updates") & (made.data.condition == "N=1")]
    # From .26 to .52 in the mean: nine tenths of the way is .494. Seed 3 rises from .3975 at
    # version 2 to .53 at version 4, and is there after 2 + 2 (.494 - .3975) / .1325 updates.
    assert data["part"].iloc[0] == "target 0.4940"
    assert data["x"].iloc[1] == pytest.approx(2 + 2 * (0.494 - 0.3975) / 0.1325)
    assert data["y"].tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1])


def test_aggregates_are_over_environments_and_count_their_runs() -> None:
    conditions = [
        {"updates_per_round": n, "model": m} for m in ("nano_s", "nano_m") for n in (1, 4)
    ]
    made = draw("aggregates", grid(conditions))
    # N=1 ends at .52 with nano_s and at .56 with nano_m; N=4 at .54 and .58.
    means = made.data[made.data.part == "mean"].set_index("condition")["y"]
    assert means.to_dict() == pytest.approx({"N=1": 0.54, "N=4": 0.56})
    assert "12 runs of 4 conditions" in made.caption
    # Of two environments the median is the mean, and the gap to 1 is what the mean leaves.
    assert [panel.get_xlabel() for panel in made.figure.axes] == ["IQM", "mean"]
    third = [{"updates_per_round": n, "model": "nano_l"} for n in (1, 4)]
    more = draw("aggregates", grid([*conditions, *third]))
    assert [panel.get_xlabel() for panel in more.figure.axes] == ["IQM", "mean", "median"]


def test_aggregates_of_one_environment_are_not_drawn() -> None:
    assert missing("aggregates", cells(grid(LADDER)))


def test_distances_are_those_of_the_verdict_and_leave_version_0_out() -> None:
    tables_ = tables(*(run_of(s, parts, end_of(s, 0.1 * place), "own")
                       for place, parts in enumerate(N_LADDER) for s in (1, 2, 3)))  # fmt: skip
    made = draw("frontier", tables_)
    row = made.data[made.data["part"] == "distance at equal KL"].iloc[0]
    first, second = cells(tables_).cells
    apart = at_equal_kl(second, first, Plane("gold/win_rate", "kl/sft_k1"))
    assert row["y"] == pytest.approx(np.mean([one.distance for one in apart.values()]))
    # Seed 1: N=1 goes from (1.05, .3825) to (2.1, .51), N=4 from (1.55, .4575) on; N=4 ends at 3.1.
    n1 = np.interp([1.55, 2.1], [1.05, 2.1], [0.3825, 0.51]).mean()
    n4 = np.interp([1.55, 2.1], [1.55, 3.1], [0.4575, 0.61]).mean()
    assert apart[1].distance == pytest.approx(n4 - n1) and apart[1].span == pytest.approx(0.55)
    lines = made.data[made.data["part"] == "frontier"]
    assert lines["x"].min() > 0 and row["n"] == 3


def test_seeds_without_kl_in_common_have_no_distance_and_are_told() -> None:
    runs = ladder_runs()
    far = [replace(run, evals=[{**row, "kl/sft_k1": float(row["kl/sft_k1"]) + 9 * (seed == 1)}
                               for row in run.evals])
           for seed, run in enumerate(runs[3:], start=1)]  # fmt: skip
    made = draw("frontier", tables(*runs[:3], *far))
    row = made.data[made.data["part"] == "distance at equal KL"].iloc[0]
    assert (row["n"], row["seeds"]) == (2, "2 3")
    assert any("2 of 3 seeds have KL in common" in text for text in made.warnings)


def test_a_family_spans_sweeps_and_has_each_condition_once() -> None:
    update, each_round = ([{"updates_per_round": n, "schedule_per": s} for n in (1, 64)]
                          for s in ("update", "round"))  # fmt: skip
    ladder = [run_of(s, parts, end_of(s, 0.0), "off_policy_ladder_nano")
              for parts in update for s in (1, 2)]  # fmt: skip
    own = [run_of(s, parts, end_of(s, 0.0), "rate_schedule_nano")
           for parts in each_round for s in (1, 2)]  # fmt: skip
    again = [replace(run_of(s, update[0], end_of(s, 0.3), "more_nano"),
                     evals=run_of(s, update[0], end_of(s, 0.3), "more_nano").evals[1:])
             for s in (1, 2)]  # fmt: skip
    data = draw("rate_schedule", tables(*ladder, *own, *again)).data
    rates = data[data.y_name == "gold/win_rate"]
    # Four conditions; the one that two sweeps have is of the sweep with more evaluated versions.
    assert len(rates) == 4 and set(rates["sweep"]) == {
        "off_policy_ladder_nano",
        "rate_schedule_nano",
    }


def test_models_come_by_size_as_panels_and_as_series() -> None:
    sizes = ("nano_l", "nano_m", "nano_s")
    modes = [{"mode": m, "model": s} for s in sizes for m in ("sync", "async")]
    rows = draw("fig9_reward_and_drift", grid(modes))
    titles = [panel.get_title("left") for panel in rows.figure.axes]
    by_size = [f"arithmetic {size}" for size in ("0.3M", "1M", "4M")]
    assert [text for text in titles if text] == by_size
    steps = [{"updates_per_round": n, "model": s} for s in sizes for n in (1, 16)]
    series = draw("fig5_policy_scale", grid(steps)).data["condition"]
    assert [*dict.fromkeys(text.split()[0] for text in series)] == [*reversed(sizes)]


def test_runs_of_another_sweep_stand_beside_only_where_a_sweep_has_none() -> None:
    def ran(sweep: str, model: str, samples: int, updates: int) -> list[Record]:
        parts = {"mode": "lagged", "model": model, "group_size": samples, "updates": updates}
        return [run_of(seed, parts, end_of(seed, 0), sweep) for seed in (1, 2)]

    own = [
        *ran("samples_per_prompt_nano", "nano_s", 2, 256),
        *ran("samples_per_prompt_nano", "nano_s", 4, 128),
        *ran("samples_per_prompt_nano", "nano_l", 4, 32),
    ]
    # The one pass of nano_s has other updates than its own sweep's.
    beside = [*ran("passes_nano", "nano_s", 2, 64), *ran("passes_nano", "nano_l", 2, 64)]
    data = draw("fig8_samples", tables(*own, *beside)).data
    ends = data[["env", "condition", "sweep"]].drop_duplicates()
    assert {tuple(row) for row in ends.to_numpy()} == {
        ("arithmetic-nano_s", "K=2", "samples_per_prompt_nano"),
        ("arithmetic-nano_s", "K=4", "samples_per_prompt_nano"),
        ("arithmetic-nano_l", "K=2", "passes_nano"),
        ("arithmetic-nano_l", "K=4", "samples_per_prompt_nano"),
    }


def test_conditions_of_other_settings_are_no_family_across_sweeps() -> None:
    shorter = [{"updates_per_round": 64, "schedule_per": "round", "group_size": 4}]
    runs = [run_of(s, {"updates_per_round": 1, "schedule_per": "update"}, end_of(s, 0), "one")
            for s in (1, 2)]  # fmt: skip
    runs += [run_of(s, parts, end_of(s, 0), "two") for parts in shorter for s in (1, 2)]
    assert missing("rate_schedule", cells(tables(*runs)))


def many_families() -> Tables:
    algos = ("ppo", "online_dpo", "best_of_n", "proximal_rloo", "grpo")
    return grid([{"algo": a, "updates_per_round": n} for a in algos for n in (1, 4, 16)])


def test_titles_verdicts_and_ticks_of_differences_lie_on_the_page() -> None:
    figure = draw("differences", many_families()).figure
    figure.draw_without_rendering()
    page = figure.bbox
    panels = figure.axes
    assert len(panels) == 5 and figure.get_figheight() < 4
    for panel in panels:
        words = [panel.title, panel._left_title, *panel.texts]  # type: ignore[attr-defined]
        boxes = [word.get_window_extent() for word in words if word.get_text()]
        assert all(box.x0 >= page.x0 and box.x1 <= page.x1 for box in boxes)
        assert panel.get_window_extent().width > page.width / 4
    assert labels_are_apart(panels[-1])


NAMES = ("", "a_correction_of_a_long_name", "a_correction_" * 5)


def each_once(*values: int) -> list[Any]:
    """All names with all values, of which each is in one case that is tried often."""
    often = {(NAMES[place % len(NAMES)], value) for place, value in enumerate(values)}
    return [
        pytest.param(*case, marks=() if case in often else pytest.mark.slow)
        for case in product(NAMES, values)
    ]


@pytest.mark.parametrize(("name", "digits"), each_once(1, 2, 3, 4))
def test_labels_of_aggregates_are_apart(digits: int, name: str) -> None:
    step = 3 * 10.0**-digits
    runs = [run_of(s, parts, {"gold/win_rate": 0.8125 + step * (s / 30 - n / 10)}, "own")
            for n, parts in enumerate([{}, {"correction": name or "decoupled"}])
            for s in (1, 2, 3)]  # fmt: skip
    runs += [run_of(s, {**parts, "model": m}, {"gold/win_rate": 0.8125 + step * s / 30}, "own")
             for parts in ({}, {"correction": name or "decoupled"}) for m in ("nano_m", "nano_l")
             for s in (1, 2, 3)]  # fmt: skip
    made = draw("aggregates", tables(*runs)).figure
    made.draw_without_rendering()
    assert len(made.axes) == 3 and all(map(labels_are_apart, made.axes))
    assert all(len(seen_labels(panel)) > 1 for panel in made.axes)
    titles = [panel.xaxis.label.get_window_extent() for panel in made.axes]
    assert all(one.x1 < other.x0 for one, other in pairwise(titles))
    rows = [text.get_window_extent() for text in made.axes[0].get_yticklabels()]
    assert all(box.x0 >= made.bbox.x0 for box in rows)
    assert all(one.y0 > other.y1 for one, other in pairwise(rows))


@pytest.mark.parametrize(("name", "conditions"), each_once(1, 4, 12))
def test_labels_of_frontiers_are_apart_and_on_one_page(name: str, conditions: int) -> None:
    parts = [{}, *({"correction": f"{name}c{n}"} for n in range(conditions))]
    runs = [run_of(s, own | {"algo": algo}, end_of(s, 0.002 * n), "own")
            for algo in ("ppo", "online_dpo", "best_of_n") for n, own in enumerate(parts)
            for s in (1, 2, 3)]  # fmt: skip
    pages = draw_pages("frontier", cells(tables(*runs)))
    titles = [panel.get_title(loc="left") for one in pages for panel in one.figure.axes[::2]]
    assert len({*titles}) == 3
    for made in pages:
        figure = made.figure
        figure.draw_without_rendering()
        # Panels above have the scale of the last ones.
        assert figure.get_figheight() <= PAGE and all(map(labels_are_apart, figure.axes[-2:]))
        for curves, distances in zip(figure.axes[::2], figure.axes[1::2], strict=True):
            rows = [text.get_window_extent() for text in distances.get_yticklabels()]
            assert len(rows) == conditions
            assert all(one.y0 > other.y1 for one, other in pairwise(rows))
            left, right = (panel.get_window_extent() for panel in (curves, distances))
            assert left.x1 < min(row.x0 for row in rows)
            # Neither panel collapses beneath names or legend.
            assert min(left.width, right.width) > figure.bbox.width / 4
            assert min(left.height, right.height) > 0.8 * figure.dpi
            title: Any = curves._left_title  # type: ignore[attr-defined]
            box = title.get_window_extent()
            assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
            assert box.y1 <= figure.bbox.y1 and not distances.get_title(loc="left")


def test_a_frontier_without_kl_in_common_says_so_in_the_place_of_distances() -> None:
    runs = ladder_runs()
    far = [replace(run, evals=[{**row, "kl/sft_k1": float(row["kl/sft_k1"]) + 9}
                               for row in run.evals])
           for run in runs[3:]]  # fmt: skip
    figure = draw("frontier", tables(*runs[:3], *far)).figure
    assert [text.get_text() for text in figure.axes[1].texts] == ["no KL in common"]


def test_long_names_of_rows_lack_what_all_of_them_have() -> None:
    assert shown_names(
        ["grpo-replay=half N=1 run.updates=64 of=four", "grpo N=1 run.updates=64"]
    ) == [
        "GRPO-replay=half of=four",
        "GRPO",
    ]
    assert shown_names(["grpo N=1", "grpo N=4"]) == ["GRPO N=1", "GRPO N=4"]


def seen_labels(panel: Axes) -> list[Any]:
    """The boxes of the labels along x that lie in the panel."""
    low, high = panel.get_xlim()
    ticks = panel.xaxis.get_major_ticks()
    labels = [tick.label1 for tick in ticks if low <= tick.get_loc() <= high]
    return [label.get_window_extent() for label in labels if label.get_text()]


def labels_are_apart(panel: Axes) -> bool:
    return all(one.x1 < other.x0 for one, other in pairwise(seen_labels(panel)))


def test_a_front_shows_seeds_and_interquartile_means_with_both_intervals() -> None:
    seeds = (1, 2, 3, 4)
    runs = [run_of(s, {"mode": mode, "algo": "ppo"}, end_of(s, 0), "own")
            for mode in ("sync", "async") for s in seeds]  # fmt: skip
    made = draw("pareto", tables(*runs))
    data = made.data[made.data.x_name == "x/flops"].set_index("condition")
    ends = sorted(end_of(s, 0)["gold/win_rate"] for s in seeds)
    # Of four the middle two.
    assert data.loc["sync S=0", "y"] == pytest.approx((ends[1] + ends[2]) / 2)
    assert (data["low"] <= data["y"]).all() and (data["y"] <= data["high"]).all()
    assert (data["low"] >= ends[0] - 1e-12).all() and (data["high"] <= ends[-1] + 1e-12).all()
    assert (data["x_low"] <= data["x"]).all() and (data["x"] <= data["x_high"]).all()
    panel = made.figure.axes[0]
    faint = [line for line in panel.lines if line.get_alpha() == 0.3]
    assert [len(np.asarray(line.get_xdata())) for line in faint] == [4, 4]
    assert sum(line.get_linestyle() == ":" for line in panel.lines) == 1, "sync joined to async"


def test_a_figure_of_any_runs_has_a_page_for_each_sweep() -> None:
    runs = [run_of(s, {"mode": mode}, end_of(s, 0), f"sweep {number}")
            for number in range(3) for mode in ("sync", "async") for s in (1, 2)]  # fmt: skip
    selection = cells(tables(*runs))
    for name in ("pareto", "differences", "frontier"):
        pages = draw_pages(name, selection)
        assert all(page.figure.get_figheight() < PAGE for page in pages)
        drawn = [list(page.data["sweep"].unique()) for page in pages]
        assert drawn == [[f"sweep {number}"] for number in range(3)], "each once"
    assert [page_name("pareto", place) for place in (0, 1)] == ["pareto", "pareto_2"]
    (one,) = draw_pages("pareto", selection.only(sweep="sweep 1"))
    assert set(one.data["sweep"]) == {"sweep 1"}


def dearer(made: Record, times: float, started: str = "") -> Record:
    """The same with so many times the FLOPs, begun at that time."""
    rounds = [{**row, "total/flops": times * float(row["total/flops"])} for row in made.rounds]
    return replace(made, rounds=rounds, facts=replace(made.facts, started=started, machine="m"))


def start_of(number: int, seconds: int) -> str:
    """When a run begins, of runs that begin so many seconds after each other."""
    minutes, rest = divmod(number * seconds, 60)
    return f"2026-01-01T00:{minutes:02d}:{rest:02d}+00:00"


def two_costs(seconds: int) -> Tables:
    """Runs of 40 seconds of two conditions, one of which takes twice the FLOPs."""
    parts = [{"passes": t} for t in (1, 2) for _ in range(3)]
    return tables(
        *(dearer(run_of(place % 3 + 1, each, end_of(place % 3, 0), "own"),
                 each["passes"], start_of(place, seconds))
          for place, each in enumerate(parts))
    )  # fmt: skip


def test_seconds_of_runs_beside_each_other_are_not_drawn_and_it_is_stated_why() -> None:
    alone, beside = draw("pareto", two_costs(40)), draw("pareto", two_costs(30))
    every = {"x/flops", "x/wall_seconds", "x/device_hours"}
    assert set(alone.data["x_name"]) == every and len(alone.figure.axes) == 3
    assert set(beside.data["x_name"]) == {"x/flops"} and len(beside.figure.axes) == 1
    text = "Not comparable: device-hours and wall-clock (s), as 5 of 6 runs ran beside others."
    title = beside.figure.legends[0].get_title().get_text()
    assert text in beside.caption and text in title.replace("\n", " ")
    assert "Not comparable" not in alone.caption
    # FLOPs are no seconds: a sweep of equal ones has a front of seconds, or none.
    equal = [dearer(run_of(s, {"mode": m}, end_of(s, 0), "own"), 1.0, start_of(0, 1))
             for m in ("sync", "async") for s in (1, 2)]  # fmt: skip
    assert missing("pareto", cells(tables(*equal)))


def test_runs_of_several_machines_are_not_compared_by_seconds() -> None:
    runs = [dearer(run_of(s, {"passes": t}, end_of(s, 0), "own"), t, start_of(4 * s + t, 50))
            for t in (1, 2) for s in (1, 2)]  # fmt: skip
    runs[0] = replace(runs[0], facts=replace(runs[0].facts, machine="other"))
    made = draw("pareto", tables(*runs))
    assert "as runs of 2 machines" in made.caption and set(made.data["x_name"]) == {"x/flops"}


def test_sweeps_of_one_cost_have_no_front() -> None:
    assert missing("pareto", cells(tables(*ladder_runs())))


def test_membership_stands_beside_marks_and_fills_them() -> None:
    """Two conditions that are each dominated in some draws, and one in all."""
    ends_ = {"sync": (0.50, 0.60, 0.55), "async": (0.58, 0.52, 0.56)}
    runs = [run_of(s, {"mode": mode, "algo": "ppo"}, {**end_of(s, 0), "gold/win_rate": rate}, "own")
            for mode, rates in ends_.items() for s, rate in enumerate(rates, start=1)]  # fmt: skip
    made = draw("pareto", tables(*runs))
    panel = made.figure.axes[0]
    data = made.data[made.data.x_name == "x/flops"]
    shares = [float(text.removeprefix("membership ")) for text in data["part"]]
    shown = sorted(text.get_text() for text in panel.texts)
    assert shown == sorted(f"{100 * share:.0f}" for share in shares if share >= 0.005)
    marks = [line for line in panel.lines if line.get_markersize() == 5]
    lightness = {str(line.get_markerfacecolor()) for line in marks}
    assert 0 < min(shares) < 1 and len(lightness) == 2
    wall = made.data[made.data.x_name == "x/wall_seconds"].set_index("condition")["part"]
    assert wall["async S=1"] == "membership 1.000"


def corrections_at(rates: tuple[float, ...], sweep: str) -> list[Record]:
    parts = [{"mode": "lagged", "max_staleness": 4, "correction": c, "lr": rate}
             for rate in rates for c in ("none", "icepop")]  # fmt: skip
    return [run_of(s, each, end_of(s, 0), sweep) for each in parts for s in (1, 2)]


def test_families_of_one_name_are_called_by_the_setting_in_which_they_differ() -> None:
    made = draw("corrections", tables(*corrections_at((1e-4, 1e-3), "own")))
    assert sorted(made.data["group"].unique()) == [
        "grpo nano_s lr=0.0001",
        "grpo nano_s lr=0.001",
    ]


def test_families_of_several_sweeps_are_called_by_sweep_and_by_setting_within_one() -> None:
    runs = [*corrections_at((1e-4, 1e-3), "one"), *corrections_at((1e-2,), "other")]
    made = draw("corrections", tables(*runs))
    assert sorted(made.data["group"].unique()) == [
        "grpo nano_s (other)",
        "grpo nano_s lr=0.0001 (one)",
        "grpo nano_s lr=0.001 (one)",
    ]


def test_families_on_several_pages_have_names_of_their_own() -> None:
    rates = tuple(1e-5 * k for k in range(1, 25))
    pages = draw_pages("corrections", cells(tables(*corrections_at(rates, "own"))))
    names = [name for page in pages for name in page.data["group"].unique()]
    assert len(pages) > 1 and len(names) == len({*names}) == len(rates)
    assert all(" lr=" in name for name in names)


def many_conditions() -> list[dict[str, Any]]:
    """Of a sweep over rounding, rate, staleness and correction, as corrections_2026."""
    return [
        {
            "mode": "lagged",
            "max_staleness": lag,
            "correction": correction,
            "lr": rate,
            "beta1": beta,
        }
        for beta in (0.8, 0.9)
        for rate in (1e-4, 1e-3)
        for lag in (0, 4, 16)
        for correction in ("none", "icepop", "kpop")
    ]


def test_very_many_conditions_are_drawn_in_parts_that_share_a_setting() -> None:
    made = draw("differences", grid(many_conditions(), seeds=(1, 2)))
    groups = sorted(made.data["group"].unique())
    assert [group.rpartition(" ")[2] for group in groups] == ["beta1=0.8", "beta1=0.9"]
    for group in groups:
        rows = {text for text in made.data[made.data["group"] == group]["condition"]}
        assert len(rows) == 17, "the first is what others are against"
        # Parts that differ, and the one setting that these do not name.
        assert all("lr=" in row and "beta1" not in row for row in rows)
        assert "icepop S=4 lr=0.001" in rows


@pytest.mark.parametrize(
    ("alone", "sizes"), [([], [16, 16]), ([0.8], [16, 17]), ([0.7, 0.8], [2, 16, 16])]
)
def test_a_condition_that_would_be_alone_in_its_part_is_drawn_in_another(
    alone: list[float], sizes: list[int]
) -> None:
    """The rate, of 16 values, divides the first ones into pairs; beta1 does it sooner."""
    rates = [1e-4 * (place + 1) for place in range(16)]
    pairs = [{"beta1": beta, "lr": rate} for beta in (0.9, 0.95) for rate in rates]
    every = [*pairs, *({"beta1": beta, "lr": 1e-4} for beta in alone)]
    parts = by_sweep(cells(grid(every, seeds=(1, 2))).cells)
    assert sorted(len(part.cells) for part in parts) == sizes


def test_long_names_of_rows_leave_room_for_their_panels() -> None:
    word = "a_correction_of_a_very_long_name"
    conditions = [
        {"mode": "lagged", "correction": word, "max_staleness": lag, "algo": algo}
        for algo in ("grpo", "ppo", "rloo", "copg")
        for lag in (0, 4)
    ]
    long = [each | {"correction": "none"} for each in conditions] + conditions
    figure = draw("differences", grid(long, seeds=(1, 2))).figure
    figure.draw_without_rendering()
    places = [panel.get_position() for panel in figure.axes]
    assert len(places) == 4 and len({place.x0 for place in places}) == 1, "one below the other"
    assert min(place.width for place in places) > 0.5


def test_conditions_that_no_part_or_setting_distinguishes_are_called_in_full() -> None:
    (one, other) = corrections_at((1e-4,), "own")[:2]
    alike = cells(tables(one, other)).cells * 2
    assert distinct_names(alike, ["correction"]) == [cell.condition for cell in alike]
    (own,) = {cell.title(["correction"]) for cell in alike}
    assert distinct_names(alike[:1], ["correction"]) == [own or "no correction"]


def test_settings_that_separate_are_as_few_as_can_be() -> None:
    settings = [{"a": str(a), "b": str(b), "c": str(a + b)} for a in (0, 1) for b in (0, 1)]
    assert separating_keys(settings) == ["c", "a"]
    assert separating_keys([{"a": "0"}, {"a": "0"}]) == []
    assert separating_keys([{"a": "0"}]) == []


def test_a_figure_is_made_of_the_runs_of_its_own_sweep_wherever_they_are() -> None:
    other, own = (cells(tables(*corrections_at((1e-4,), s))) for s in ("x", "corrections_nano"))
    assert best_of("corrections", (other, own)) is own
    assert best_of("corrections", (other,)) is other
    assert best_of("staleness_rate", (other, own)) is None


def test_sweeps_with_sync_and_async_come_first() -> None:
    ladder = [dearer(run_of(s, {"passes": t}, end_of(s, 0), "a ladder"), t)
              for t in (1, 2) for s in (1, 2)]  # fmt: skip
    modes = [run_of(s, {"mode": m}, end_of(s, 0), "modes") for m in ("sync", "async")
             for s in (1, 2)]  # fmt: skip
    drawn = draw("pareto", tables(*ladder, *modes)).data["sweep"].unique()
    assert list(drawn) == ["modes", "a ladder"]


def test_no_legend_has_two_entries_that_look_the_same() -> None:
    modes = [run_of(s, {"mode": m}, end_of(s, 0), "modes") for m in ("sync", "async")
             for s in (1, 2)]  # fmt: skip
    ladder = [dearer(run_of(s, {"passes": t}, end_of(s, 0), "ladder"), t)
              for t in (1, 2) for s in (1, 2)]  # fmt: skip
    figure = draw("pareto", tables(*modes, *ladder)).figure
    legends = [legend for panel in figure.axes if (legend := panel.get_legend())]
    assert len(legends) == 2 and not figure.legends
    for legend in legends:
        lines = [line for line in legend.legend_handles if isinstance(line, Line2D)]
        looks = [(x.get_color(), x.get_marker(), str(x.get_linestyle())) for x in lines]
        assert len(set(looks)) == len(looks)


def test_panels_show_points_and_what_fits_of_intervals() -> None:
    near: list[tuple[float, float, float]] = [(0.0, -0.1, 0.1), (1.0, 0.9, 1.1)]
    assert limits(near, of_share=False) == (-0.1, 1.1, False)
    low, high, is_cut = limits([(0.0, -50.0, 50.0), (1.0, -50.0, 50.0)], of_share=False)
    assert is_cut and low == pytest.approx(-1.2) and high == pytest.approx(2.2)
    # A share has no room beyond 0 and 1.
    assert limits([(0.5, -3.0, 4.0), (0.9, -3.0, 4.0)], of_share=True)[1] == 1.0
    # In rows of their own points cannot fall on each other: typical intervals are whole.
    apart = [(0.14, 0.12, 0.16), (0.141, 0.12, 0.162), (0.142, 0.12, 0.19)]
    assert limits(apart, of_share=True)[2]
    low, high, is_cut = limits(apart[:2], of_share=True, most=math.inf)
    assert (low, high) == pytest.approx((0.12, 0.162)) and not is_cut
    # What differs by rounding is one value, in the middle of an axis whose ticks need no offset.
    low, high, _ = limits([(4.4792, 4.4792, 4.4792), (4.4792 + 1e-7,) * 3], of_share=False)
    assert high - low > 1 and low < 4.4792 < high


def test_intervals_are_of_t_at_any_number_of_seeds_and_of_shares_on_log_odds() -> None:
    """By the table of coverage BCa holds less than t from 10 seeds on, too (docs/statistics.md)."""
    for seeds in (range(1, 4), range(1, 11), range(1, 21)):
        (cell,) = cells(grid([{"algo": "ppo"}], seeds)).cells
        assert mean_curve(cell, "version", "kl/sft_k1").interval == "95% t"
        assert mean_curve(cell, "version", "gold/win_rate").interval == "95% logit"


def test_names_with_marks_are_drawn_as_they_are() -> None:
    marks = ["a$b$_%\\", "_x^{&", "two\nlines <b>"]
    conditions: list[dict[str, Any]] = [
        {"algo": name, "updates_per_round": n} for name in marks for n in (1, 4)
    ]
    made = draw("fig4_losses", grid(conditions))
    texts = [text.get_text() for text in made.figure.legends[0].get_texts()]
    assert {"a$b$_%\\ (n=3)", " _x^{& (n=3)", "two lines <b> (n=3)"} <= set(texts)


def test_rows_are_called_by_what_their_own_conditions_share() -> None:
    """A sweep that varies the algorithm takes no algorithm from the names of other rows."""
    ladder = ladder_runs()
    others = [
        run_of(seed, {"algo": algo, "updates_per_round": 1}, end_of(seed, 0.0), "others")
        for algo in ("ppo", "online_dpo")
        for seed in (1, 2, 3)
    ]
    made = draw("differences", tables(*ladder, *others))
    titles = [" ".join(panel.get_title(loc="left").split()) for panel in made.figure.axes]
    assert any(title.startswith("PPO 0.3M, against N=1") for title in titles)
    assert any(title.startswith("0.3M, against") for title in titles)
