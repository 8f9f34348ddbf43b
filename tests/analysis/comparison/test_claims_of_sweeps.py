"""Claims find their conditions among the runs of their sweeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pandas as pd
import pytest

from rlhf_lab_analysis.benchmark.kept import COLLAPSES, TABLES
from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.decisions import decide_all, decide_claim
from rlhf_lab_analysis.comparison.registry.definitions import (
    FOLDER,
    Definition,
    read_registries,
    read_registry,
)
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.sources.record import Record
from rlhf_lab_analysis.statistics.decisions import Verdict
from rlhf_lab_analysis.tables.store import files
from tests.support import table_records as made
from tests.support.question_records import Made
from tests.support.sweep_tables import of_sweep
from tests.sweeps.test_sweeps_conf import Sweep

HIGH = (0.80, 0.84, 0.82, 0.83)
# Of three conditions.
SMALL = "over_provision_nano"


@dataclass(frozen=True)
class Adapted(Made):
    """With an adapter's rank and a learning rate."""

    rank: int = 0
    lr: float = 5e-5

    @property
    def config(self) -> dict[str, Any]:
        found = super().config
        model = {**found["model"], "lora_rank": self.rank}
        return {**found, "model": model, "optim": {**found["optim"], "lr": self.lr}}

    def run(self, seed: int, end: float) -> Record:
        found = super().run(seed, end)
        swept = (
            f"model.lora_rank={self.rank},optim.lr={self.lr},mode.max_staleness={self.staleness}"
        )
        return replace(found, facts=replace(found.facts, swept=swept))


def ending(loss: float, *condition: float | str) -> list[float]:
    """The win-rates of the seeds, so much below HIGH and each a little apart."""
    apart = Random(repr(condition))
    return [high - loss + apart.gauss(0, 0.002) for high in HIGH]


def verdicts(name: str, records: Sequence[Record]) -> dict[str, list[Verdict]]:
    registry = replace(read_registry(FOLDER / f"{name}.yaml"), gates={})
    found = decide_all(registry, cells(made.tables(*records)), Criteria())
    counted = Counter(one.claim.name for one in found.decided)
    assert set(counted) == {claim.name for claim in registry.claims}
    answers: dict[str, list[Verdict]] = {}
    for one in found.decided:
        answers.setdefault(one.claim.name, []).append(one.answer.verdict)
    return answers


def test_groups_lose_to_old_weights_and_single_samples_do_not() -> None:
    losses = {("grpo", 4, 4): 0.06, ("ppo", 1, 4): 0.01, ("sao", 1, 4): 0.0}
    runs = [
        run
        for algo, size in (("grpo", 4), ("ppo", 1), ("sao", 1))
        for lag in (0, 1, 4)
        for run in Made(
            algo=algo,
            group_size=size,
            groups=32 // size,
            staleness=lag,
            mode="lagged",
            sweep="single_rollout_nano",
        ).runs(ending(losses.get((algo, size, lag), 0.0), algo, lag))
    ]
    found = verdicts("single_rollout", runs)
    assert found["single_samples_are_better_stale"] == [Verdict.holds]
    assert found["the_whole_method_is_better_stale"] == [Verdict.holds]
    assert len(found["staleness_costs_single_samples_nothing"]) == 2


def test_adapters_are_compared_at_the_rate_of_each() -> None:
    runs = [
        run
        for rank in (0, 1, 16)
        for rate in (5e-5, 5e-4)
        for lag in (0, 4)
        for run in Adapted(
            algo="grpo", rank=rank, lr=rate, staleness=lag, mode="lagged", sweep="adapters_nano"
        ).runs(ending(0.3 if (rank > 0) == (rate < 1e-4) else 0.0, rank, rate, lag))
    ]
    found = verdicts("adapters", runs)
    assert found["adapters_need_ten_times_the_rate"] == [Verdict.holds] * 2
    assert len(found["rank_one_is_enough"]) == 2
    assert len(found["adapters_bear_old_weights"]) == 1


def find_their_runs(name: str, claims: Sequence[Definition]) -> None:
    """Claims have an answer of runs that are made in the shape of their sweep. What changes with
    the setting of a claim must be named by it too, or it is never decided."""
    sweep = Sweep(name)
    swept = {key: values for key, values in sweep.swept.items() if key != "stage_seed"}
    made_by_hand = cells(of_sweep(name, swept, sweep.config, most=99))
    for claim in claims:
        decided, idle = decide_claim(claim, made_by_hand, Criteria())
        assert decided or idle, claim.name


def claims_of(name: str) -> list[Definition]:
    claims = [claim for registry in read_registries() for claim in registry.claims]
    return [claim for claim in claims if claim.sweeps[0] == name]


@pytest.mark.usefixtures("costly")
def test_claims_find_the_runs_of_their_sweep() -> None:
    claims = claims_of(SMALL)
    assert claims
    find_their_runs(SMALL, claims)


@pytest.mark.pages
@pytest.mark.usefixtures("costly")
def test_claims_that_wait_for_runs_will_find_them() -> None:
    """Of nano sweeps of which no run is kept yet."""
    places = [files(path)["runs"] for path in (TABLES, COLLAPSES)]
    kept = {name for place in places for name in pd.read_parquet(place, columns=["sweep"])["sweep"]}
    sweeps = {claim.sweeps[0] for registry in read_registries() for claim in registry.claims}
    for name in sorted(sweeps - kept):
        if name.endswith("_nano"):
            find_their_runs(name, claims_of(name))
