"""The samples of a report's page, read as text: numbers that bounds hold for, and their fields."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.runs.rollouts import RolloutSample
from rlhf_lab_analysis.report.make import Options, html
from rlhf_lab_analysis.report.samples import evaluated, rollout
from rlhf_lab_analysis.tables.gather import gather
from tests.support import table_records as made
from tests.support.question_records import Made
from tests.support.report_pages import Texts, data_of

pytestmark = pytest.mark.usefixtures("costly")

TURN = {
    "writer": "policy", "text": "ask", "reward": 0.5, "logps": [-0.25], "version": 0,
    "newest_version": 0,
}  # fmt: skip
TOLD = {"writer": "environment", "text": "told"}


def kept(**values: Any) -> RolloutSample:
    return RolloutSample(**{
        "round": 0, "updates": 0, "prompt_id": 0, "uid": "u", "sample": 0, "prompt": "what",
        "response": "this", "reward": 0.5, "credit": 0.1, "is_kept": True, "version": 0,
        "newest_version": 0, "lag_rounds": 0, "lag_updates": 0, "tokens": 5, "finish": "eos",
        "steps": [], **values,
    })  # fmt: skip


def test_turns_of_an_episode_are_those_of_the_policy() -> None:
    found = rollout(kept(turns=[TURN, TOLD, TURN]))
    assert (found["tokens"], found["num_turns"]) == (5, 2)
    assert ["turns", 2] in found["facts"]
    assert "num_turns" not in rollout(kept())


def test_what_was_not_scored_has_no_reward() -> None:
    assert rollout(kept(reward=math.nan))["reward"] is None
    found = evaluated({"prompt": "what", "sample": "zebras"})
    assert found and found["reward"] is None and "tokens" not in found


def test_every_bound_has_a_label(tmp_path: Path) -> None:
    folder = made.write_run(tmp_path / "runs" / "one", Made().runs((0.8,))[0])
    made.write_lines(folder / "rollouts.jsonl", [kept(turns=[TURN, TOLD, TURN]).row()])
    text = html(gather([str(tmp_path / "runs")]), Options())
    found = Texts(text)
    bounds = [held for tag, held in found.elements if held.get("type") == "number"]
    groups = [held for tag, held in found.elements if held.get("role") == "group"]
    names = ("reward", "tokens", "turns")
    assert [one["id"] for one in bounds] == [
        f"sample-{name}-{end}" for name in names for end in ("from", "to")
    ]
    assert set(names) <= {one["aria-label"] for one in groups}
    assert all(f"{name} from" in found.text for name in names)
    assert [one.get("aria-label") for one in bounds[1::2]] == [f"{name} to" for name in names]
    assert "value" not in {name for one in bounds for name in one}
    (shown,) = data_of(text)["samples"][0]["rounds"][0]["samples"]
    assert (shown["reward"], shown["tokens"], shown["num_turns"]) == (0.5, 5, 2)
