"""Every setting either acts from a fork's round on, or is refused with a reason."""

from __future__ import annotations

import dataclasses

import pytest

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.run.fork import BESIDE, changes_between, reason_against
from rlhf_lab.types import limits
from tests.conftest import MakeConfig


def test_every_key_is_in_the_table() -> None:
    nodes = {column.name for column in dataclasses.fields(Config)}
    decided = {one.name for one in dataclasses.fields(Config) if limits.FORK in one.metadata}
    assert decided.isdisjoint(BESIDE) and nodes == decided | set(BESIDE) - {"part"}


@pytest.mark.parametrize(
    ("key", "is_possible"),
    [
        ("optim.lr", True),
        ("optim.gradient_cosine", False),
        ("run.updates", True),
        ("run.updates_per_round", False),
        ("run.prompts", False),
        ("generator.temperature", True),
        ("generator.chunk_groups", False),
        ("algo.beta", True),
        ("seed", False),
        ("something", False),
    ],
)
def test_the_option_decides_and_else_its_node(
    config_of: MakeConfig, key: str, is_possible: bool
) -> None:
    assert (reason_against(key, config_of()) == "") is is_possible


def test_changes_are_of_what_a_run_computes(config_of: MakeConfig) -> None:
    parent = config_of("mode=lagged", "optim.lr=1e-3")
    fork = config_of("mode=lagged", "optim.lr=1e-2", "eval.prompts=8", "fork.parent=x")
    assert changes_between(parent, fork) == {"optim.lr": (1e-3, 1e-2)}
    assert changes_between(parent, parent) == {}


def test_a_schedule_that_is_repeated_is_no_change(config_of: MakeConfig) -> None:
    parent = config_of("mode=free")
    fork = config_of("mode=recorded", "mode.schedule=runs/a", "fork.parent=runs/a")
    assert changes_between(parent, fork) == {}
