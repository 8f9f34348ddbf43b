"""What a run reads besides its config: each model as seldom as can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.cli.train import start_pipeline
from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.build.policy import PolicyLoader
from rlhf_lab.models import causal_lm, reward_model
from rlhf_lab.models.reward_model import load_reward_model, reward_model_shape
from rlhf_lab.models.weights import num_parameters
from rlhf_lab.runs.trackers.console import Console
from tests.conftest import MakeConfig
from tests.support.examples import FACTS


def test_a_pipeline_loads_its_policy_once_before_and_once_after_training(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config("run.updates=2", "sft.steps=4", f"output.cache={tmp_path / 'cache'}")
    loaded: list[str] = []
    for module in (causal_lm, reward_model):
        true = module.load_weights_of

        def counted(kind: Any, *rest: Any, true: Any = true, **options: Any) -> Any:
            loaded.append(kind.__name__)
            return true(kind, *rest, **options)

        monkeypatch.setattr(module, "load_weights_of", counted)
    start_pipeline(config, Console(quiet=True), FACTS)
    # Labels, reward model and training share the first; the saved policy and evaluation, the other.
    assert loaded.count("AutoModelForCausalLM") == 2
    # The scorer of the rollouts, and that of the evaluation.
    assert loaded.count("AutoModelForSequenceClassification") == 2


def test_a_policy_that_is_taken_is_kept_no_longer(make_config: MakeConfig) -> None:
    source = Artifacts(make_config("sft.steps=4"), Console(quiet=True)).sources().policy
    loader = PolicyLoader()
    model, _ = loader.read(source, seed=1)
    assert loader.read(source, seed=1)[0] is model
    assert loader.take(source, seed=1)[0] is model
    assert loader.read(source, seed=1)[0] is not model


def test_the_shape_of_a_reward_model_has_its_parameters_and_no_weights(
    make_config: MakeConfig,
) -> None:
    sources = Artifacts(make_config("sft.steps=4"), Console(quiet=True)).sources()
    shape = reward_model_shape(sources.proxies[0])
    model, _, _ = load_reward_model(sources.proxies[0])
    assert num_parameters(shape) == num_parameters(model)
    assert all(parameter.is_meta for parameter in shape.parameters())
