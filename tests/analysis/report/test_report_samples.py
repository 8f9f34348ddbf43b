"""The samples of a report's page, read as text: numbers that bounds hold for, and their fields."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.runs.rollouts import RolloutSample
from rlhf_lab_analysis.report.make import Options, html
from rlhf_lab_analysis.report.rendering import environment
from rlhf_lab_analysis.report.samples import CUT, RANGES, TOKEN_RUNS, evaluated, rollout
from rlhf_lab_analysis.tables.gather import gather
from tests.support import table_records as made
from tests.support.question_records import Made
from tests.support.report_pages import Texts, data_of

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
    assert (found["tokens"], found["num_turns"]) == (5, 2)
    assert ["turns", 2] in found["facts"]
    assert "num_turns" not in rollout(kept())
    assert "num_turns" not in rollout(kept(turns=[ANSWER]))


def test_tokens_of_the_policy_have_log_probs_and_versions_and_others_have_none() -> None:
    newer = TURN | {"version": 1, "newest_version": 2, "versions": [1, 2]}
    found = rollout(kept(round=3, turns=[TURN, TOLD, newer]))
    assert found["number"] == 3
    first, told, last = found["turns"]
    assert first["tokens"] == ["ask", "<end>"] and first["logps"] == [-0.25, -1.5]
    assert (first["versions"], last["versions"]) == (0, [1, 2])
    assert told == {
        **{"writer": "environment", "about": "environment, 2 tokens, masked from the loss"},
        "tokens": ["to", "ld"],
    }
    assert first["about"] == "policy, 2 tokens of version 0, in the loss"
    assert last["about"] == "policy, 2 tokens of versions 1 to 2, in the loss"
    (left_out,) = rollout(kept(is_kept=False, turns=[ANSWER]))["turns"]
    assert left_out["about"] == "policy, 2 tokens of version 0, not trained on"


def test_tokens_beyond_the_limit_are_shown_as_text() -> None:
    turns = [TURN, TOLD, TURN]
    first, told, last = rollout(kept(turns=turns), 3)["turns"]
    assert (first["tokens"], told["tokens"]) == (["ask", "<end>"], ["to"])
    assert told["text"] == "ld" and "text" not in first
    assert "tokens" not in last and last["text"] == "ask"
    assert [turn.get("text") for turn in rollout(kept(turns=turns), 0)["turns"]] == [
        *("ask", "told", "ask")
    ]
    # A text that its tokens do not spell is cut behind them.
    other = TURN | {"token_texts": ["a s", "k"], "text": "ask"}
    assert rollout(kept(turns=[other]), 1)["turns"][0]["text"] == CUT
    assert "text" not in rollout(kept(turns=[other]), 2)["turns"][0]


def test_a_page_has_so_many_tokens_and_each_number_of_a_sample_once(tmp_path: Path) -> None:
    for place in range(TOKEN_RUNS + 1):
        run = Made(mode="lagged", staleness=place).run(1, 0.8)
        folder = made.write_run(tmp_path / "runs" / str(place), run)
        made.write_lines(folder / "rollouts.jsonl", [kept(turns=[TURN]).row() for _ in range(4)])
    shown = data_of(html(gather([str(tmp_path / "runs")]), Options()))["samples"]
    samples = [run["rounds"][0]["samples"] for run in shown]
    counts = [[len(one["turns"][0].get("tokens", [])) for one in run] for run in samples]
    assert counts == [[2, 2, 0, 0]] * TOKEN_RUNS + [[0] * 4]
    assert all("length" not in one and "response" not in one for run in samples for one in run)


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
    names = tuple(one.name for one in RANGES)
    assert names == ("reward", "tokens", "turns")
    assert [one["data-key"] for one in groups if "data-key" in one] == [one.key for one in RANGES]
    # Names and keys stand in one place: the scripts read them from the page.
    for script in ("samples.js", "state.js"):
        source = Path(str(environment().get_template(script).filename)).read_text()
        assert "sample-tokens" not in source and "num_turns" not in source
    assert [one["id"] for one in bounds] == [
        f"sample-{name}-{end}" for name in names for end in ("from", "to")
    ]
    assert set(names) <= {one["aria-label"] for one in groups}
    assert all(f"{name} from" in found.text for name in names)
    assert [one.get("aria-label") for one in bounds[1::2]] == [f"{name} to" for name in names]
    assert "value" not in {name for one in bounds for name in one}
    (shown,) = data_of(text)["samples"][0]["rounds"][0]["samples"]
    assert (shown["reward"], shown["tokens"], shown["num_turns"]) == (0.5, 5, 2)
