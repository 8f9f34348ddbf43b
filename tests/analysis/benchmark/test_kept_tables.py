"""What the tracked benchmark's own tables showed to be wrong: each case with its numbers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from rlhf_lab.experiment.config import plain, typed
from rlhf_lab.experiment.registry import conf_folder
from rlhf_lab_analysis.benchmark.kept import COLLAPSES, load_weak
from rlhf_lab_analysis.comparison.registry.answers import Answer, Criteria
from rlhf_lab_analysis.comparison.registry.decisions import decide_claim
from rlhf_lab_analysis.comparison.registry.definitions import FOLDER, read_registry
from rlhf_lab_analysis.comparison.registry.gates import gated
from rlhf_lab_analysis.comparison.registry.questions import claim_named
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.figures.catalogue import FIGURES, draw_selection
from rlhf_lab_analysis.figures.figure_builder import DrawnFigure
from rlhf_lab_analysis.figures.requirement import of_sweeps
from rlhf_lab_analysis.statistics.decisions import Verdict
from rlhf_lab_analysis.tables.group_checks import compared_settings
from rlhf_lab_analysis.tables.table import Tables
from tests.analysis.comparison.test_one_rule import check_one_rule
from tests.support.composed import composed

pytestmark = [pytest.mark.pages, pytest.mark.usefixtures("costly")]

ROOT = Path(__file__).parents[3]
SWEEPS = conf_folder().parent / "sweeps"
LADDER = "off_policy_ladder_nano"
# No more groups than needed was 0 when the tables were made, and is 1 times as many now.
CHANGED = {"run.oversample"}


@pytest.fixture(scope="module")
def whole(kept_benchmark: Tables) -> Tables:
    return kept_benchmark


@pytest.fixture(scope="module")
def every(whole: Tables) -> Selection:
    return cells(whole)


def without(tables: Tables, **wanted: Any) -> Tables:
    """The tables without one run, as if it had been lost."""
    (lost,) = tables.only(**wanted).runs["run"]
    runs, points, versions = (
        frame[frame["run"] != lost] for frame in (tables.runs, tables.points, tables.versions)
    )
    return Tables(points, versions, runs, tables.findings)


def asked(selection: Selection, claim: str, scale: str = "") -> Answer:
    """The answer to a claim of any runs."""
    made, _ = decide_claim(claim_named(claim), selection, Criteria())
    (only,) = [one.answer for one in made if one.answer.setting.endswith(scale)]
    return only


def row_of(made: DrawnFigure, condition: str, group: str = "") -> Any:
    data = made.data
    held = data[data["condition"].eq(condition) & data["group"].str.startswith(group)]
    (only,) = held.to_dict("records")
    return only


def test_a_lost_run_leaves_its_seed_out_of_pairs_and_is_no_other_method(whole: Tables) -> None:
    own = whole.only(sweep="verified_answers_nano", algo="ppo")
    tables = without(own, mode="async", stage_seed=3)
    selection = cells(tables)
    equal = asked(selection, "async_costs_nothing")
    (number,) = equal.numbers
    assert number.estimate.name == "paired difference"
    assert number.estimate.basis.seeds == (7,)
    assert any("left out of the pairs" in text and "[3]" in text for text in equal.warnings)
    # The figure pairs by the same rule, so that both have the same ends.
    row = row_of(draw_selection("differences", selection), "async S=1")
    ends = (number.estimate.point, number.estimate.low, number.estimate.high)
    assert (row["y"], row["low"], row["high"]) == pytest.approx(ends)
    assert (row["part"], row["seeds"]) == ("paired difference", "1 2 4 5 6 7 8")


def test_a_lost_run_takes_neither_the_verdict_of_the_ladder_nor_its_n(whole: Tables) -> None:
    ladder = whole.only(sweep=LADDER, algo=["ppo", "online_dpo"])
    lost = without(ladder, algo="ppo", updates_per_round=64, stage_seed=4)
    assert asked(cells(lost), "most_updates_cost", "ppo").verdict is Verdict.holds
    curves = (asked(cells(tables), "one_curve", "ppo") for tables in (ladder, lost))
    # Which N shares KL with N=1 in all seeds does not hang on one lost run.
    assert len({curve.numbers[0].label for curve in curves}) == 1


def test_seconds_a_round_do_not_depend_on_how_many_rounds_were_kept(
    whole: Tables, every: Selection
) -> None:
    """Rows of T = 1, 2 and 4 stand for 4, 2 and 1 rounds: the ledger's seconds are of a round."""
    selection = every.only(sweep="passes_nano", model="nano_s")
    made = draw_selection("fig6_who_waits", selection)
    titles = [panel.get_title(loc="left") for panel in made.figure.axes]
    generated = [float(re.findall(r", ([\d.]+) s of generation", title)[0]) for title in titles]
    for cell, seconds in zip(in_rank(selection, "passes"), generated, strict=True):
        rounds = cell.config("run.updates") / cell.parts["passes"]
        least, most = (
            np.mean([*cell.last_recorded(f"seconds/{part}").values()]) / rounds
            for part in ("generate", "take")
        )
        # Seeds differ by their machine's other work; a row of T = 1 stands for 4 rounds.
        assert 0.5 * least < seconds < 1.9 * most
    assert "one round in 4" in made.caption and "one round in 2" in made.caption


def in_rank(selection: Selection, part: str) -> list[Any]:
    return sorted(selection.cells, key=lambda cell: cell.parts[part])


def test_a_share_at_the_target_is_drawn_as_far_as_all_runs_are_known(every: Selection) -> None:
    made = draw_selection("targets", every.only(sweep=LADDER, algo="ppo"))
    held = made.data[made.data["condition"].eq("N=64")]
    curve = held[held["x_name"].eq("x/updates")]
    # None arrives in 64 updates; Kaplan and Meier's curve went to 1 at the longest run's end.
    assert curve["y"].max() == 0 and curve["x"].max() <= 64
    assert "[-" not in made.caption, "no time is below 0"


def test_a_claim_of_all_parts_is_not_corrected_for_their_number(every: Selection) -> None:
    order = asked(every.only(sweep=LADDER), "online_dpo_loses_least")
    assert order.verdict is Verdict.holds
    assert {one.estimate.basis.options.percent for one in order.numbers} == {"95%"}
    # One of each algorithm is.
    costs = asked(every.only(sweep=LADDER), "most_updates_cost", "ppo")
    assert {one.estimate.basis.options.percent for one in costs.numbers} == {"98.75%"}


def test_page_figure_and_table_have_one_rule(whole: Tables, every: Selection) -> None:
    check_one_rule(whole, every.only(sweep=LADDER), 4)


@pytest.mark.parametrize("name", ["fig4_losses", "staleness", "fig7_passes"])
def test_levels_of_win_rates_lie_between_0_and_1(every: Selection, name: str) -> None:
    data = draw_selection(name, every).data
    held = data[data["y_name"].eq("gold/win_rate")]
    assert len(held) and held["low"].min() > 0 and held["high"].max() < 1
    assert set(held["interval"]) == {"95% logit"}


def test_the_figure_of_policies_has_all_three_sizes(every: Selection) -> None:
    """The smallest ones are of another sweep."""
    data = draw_selection("fig5_policy_scale", every).data
    sizes = {words.split()[0] for words in data["condition"]}
    assert sizes == {"nano_s", "nano_m", "nano_l"}
    assert {words.split()[-1] for words in data["group"]} == {"online_dpo", "ppo"}


def test_the_sweeps_of_each_figure_have_kept_its_metrics(every: Selection) -> None:
    """The tables had lost the accuracy of verified answers, and with it their figure."""
    own = {name: of_sweeps(every.cells, spec.sweeps) for name, spec in FIGURES.items()}
    kept = {name: cells_ for name, cells_ in own.items() if cells_}
    assert kept
    for name, cells_ in kept.items():
        needs = FIGURES[name].needs
        assert any(needs.has_values(cell) and needs.is_measured(cell) for cell in cells_), name


def test_accuracy_is_the_mean_reward_of_a_rule_of_0_and_1(whole: Tables) -> None:
    last = whole.runs.dropna(subset="final/accuracy/mean")
    assert set(last["task"]) == {"arithmetic"}
    assert last["final/accuracy/mean"].equals(last["final/gold/mean"])


def test_the_figure_of_samples_has_the_largest_policy_beside_its_passes(every: Selection) -> None:
    data = draw_selection("fig8_samples", every).data
    largest = data[data["env"].eq("tldr_nano-nano_l")]
    assert set(largest["condition"]) == {"K=2", "K=4"}
    assert set(largest["sweep"]) == {"passes_nano", "samples_per_prompt_nano"}


def jobs_of_target() -> dict[str, list[list[str]]]:
    """By sweep the overrides of each job of one seed that `make benchmark` trains."""
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    lines = re.findall(r'benchmark-sweep SWEEP=(\w+)(?:.*?OVERRIDES="(.*?)")?', text)
    jobs: dict[str, list[list[str]]] = {}
    for sweep, given in lines:
        own = yaml.safe_load((SWEEPS / f"{sweep}.yaml").read_text())
        grid = {
            **own["hydra"]["sweeper"]["params"],
            **dict(one.split("=") for one in given.split() if "=" in one),
        }
        # A sweep over one value, after which its jobs are named.
        grid = {key: re.sub(r"^choice\((.*)\)$", r"\1", str(of)) for key, of in grid.items()}
        for seeds in ("seed", "stage_seed"):
            grid.pop(seeds, None)
        choices = [[f"{key}={value}" for value in of.split(",")] for key, of in grid.items()]
        # Later looks add seeds to jobs that are there already, or conditions.
        found = jobs.setdefault(sweep, [])
        found += [job for job in map(list, itertools.product(*choices)) if job not in found]
    return jobs


def test_the_target_trains_what_is_kept(every: Selection) -> None:
    """The tables were made with sft.steps=450 where the target had 200."""
    parts = f"hydra.searchpath=[file://{conf_folder()}]"
    jobs = jobs_of_target()
    assert set(jobs) == {cell.sweep for cell in every.cells}
    for sweep, lists in jobs.items():
        there = {cell.setting_items for cell in every.only(sweep=sweep).cells}
        # Options that are newer than the tables have no place in them.
        keys = {key for settings in there for key, _ in settings} - CHANGED
        made = []
        assert len(lists) == len(there)
        for overrides in (lists[0], lists[-1]):
            config = plain(typed(composed(parts, *overrides, name=sweep, folder=SWEEPS)))
            made.append(of_keys(compared_settings(config).items(), keys))
        held = [of_keys(settings, keys) for settings in there]
        assert all(one in held for one in made), sweep


def of_keys(settings: Iterable[tuple[str, str]], keys: set[str]) -> list[tuple[str, str]]:
    return sorted((key, value) for key, value in settings if key in keys)


def test_the_gates_stop_the_runs_that_lie_apart_and_no_other(
    whole: Tables, every: Selection
) -> None:
    registry, weak = read_registry(FOLDER / "async_rlhf.yaml"), load_weak()
    assert weak is not None
    assert gated(registry, every)[1] == [] and not gated(registry, cells(weak))[0].cells
    assert not {*whole.runs["run"]} & {*weak.runs["run"]}


def test_old_samples_repeat_the_last_gradient_as_the_page_has_it() -> None:
    names = ["algo", "exp_name", "max_staleness", "update/gradient_cosine"]
    points = pd.read_parquet(COLLAPSES, columns=names)
    grpo = points[(points["algo"] == "grpo") & points["exp_name"].str.endswith("lr=0.0003")]
    medians = grpo.groupby("max_staleness")["update/gradient_cosine"].median()
    numbers = [f"{medians[staleness]:.2f}" for staleness in (0, 16)]
    page = " ".join((ROOT / "docs" / "benchmark.md").read_text().split())
    assert any(all(number in text for number in numbers) for text in page.split(". "))
