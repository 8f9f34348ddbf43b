"""The table of metrics against what runs and evaluations write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from rlhf_lab.runs.live.files import HISTOGRAMS, NUMBERS
from rlhf_lab.runs.metric_names import EVALUATION, ROUND, Metric, described, reference
from rlhf_lab.training.ledger import FATES, PHASES
from tests.conftest import Finished

RUN = Path(__file__).resolve().parents[1] / "data" / "run_of_0_1"
SETTINGS = {
    "sync": (),
    "async": ("mode=async",),
    "value model": ("algo=ppo",),
    "clipped weights": ("algo=cispo", "run.group_size=4", "correction=truncated_is"),
    "stale": ("mode=lagged", "mode.max_staleness=2", "run.updates_per_round=2"),
    "recycled": ("mode=partial", "mode.executor=inline", "mode.over_provision=2"),
    "masked": ("run.mask_truncated=true", "algo=rloo"),
    "masked pairs": ("run.mask_truncated=true", "algo=online_dpo"),
    "anchored": ("algo=grpo", "run.group_size=4", "correction=recompute"),
}


def undescribed(row: Mapping[str, object], table: tuple[Metric, ...]) -> list[str]:
    return [name for name in row if described(name, table) is None]


@pytest.mark.parametrize("overrides", SETTINGS.values(), ids=SETTINGS)
def test_every_metric_of_a_round_is_described(
    finished: Finished, overrides: tuple[str, ...]
) -> None:
    rows, _ = finished(*overrides)
    assert [undescribed(row, ROUND) for row in rows] == [[]] * len(rows)


def test_every_metric_of_an_evaluation_is_described() -> None:
    for line in (RUN / "evals.jsonl").read_text(encoding="utf-8").splitlines():
        assert undescribed(json.loads(line), EVALUATION) == []


def test_names_are_described_once_and_phases_of_the_ledger_all() -> None:
    for table in (ROUND, EVALUATION):
        names = [row.name for row in table]
        assert len(names) == len(set(names))
        assert all(row.about.endswith(".") for row in table)
    wanted = {f"seconds/{phase}" for phase in PHASES} | {f"total/{fate}_tokens" for fate in FATES}
    shown = {*NUMBERS.values(), *HISTOGRAMS}
    assert wanted <= {row.name for row in ROUND}
    assert all(described(name, ROUND) for name in shown)


def test_a_name_has_its_own_row_before_a_row_with_a_star() -> None:
    own = described("gold/win_rate", EVALUATION)
    bound = described("gold/win_rate_low", EVALUATION)
    assert own is not None and own.name == "gold/win_rate"
    assert bound is not None and bound.name == "gold/win_rate_*"
    assert described("no/such_metric", ROUND) is None
    assert "| `seconds/wall` | s | Wall-clock since the start. |" in reference()
