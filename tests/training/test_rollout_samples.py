"""Samples that a run keeps: the same in every mode that trains on the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.runs.folder import ROLLOUTS, metrics
from rlhf_lab.runs.rollouts import read_rollouts
from rlhf_lab.runs.schema import RolloutSample
from rlhf_lab.runs.trackers.console import Console
from tests.conftest import MakeConfig
from tests.support.examples import FACTS
from tests.support.survival import outcome

SHORT = (
    "task=arithmetic",
    "reward=task_rule",
    "run.updates=8",
    "run.updates_per_round=2",
    "eval.snapshots=0",
)


def run(config: Config) -> Path:
    return lifecycle.train(config, Console(quiet=True), FACTS)


def prompts(samples: list[RolloutSample]) -> list[tuple[int, int, int, str]]:
    return [(one.round, one.prompt_id, one.sample, one.prompt) for one in samples]


def test_every_round_keeps_some_of_the_samples_that_it_was_trained_on(
    make_config: MakeConfig,
) -> None:
    folder = run(make_config(*SHORT, "mode=lagged", "mode.max_staleness=1", "tracker.samples=3"))
    found = read_rollouts(folder)
    assert [one.round for one in found] == [r for r in range(4) for _ in range(3)]
    for one in found:
        assert one.lag_rounds == one.round - one.version == min(1, one.round)
        assert (one.updates, one.lag_updates) == (2 * one.round, 2 * one.lag_rounds)
        assert one.prompt.endswith("=") and one.finish in ("eos", "length")
        (text,) = one.turns
        assert len(text["token_texts"]) == len(text["logps"]) == one.tokens
        assert "".join(text["token_texts"]).startswith(one.response.strip())
        assert all(logp is not None and logp <= 0 for logp in text["logps"])
        assert (text["version"], text["newest_version"]) == (one.version, one.newest_version)
    assert len({one.prompt_id for one in found}) == 12


def test_kept_episodes_have_the_tokens_of_the_policy_and_of_the_environment(
    make_config: MakeConfig,
) -> None:
    options = ("task=ask_nano", "reward=environment", "algo=grpo", "run.group_size=4")
    turns = ("mode=partial_turns", "mode.max_staleness=2", "tracker.samples=100")
    found = read_rollouts(run(make_config(*options, *turns, "run.updates=6", "eval.snapshots=0")))
    for one in found:
        own = [turn for turn in one.turns if turn["writer"] == "policy"]
        assert sum(len(turn["token_texts"]) for turn in own) == one.tokens
        assert all(len(turn["logps"]) == len(turn["token_texts"]) for turn in own)
        assert [turn["version"] for turn in own] == sorted(turn["version"] for turn in own)
        assert own[-1]["newest_version"] == one.newest_version
    observed = [turn for one in found for turn in one.turns if turn["writer"] == "environment"]
    assert observed and all(turn.keys() == {"writer", "text", "token_texts"} for turn in observed)
    assert all("".join(turn["token_texts"]).strip() == turn["text"].strip() for turn in observed)


def test_threads_keep_what_their_simulation_keeps_and_sync_has_the_same_prompts(
    make_config: MakeConfig,
) -> None:
    def kept(*options: str) -> list[RolloutSample]:
        return read_rollouts(run(make_config(*SHORT, *options)))

    lagged = kept("mode=lagged", "mode.max_staleness=1")
    assert lagged == kept("mode=async", "mode.executor=thread", "mode.max_staleness=1")
    assert lagged == kept("mode=async", "mode.executor=inline", "mode.max_staleness=1")
    sync = kept("mode=sync")
    assert all(one.lag_updates == 0 for one in sync)
    keys = [
        [(one.round, one.prompt_id, one.sample, one.prompt) for one in k] for k in (sync, lagged)
    ]
    assert keys[0] == keys[1]


@pytest.mark.parametrize("samples", [0, 100])
def test_how_many_are_kept_changes_nothing_else(make_config: MakeConfig, samples: int) -> None:
    plain, other = run(make_config(*SHORT)), run(make_config(*SHORT, f"tracker.samples={samples}"))
    assert outcome(plain) == outcome(other)
    rows = len(read_rollouts(other))
    assert rows == (0 if not samples else metrics(other)[-1]["total/completions"])
    assert (other / ROLLOUTS).exists() == bool(samples)
