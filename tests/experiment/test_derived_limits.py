"""The least and the greatest values that are allowed make a run that works, or are refused."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from rlhf_lab.experiment.config.keys import sections
from rlhf_lab.experiment.planning.forecast import require_room
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.limits import columns
from rlhf_lab.types.ranges import Range
from tests.conftest import MakeConfig
from tests.support.in_memory import run_in_memory

BASE = ("run.updates=2", "checkpoint=none")
SUMS = ("task=arithmetic", "reward=task_rule")
# Beyond it a step is so far that weights may overflow, which ends a run with a FloatingPointError.
WILD = ("optim.lr", "sft.lr", "reward_model.lr")
# What a tiny run does with large numbers, and no run of any machine does at once.
LARGEST = 16


def ends(allowed: Range, is_whole: bool) -> list[float]:
    """The outermost values that a tiny run can be asked for, and those that are allowed besides."""
    low = allowed.min if allowed.min is not None else (allowed.above or 0) + 1e-9
    high = allowed.max if allowed.max is not None else (allowed.below or 0) * (1 - 1e-9)
    found = [low, min(high, LARGEST) if is_whole else high, *allowed.also]
    return [round(value) for value in found] if is_whole else found


def cases(*groups: str) -> Iterator[tuple[str, ...]]:
    """Overrides that set one number of a group's options to one of its ends."""
    for group in groups:
        for title, (part, _) in sections().items():
            for column in columns(part) if title.partition("=")[0] == group else ():
                key = f"{group}.{column.name}"
                chosen = [title] if "=" in title else []
                for value in ends(column.range, column.is_whole) if column.range else ():
                    yield (*chosen, f"{key}={value!r}")


def runs_or_is_refused(make_config: MakeConfig, *overrides: str) -> bool:
    """Whether a run of the overrides ended with finite weights and rows; False if it is refused.
    Rows that JSON could not hold are errors already."""
    try:
        config = make_config(*BASE, *overrides)
        check(config)
        require_room(config, is_run=True)
        rows, _ = run_in_memory(config)
    except UserError as error:
        assert overrides[-1].partition("=")[0].partition(".")[0] in str(error)
        return False
    assert len(rows) == config.run.num_rounds
    assert all(math.isfinite(x) for row in rows for x in row.values() if isinstance(x, float))
    return True


@pytest.mark.parametrize(
    "overrides",
    [
        ("optim.beta1=0.0",),
        ("optim.eps=1e-30", "optim.beta2=0.0"),
        ("optim.weight_decay=1000.0",),
        ("optim.max_grad_norm=1e-09",),
        ("algo=kimi", "algo.tau=0.0"),
        ("algo=grpo", "algo.epsilon=1e-12", "algo.clip=0.0"),
        ("engine.logit_tokens=0", "engine.micro_tokens=0", "engine.micro_rows=1"),
        ("generator.temperature=0.01",),
        ("seed=0",),
        (f"seed={2**63 - 1}",),
    ],
)
def test_the_ends_of_ranges_make_runs_that_work(
    make_config: MakeConfig, overrides: tuple[str, ...]
) -> None:
    chosen = overrides if overrides[0].startswith("algo=") else ("algo=rloo", *overrides)
    assert runs_or_is_refused(make_config, *SUMS, *chosen)


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [case for case in cases("algo", "correction") if not case[0].startswith("algo=dpo")],
)
def test_every_end_of_every_algorithm_and_correction(
    make_config: MakeConfig, overrides: tuple[str, ...]
) -> None:
    algorithm = () if overrides[0].startswith("algo=") else ("algo=rloo",)
    runs_or_is_refused(make_config, *SUMS, *algorithm, *overrides)


@pytest.mark.slow
@pytest.mark.parametrize("overrides", list(cases("run", "mode", "optim", "checkpoint")))
def test_every_end_of_a_run(make_config: MakeConfig, overrides: tuple[str, ...]) -> None:
    if not overrides[0].startswith(WILD) or "1e-09" in overrides[0]:
        runs_or_is_refused(make_config, *SUMS, "algo=rloo", *overrides)


@pytest.mark.slow
@pytest.mark.parametrize("overrides", list(cases("shaping", "tracker", "sft")))
def test_every_end_around_a_run(make_config: MakeConfig, overrides: tuple[str, ...]) -> None:
    if not overrides[0].startswith(WILD) or "1e-09" in overrides[0]:
        runs_or_is_refused(make_config, *SUMS, "algo=rloo", *overrides)


@pytest.mark.slow
@pytest.mark.parametrize("overrides", list(cases("labels", "reward_model")))
def test_every_end_of_the_stages(make_config: MakeConfig, overrides: tuple[str, ...]) -> None:
    if not overrides[0].startswith(WILD) or "1e-09" in overrides[0]:
        runs_or_is_refused(make_config, *overrides)
