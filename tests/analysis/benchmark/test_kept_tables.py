"""What the tracked benchmark's own tables showed to be wrong: each case with its numbers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from rlhf_lab.experiment.config.config import plain
from rlhf_lab.experiment.config.groups import conf_folder
from rlhf_lab.experiment.config.typed import typed
from rlhf_lab_analysis.benchmark.kept import COLLAPSES, TABLES, load_beside, weak_of
from rlhf_lab_analysis.comparison.registry.answers import Answer, Criteria
from rlhf_lab_analysis.comparison.registry.decisions import decide_claim
from rlhf_lab_analysis.comparison.registry.definitions import FOLDER, read_registry
from rlhf_lab_analysis.comparison.registry.gates import gated
from rlhf_lab_analysis.comparison.registry.questions import claim_named
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.plots.paper import FIGURES, paper_figure
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


def test_a_lost_run_leaves_its_seed_out_of_pairs_and_is_no_other_method(whole: Tables) -> None:
    own = whole.only(sweep="verified_answers_nano", algo="ppo")
    tables = without(own, mode="async", stage_seed=3)
    selection = cells(tables)
    equal = asked(selection, "async_costs_nothing")
    (number,) = equal.numbers
    assert number.estimate.name == "paired difference"
    assert number.estimate.basis.seeds == (7,)
    assert any("left out of the pairs" in text and "[3]" in text for text in equal.warnings)


def test_a_lost_run_takes_neither_the_verdict_of_the_ladder_nor_its_n(whole: Tables) -> None:
    ladder = whole.only(sweep=LADDER, algo=["ppo", "online_dpo"])
    lost = without(ladder, algo="ppo", updates_per_round=64, stage_seed=4)
    assert asked(cells(lost), "most_updates_cost", "ppo").verdict is Verdict.holds
    curves = (asked(cells(tables), "one_curve", "ppo") for tables in (ladder, lost))
    # Which N shares KL with N=1 in all seeds does not hang on one lost run.
    assert len({curve.numbers[0].label for curve in curves}) == 1


def test_a_claim_of_all_parts_is_not_corrected_for_their_number(every: Selection) -> None:
    order = asked(every.only(sweep=LADDER), "online_dpo_loses_least")
    assert order.verdict is Verdict.holds
    assert {one.estimate.basis.options.percent for one in order.numbers} == {"95%"}
    # One of each algorithm is.
    costs = asked(every.only(sweep=LADDER), "most_updates_cost", "ppo")
    assert {one.estimate.basis.options.percent for one in costs.numbers} == {"98.75%"}


def test_page_and_table_have_one_rule(whole: Tables, every: Selection) -> None:
    check_one_rule(whole, every.only(sweep=LADDER), 4)


def means_of(selection: Selection, name: str) -> Any:
    data = paper_figure(name, selection).data
    return data[data["seed"] == "mean"]


@pytest.mark.parametrize("name", ["fig4_losses", "fig7_passes"])
def test_levels_of_win_rates_lie_between_0_and_1(every: Selection, name: str) -> None:
    data = means_of(every, name)
    held = data[data["y_name"].eq("gold/win_rate")]
    assert len(held) and held["low"].min() > 0 and held["high"].max() < 1


def test_the_figure_of_policies_has_all_three_sizes(every: Selection) -> None:
    """The smallest ones are of another sweep."""
    data = means_of(every, "fig5_policy_scale")
    assert {words.split()[0] for words in data["condition"]} == {"0.3M", "1M", "4M"}
    assert {*data["panel"]} == {"online DPO", "PPO"}


def test_the_figure_of_samples_has_the_largest_policy_beside_its_passes(every: Selection) -> None:
    data = means_of(every, "fig8_samples")
    largest = data[data["environment"].eq("tldr_nano-nano_l")]
    assert set(largest["sweep"]) == {"passes_nano", "samples_per_prompt_nano"}


def test_each_figure_of_the_paper_is_drawn_of_the_kept_runs(every: Selection) -> None:
    """The tables had lost the accuracy of verified answers, and with it their figure."""
    for name in FIGURES:
        assert len(paper_figure(name, every).data), name


def test_accuracy_is_the_mean_reward_of_a_rule_of_0_and_1(whole: Tables) -> None:
    last = whole.runs.dropna(subset="final/accuracy/mean")
    assert set(last["task"]) == {"arithmetic"}
    assert last["final/accuracy/mean"].equals(last["final/gold/mean"])


def jobs_of_target() -> dict[str, list[list[str]]]:
    """By sweep the overrides of each job of one seed that `make benchmark` trains."""
    lines = yaml.safe_load((ROOT / "benchmarks" / "tracked.yaml").read_text())["runs"]
    jobs: dict[str, list[list[str]]] = {}
    for command, sweep, *given in map(str.split, lines):
        if command != "sweep":
            continue
        own = yaml.safe_load((SWEEPS / f"{sweep}.yaml").read_text())
        grid = {
            **own["hydra"]["sweeper"]["params"],
            **dict(one.split("=") for one in given),
        }
        # A sweep over one value, after which its jobs are named.
        grid = {key: re.sub(r"^choice\((.*)\)$", r"\1", str(of)) for key, of in grid.items()}
        for key in ("seed", "stage_seed", "launcher"):
            grid.pop(key, None)
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
    registry, weak = read_registry(FOLDER / "async_rlhf.yaml"), load_beside(weak_of(TABLES))
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
