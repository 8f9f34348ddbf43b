"""The samples of a report's page: texts, turns and numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rlhf_lab.runs.schema import RolloutSample
from rlhf_lab_analysis.report.samples import CHARACTERS, CUT, evaluated, rollout

pytestmark = pytest.mark.usefixtures("costly")

TURN = {
    "writer": "policy", "text": "ask", "token_texts": ["ask", "<end>"], "reward": 0.5,
    "logps": [-0.25, -1.50049], "version": 0, "newest_version": 0,
}  # fmt: skip
TOLD = {"writer": "environment", "text": "told", "token_texts": ["to", "ld"]}
ANSWER = {key: value for key, value in TURN.items() if key != "reward"}


def kept(**values: Any) -> RolloutSample:
    return RolloutSample(**{
        "round": 0, "updates": 0, "prompt_id": 0, "uid": "u", "sample": 0, "prompt": "what",
        "response": "this", "reward": 0.5, "credit": 0.1, "is_kept": True, "version": 0,
        "newest_version": 0, "lag_rounds": 0, "lag_updates": 0, "tokens": 5, "finish": "eos",
        "steps": [], **values,
    })  # fmt: skip


def test_turns_of_an_episode_are_those_of_the_policy() -> None:
    found = rollout(kept(turns=[TURN, TOLD, TURN]))
    assert ["turns", 2] in found["facts"] and "response" not in found
    assert "turns" not in [name for name, _ in rollout(kept())["facts"]]


def test_each_turn_has_its_writer_versions_reward_and_whether_the_loss_reads_it() -> None:
    newer = TURN | {"version": 1, "newest_version": 2, "versions": [1, 2]}
    first, told, last = rollout(kept(round=3, turns=[TURN, TOLD, newer]))["turns"]
    assert first == {
        **{"writer": "policy", "about": "policy, 2 tokens of version 0, in the loss"},
        **{"text": "ask", "reward": 0.5},
    }
    assert told == {
        **{"writer": "environment", "about": "environment, 2 tokens, masked from the loss"},
        "text": "told",
    }
    assert last["about"] == "policy, 2 tokens of versions 1 to 2, in the loss"
    (left_out,) = rollout(kept(is_kept=False, turns=[ANSWER]))["turns"]
    assert left_out["about"] == "policy, 2 tokens of version 0, not trained on"
    assert "reward" not in left_out


def test_a_long_turn_is_cut() -> None:
    (found,) = rollout(kept(turns=[TURN | {"text": "a" * 2 * CHARACTERS}]))["turns"]
    assert len(found["text"]) == CHARACTERS and found["text"].endswith(CUT)


def test_what_was_not_scored_has_no_reward() -> None:
    assert rollout(kept(reward=math.nan))["reward"] is None
    found = evaluated({"prompt": "what", "sample": "zebras"})
    assert found and found["reward"] is None and "tokens" not in found
