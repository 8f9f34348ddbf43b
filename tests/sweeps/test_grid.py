"""Overrides that would make a sweep another one than its names and its file say are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.override_parser.overrides_parser import OverridesParser

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.grid import check_choices, check_growth, grid_of, sizes
from rlhf_lab.sweeps.options import SweeperOptions, sweeps_folder
from rlhf_lab.types.errors import UserError

LADDER = {"tuned": "ppo,online_dpo", "run.updates_per_round": "1,16", "seed": "1"}
STALENESS = {"staleness": "s0,s1_corrected,s4", "seed": "1"}
SAMPLES = {"samples": "k2,k4_half_the_steps", "seed": "1"}


def check(params: Mapping[str, str], *overrides: str) -> None:
    parser = OverridesParser.create()
    loader = ConfigLoaderImpl(create_config_search_path(f"file://{sweeps_folder()}"))
    check_choices(params, grid_of(params, overrides, parser), parser, loader)


@pytest.mark.parametrize(
    ("params", "override", "remedy"),
    [
        (LADDER, "algo=online_dpo", "tuned=online_dpo"),
        (LADDER, "algo=ppo,grpo", "tuned=ppo"),
        (STALENESS, "correction=icepop", "staleness=s0"),
        (STALENESS, "mode.max_staleness=2", "staleness=s0"),
        (SAMPLES, "run.updates=8", "samples=k2"),
    ],
)
def test_an_override_of_what_choices_differ_in_is_refused(
    params: Mapping[str, str], override: str, remedy: str
) -> None:
    """A group also where one choice is left, whose name would be wrong."""
    for part in ([], [remedy]) if "." not in override else ([],):
        with pytest.raises(UserError) as refused:
            check(params, override, *part)
        assert override in str(refused.value) and remedy in str(refused.value)


@pytest.mark.parametrize(
    ("params", "overrides"),
    [
        (LADDER, ["tuned=ppo"]),
        # What all choices set alike no name says, and what none sets is free.
        (LADDER, ["optim.lr=1e-4"]),
        (STALENESS, ["mode=async"]),
        (SAMPLES, ["run.passes=2", "engine=fsdp", "output.root=elsewhere"]),
        (SAMPLES, ["run.updates=32", "samples=k4_half_the_steps"]),
        # Options of the config's own groups are combined with others.
        ({"task": "tldr_nano,tldr"}, ["reward=task_rule", "eval.split=test"]),
    ],
)
def test_other_overrides_are_not(params: Mapping[str, str], overrides: Sequence[str]) -> None:
    check(params, *overrides)


def grown(*overrides: str, extend: bool = False, dry: bool = False) -> tuple[int, int]:
    parser = OverridesParser.create()
    grid = grid_of(LADDER, overrides, parser)
    check_growth(LADDER, grid, parser, SweeperOptions(dry=dry, extend=extend), Console(quiet=False))
    return sizes(LADDER, grid, parser)


def test_a_grid_that_overrides_make_larger_is_said_and_needs_to_be_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert grown("tuned=ppo") == (4, 2)
    assert grown("tuned=ppo", "seed=1,2") == (4, 4)
    assert capsys.readouterr().out == ""
    for more, size in (("seed=1,2", 8), ("run.passes=1,2,4", 12)):
        with pytest.raises(UserError) as refused:
            grown(more)
        assert f"from 4 to {size} jobs by {more}" in str(refused.value)
        assert "hydra.sweeper.extend=true" in str(refused.value)
        for extend, dry in ((True, False), (False, True)):
            assert grown(more, extend=extend, dry=dry) == (4, size)
            assert f"from 4 to {size} jobs" in capsys.readouterr().out
