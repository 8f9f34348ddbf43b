"""The sweeps that draw the paper's figures ask about the paper's own runs: each job is a preset of
conf/experiment but for what is swept."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from rlhf_lab.experiment.config.config import Config, plain
from rlhf_lab.experiment.config.typed import typed
from tests.support.composed import composed
from tests.support.variants import variants
from tests.sweeps.test_sweeps_conf import Sweep, as_overrides

pytestmark = pytest.mark.usefixtures("costly")

# The preset of each sweep, with what its question fixes for all jobs (docs/sweeps.md).
PAPERS = {
    "sync_async": ("experiment=tldr_410m",),
    "off_policy_ladder": ("experiment=tldr_410m", "mode=sync"),
    "policy_scale": ("experiment=tldr_410m", "mode=sync", "reward=paper_proxy_410m"),
    "reward_scale": ("experiment=tldr_410m", "mode=sync"),
    "passes": ("experiment=tldr_410m",),
    "samples_per_prompt": ("experiment=tldr_410m",),
    "kl_frontier": ("experiment=tldr_410m", "mode=sync", "eval.snapshots=16"),
    "rate_schedule": ("experiment=tldr_410m", "mode=sync"),
    "compute_optimal": ("experiment=tldr_2.8b",),
    "verified_answers": ("experiment=gsm8k_rho1b",),
    "chats": ("experiment=no_robots_8b", "engine=single"),
}
# What the choices of overlays stand for.
OVERLAYS = {
    "samples=k2": ("run.group_size=2",),
    "samples=k4_half_the_steps": ("run.group_size=4", "run.updates=128"),
    "compute=sync": ("mode=sync",),
    "compute=async": ("mode=async",),
    "compute=two_passes": ("mode=async", "run.passes=2"),
    "compute=k4_half_the_steps": ("mode=async", "run.group_size=4", "run.updates=128"),
}


def grid(sweep: Sweep) -> list[list[str]]:
    """Every condition of a sweep as overrides."""
    keys = sweep.varied
    return [
        as_overrides(dict(zip(keys, values, strict=True)))
        for values in itertools.product(*keys.values())
    ]


def values(node: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """The values of plain data by their whole keys."""
    if not isinstance(node, dict):
        yield key, node
        return
    for name, inner in node.items():
        yield from values(inner, f"{key}.{name}" if key else name)


def differences(one: Config, other: Config) -> dict[str, tuple[Any, Any]]:
    """Keys whose values differ, with both values."""
    ours, theirs = dict(values(plain(one))), dict(values(plain(other)))
    return {
        key: (ours.get(key), theirs.get(key))
        for key in sorted(ours.keys() | theirs.keys())
        if ours.get(key) != theirs.get(key)
    }


Chosen = Callable[[Sequence[list[str]]], Sequence[list[str]]]
CONDITIONS = variants(
    {"ends": lambda every: (every[0], every[-1]), "all": lambda every: every}, ["ends"]
)


@pytest.mark.parametrize("conditions", CONDITIONS)
@pytest.mark.parametrize("name", PAPERS)
def test_each_job_of_a_papers_sweep_is_its_preset_but_for_the_swept_keys(
    name: str, conditions: Chosen
) -> None:
    sweep = Sweep(name)
    for words in conditions(grid(sweep)):
        spelt = [word for choice in words for word in OVERLAYS.get(choice, (choice,))]
        preset = typed(composed(*PAPERS[name], *spelt))
        assert differences(sweep.config(*words), preset) == {}, words
