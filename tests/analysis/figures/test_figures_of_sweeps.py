"""Every figure and question of a sweep at full scale, on hand-made tables of the sweep's shape."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest

from rlhf_lab_analysis.comparison.families import order, parameters
from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.questions import claim_named
from rlhf_lab_analysis.comparison.registry.settings import settings_of_claim, sized
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.figures.catalogue import FIGURES, draw
from rlhf_lab_analysis.figures.figure_builder import DrawnFigure
from rlhf_lab_analysis.sources.conditions import place_of, presets, reward_of
from rlhf_lab_analysis.tables.table import Tables
from tests.support.figure_tables import end_of
from tests.support.figure_tables import run_of as made_by_hand
from tests.support.sweep_tables import of_sweep
from tests.support.table_records import tables
from tests.support.variants import variants
from tests.sweeps.test_sweeps_conf import QUESTIONS, Sweep

pytestmark = pytest.mark.usefixtures("costly")

# Of any two conditions; they take no sweep of their own.
FOR_ANY = ("differences", "frontier")
# They are read from the figures of any runs, as win-rate over KL, and the front of cost and
# win-rate; catching up is figure 3 of its runs. The others are read as differences of conditions.
WITHOUT_FIGURE = (
    *("kl_frontier", "compute_optimal", "catch_up", "learning_rate", "replay"),
    *("mismatch_staleness", "corrections_2026", "gradient_projection", "distill", "prompt_pools"),
    *("single_rollout", "off_policy_methods", "over_provision"),
    "adapters",
)
OF_SWEEPS = [
    (name, sweep) for name, spec in FIGURES.items() for sweep in spec.sweeps if sweep in QUESTIONS
]
# The one sweep whose conditions are composed for `make test`.
OFTEN = "reward_scale"


def cases(pairs: Iterable[tuple[str, str]]) -> list[Any]:
    """Figures of sweeps, of which those of OFTEN are tried often."""
    found = {f"{name}-{sweep}": (name, sweep) for name, sweep in pairs}
    return variants(found, [case for case, (_, sweep) in found.items() if sweep == OFTEN])


@functools.cache
def full(sweep: str) -> Tables:
    return of_sweep(sweep, Sweep(sweep).swept, Sweep(sweep).config)


def is_whole(made: DrawnFigure) -> bool:
    return bool(made.figure.axes) and len(made.data) > 1


def test_every_sweep_has_a_figure_that_asks_for_it() -> None:
    assert {sweep for _, sweep in OF_SWEEPS} == {*QUESTIONS} - {*WITHOUT_FIGURE}


@pytest.mark.parametrize("case", cases(OF_SWEEPS))
def test_a_figure_is_drawn_of_its_sweep_at_full_scale(case: tuple[str, str]) -> None:
    name, sweep = case
    assert is_whole(draw(name, full(sweep)))


@pytest.mark.parametrize("case", cases(product(FOR_ANY, [*WITHOUT_FIGURE, OFTEN])))
def test_figures_of_any_runs_are_drawn_at_full_scale(case: tuple[str, str]) -> None:
    name, sweep = case
    assert is_whole(draw(name, full(sweep)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sweep"),
    [("pareto", "compute_optimal"), ("aggregates", "policy_scale")],
)
def test_figures_of_costs_and_of_environments_are_drawn_at_full_scale(
    name: str, sweep: str
) -> None:
    assert is_whole(draw(name, full(sweep)))


def test_the_reward_models_of_the_full_sweep_have_the_names_of_their_options() -> None:
    made = full("reward_scale")
    names = ["paper_proxy_1b", "paper_proxy_2.8b", "paper_proxy_410m"]
    assert sorted(made.runs["reward"].unique()) == names
    drawn = draw("fig5_reward_scale", made)
    legend = [text.get_text() for text in drawn.figure.legends[0].get_texts()]
    assert {f"{name} (n=3)" for name in names} <= {*legend}


def test_larger_reward_models_are_compared_in_the_full_form() -> None:
    claim = claim_named("larger_reward_model_no_help")
    found = settings_of_claim(claim, cells(full("reward_scale")), Criteria())
    labels = [part.label for setting in found for part in setting.parts]
    # The losses along N are equal by construction, so that there is no verdict.
    assert labels == ["paper_proxy_2.8b less paper_proxy_410m, of N=64 less N=1"] * 2
    assert {setting.name for setting in found} == {"ppo", "online_dpo"}


def test_rewards_of_other_kinds_are_no_sizes() -> None:
    assert sized("reward", ["reward_model", "ensemble", "task_rule"]) == []
    assert parameters("paper_proxy_2.8b") == 2800
    assert parameters("nano_s") == 0.3 and parameters("reward_model") == 0


def test_models_come_by_size_whatever_their_names() -> None:
    sizes = ["nano_s", "nano_l", "smollm2_135m", "pythia_410m", "paper_proxy_1b", "pythia_2.8b"]
    assert sorted(reversed(sizes), key=order) == sizes
    assert sorted(["sync", 16, "async", 4.0], key=order) == [4.0, 16, "async", "sync"]


def test_a_reward_model_has_its_paths_name() -> None:
    assert presets()["mnoukhov/pythia1b-rm-tldr6.9b"] == "paper_proxy_1b"
    assert reward_of("me/rm-7b@main") == "rm-7b" and reward_of("runs/rm/") == "rm"
    run = made_by_hand(1, {}, end_of(1, 0.0), "own")
    assert place_of(run).parts["reward"] == tables(run).runs["reward"].item() == "task_rule"
