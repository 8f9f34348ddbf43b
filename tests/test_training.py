"""What a run reads besides its config: each model once for every use that changes it."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import MakeConfig
from examples import FACTS

from rlhf_lab.experiment import lifecycle
from rlhf_lab.experiment.prepare import Artifacts
from rlhf_lab.models import causal_lm, reward_model
from rlhf_lab.models.reward_model import load_reward_model, reward_model_shape
from rlhf_lab.models.weights import num_parameters
from rlhf_lab.runs.trackers.console import Console


def test_a_run_reads_no_model_that_it_has(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config("run.updates=2", "sft.steps=4")
    Artifacts(config, Console(quiet=True)).sources()
    read: list[str] = []
    for module in (causal_lm, reward_model):
        true = module.load_weights_of

        def counted(kind: Any, *rest: Any, true: Any = true, **options: Any) -> Any:
            read.append(kind.__name__)
            return true(kind, *rest, **options)

        monkeypatch.setattr(module, "load_weights_of", counted)
    lifecycle.train(config, Console(quiet=True), FACTS)
    # Training starts from the policy, the trained one is saved, and an evaluation begins anew.
    assert read.count("AutoModelForCausalLM") == 3
    # The scorer of the rollouts, and that of the evaluation.
    assert read.count("AutoModelForSequenceClassification") == 2


def test_the_shape_of_a_reward_model_has_its_parameters_and_no_weights(
    make_config: MakeConfig,
) -> None:
    sources = Artifacts(make_config("sft.steps=4"), Console(quiet=True)).sources()
    shape = reward_model_shape(sources.proxies[0])
    model, _, _ = load_reward_model(sources.proxies[0])
    assert num_parameters(shape) == num_parameters(model)
    assert all(parameter.is_meta for parameter in shape.parameters())
