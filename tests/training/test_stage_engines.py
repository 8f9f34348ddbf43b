"""Stages train by the run's engine: in one pass, in parts, and in several processes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlhf_lab.experiment.artifacts.keys import ArtifactKeys, engine_key
from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.artifacts.products import settings_hash
from rlhf_lab.experiment.build.engine import stage_engine
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.models.reward_model import load_reward_model, reward_model_from
from rlhf_lab.models.weights import meta_model, with_parameters
from rlhf_lab.rewards.model import last_token_scores
from rlhf_lab.runs.identity import hash_of
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.training.stages.options import RewardModelOptions
from rlhf_lab.training.stages.scored_rows import (
    PairwiseLoss,
    Row,
    ScoreNetwork,
    engine_scores,
    pair_batch,
    pair_loss,
)
from rlhf_lab.training.stages.supervised import fit
from tests.conftest import MakeConfig
from tests.support.engine_cases import policy
from tests.support.two_ranks import run_command, two_ranks
from tests.support.variants import names

pytestmark = pytest.mark.usefixtures("costly")

SMALL = (
    *("model.hidden_size=32", "model.num_layers=1", "proxy.hidden_size=32", "proxy.num_layers=1"),
    *("reward_model.threads=1", "labels.pairs=32", "labels.held_out_pairs=16", "sft.steps=3"),
)
IN_PARTS = ("sft.micro_rows=6", "engine.logit_tokens=50", "reward_model.micro_rows=10")


class Silent:
    def advance(self, amount: int = 1, **numbers: float) -> None:
        """Nobody looks."""


def pairs(count: int = 8) -> list[Row]:
    """Pairs of uneven lengths."""
    return [
        {
            "prompt_tokens": list(range(20, 21 + place % 4)),
            "chosen_tokens": [7] * (1 + place % 3),
            "rejected_tokens": [8, 9, 10 + place][: 1 + (place * 5) % 3],
        }
        for place in range(count)
    ]


def plain_steps(model: Any, rows: Sequence[Row], targets: Tensor, steps: int) -> list[float]:
    """The pairwise loss as a plain loop of PyTorch trains it."""
    options = RewardModelOptions(lr=1e-2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    losses = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = options.rate(step, steps)
        optimizer.zero_grad(set_to_none=True)
        sides = [
            [*row["prompt_tokens"], *row[f"{side}_tokens"]]
            for side in ("chosen", "rejected")
            for row in rows
        ]
        chosen_P, rejected_P = last_token_scores(model, sides).chunk(2)
        loss = pair_loss(chosen_P - rejected_P, targets, torch.zeros(len(rows))).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def engine_steps(model: Any, rows: Sequence[Row], targets: Tensor, config: Any) -> list[float]:
    """The same two steps by the engine of the stage."""
    loss = PairwiseLoss(targets, torch.zeros(len(rows)))
    options = replace(config.reward_model, threads=1, lr=1e-2)
    with stage_engine(config, options).led(ScoreNetwork(model)) as engine:
        return fit(engine, lambda step: (pair_batch(rows), loss), 2, options, Silent())


def test_a_whole_step_of_an_engine_has_the_bits_of_a_plain_loop(make_config: MakeConfig) -> None:
    torch.set_num_threads(1)
    rows, targets = pairs(), torch.linspace(0.6, 1.0, 8)
    plain, by_engine, in_parts = (reward_model_from(policy(), 1) for _ in range(3))
    losses = plain_steps(plain, rows, targets, 2)
    assert engine_steps(by_engine, rows, targets, make_config()) == losses
    for one, other in zip(plain.parameters(), by_engine.parameters(), strict=True):
        assert torch.equal(one, other)
    small = make_config("reward_model.micro_rows=6")
    assert engine_steps(in_parts, rows, targets, small) == pytest.approx(losses, rel=1e-5)
    sides = [[*row["prompt_tokens"], *row["chosen_tokens"]] for row in rows]
    whole_B, parts_B = (last_token_scores(model, sides) for model in (plain, in_parts))
    assert torch.allclose(whole_B, parts_B, atol=5e-3)


def test_the_network_scores_rows_in_their_order(make_config: MakeConfig) -> None:
    rows = [[5, 6], [7], [8, 9, 10, 11, 12], [3]]
    model = reward_model_from(policy(), 1)
    with torch.no_grad():
        expected = torch.cat([last_token_scores(model, [row]) for row in rows])
    config = make_config()
    options = config.reward_model.for_model(is_pretrained=False)
    with stage_engine(config, options).led(ScoreNetwork(model)) as engine:
        assert torch.allclose(engine_scores(engine, rows, 3), expected, atol=1e-5)


def test_stages_in_parts_find_what_whole_stages_find(make_config: MakeConfig) -> None:
    found = []
    for options in ((), IN_PARTS):
        stages = Artifacts(make_config(*SMALL, *options), Console(quiet=True))
        sft = stages.sft(stages._config.model)
        found.append({**sft.metrics, **stages.reward_model().metrics})
    whole, parts = found
    for name in ("train_loss", "validation_loss"):
        assert parts[name] == pytest.approx(whole[name], rel=1e-4), name


def test_a_key_names_the_engine_only_where_it_decides_bits(make_config: MakeConfig) -> None:
    plain, tuned, parts = (
        make_config(*options)
        for options in ((), ("engine.gradient_checkpointing=true",), ("sft.micro_rows=8",))
    )
    keys = [ArtifactKeys(config).sft(config.model) for config in (plain, tuned, parts)]
    assert "by_engine" not in keys[0]
    assert "on_device" not in keys[0]
    assert "micro_rows" not in keys[0]["options"]
    assert hash_of(keys[0]) == hash_of(keys[1]) != hash_of(keys[2])
    # A run finds its own artifacts wherever it is read.
    assert settings_hash(keys[0]) == settings_hash(keys[2])
    assert engine_key(parts, parts.sft)["by_engine"]["micro_rows"] == 8


def test_a_key_names_the_kind_of_gpu(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    config = make_config("engine.device=auto")
    key = ArtifactKeys(config).sft(config.model)
    assert key["on_device"] == "cuda 9.0"
    assert key["by_engine"]["micro_rows"] == config.engine.micro_rows
    assert not stage_engine(config, config.sft).is_alone


def test_a_shape_keeps_ties_and_buffers_and_is_filled_again() -> None:
    model = policy()
    shape = meta_model(model)
    assert {parameter.device.type for parameter in shape.parameters()} == {"meta"}
    assert {buffer.device.type for buffer in shape.buffers()} == {"cpu"}
    full = with_parameters(shape, dict(model.named_parameters()))
    assert full.get_output_embeddings().weight is full.get_input_embeddings().weight
    tokens = torch.arange(5).unsqueeze(0)
    assert torch.equal(full(input_ids=tokens).logits, model(input_ids=tokens).logits)


@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("engine", names(["fsdp", "deepspeed"], ["fsdp"]))
def test_two_processes_make_the_stages_of_one(
    make_config: MakeConfig, tmp_path: Path, engine: str
) -> None:
    """The policy and the reward model of two processes are those of one, up to rounding."""
    if engine == "deepspeed":
        pytest.importorskip("deepspeed")
    one = Artifacts(make_config(*SMALL, *IN_PARTS), Console(quiet=True))
    sft = one.sft(one._config.model)
    given = ["debug=tiny", f"engine={engine}", f"output.cache={tmp_path}/cache", "seed=1"]
    given += ["engine.gradient_checkpointing=true"]
    words = ("reward-model", *given, *SMALL, *IN_PARTS)
    ended = two_ranks(tmp_path / "log", run_command, words)
    assert ended.codes == (0, 0), ended
    (folder,) = (tmp_path / "cache" / "sft").glob("[!.]*")
    alone, _ = load_policy(PretrainedModel("one", str(sft.folder)), None, 1)
    shared, _ = load_policy(PretrainedModel("two", str(folder)), None, 1)
    for (name, first), (_, second) in zip(
        alone.named_parameters(), shared.named_parameters(), strict=True
    ):
        assert torch.allclose(first, second, atol=2e-3), name
    metrics = json.loads((folder / "metrics.json").read_text())
    for name, value in sft.metrics.items():
        assert metrics[name] == pytest.approx(value, rel=1e-4), name
    (proxy,) = (tmp_path / "cache" / "reward_model").glob("[!.]*")
    assert load_reward_model(str(proxy))[2] != 0.0
