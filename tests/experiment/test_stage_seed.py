"""stage_seed: several seeds share the models that they start from."""

from __future__ import annotations

from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.runs.trackers.console import Console
from tests.conftest import MakeConfig


def folders(make_config: MakeConfig, *overrides: str) -> list[str]:
    config = make_config("task=tldr_nano", *overrides)
    return [str(path) for path in Artifacts(config, Console(quiet=True)).folders()]


def test_seeds_of_one_stage_seed_share_their_stages(make_config: MakeConfig) -> None:
    first = folders(make_config, "seed=3")
    assert len(first) == 3, "SFT, labels, a proxy"
    assert folders(make_config, "seed=3", "stage_seed=3") == first, "0 takes the seed"
    assert folders(make_config, "seed=9", "stage_seed=3") == first
    other = folders(make_config, "seed=3", "stage_seed=4")
    assert not set(other) & set(first)


def test_prompts_and_samples_of_the_run_have_the_runs_own_seed(make_config: MakeConfig) -> None:
    config = make_config("seed=9", "stage_seed=3")
    assert (config.seed, config.for_stages.seed, config.for_stages.stage_seed) == (9, 3, 0)
    assert make_config("seed=9").for_stages.seed == 9
