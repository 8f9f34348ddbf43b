"""One run's timed part: from the first rollout to the last update."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from rlhf_lab import build
from rlhf_lab.checks import check_context
from rlhf_lab.config import Config
from rlhf_lab.forward import load_weights
from rlhf_lab.ledger import Ledger
from rlhf_lab.loop import Loop
from rlhf_lab.models.causal_lm import load_policy, save_policy
from rlhf_lab.models.reward_model import load_reward_model
from rlhf_lab.rewards.model import ModelReward
from rlhf_lab.trackers.console import Bar, Console
from rlhf_lab.trackers.jsonl import JsonlTracker
from rlhf_lab.trackers.mirrors import mirrors
from rlhf_lab.types import Metrics, Tracker, Weights, num_parameters


def learn(
    config: Config,
    sources: build.Sources,
    folder: Path,
    console: Console,
    resolved: Mapping[str, Any],
) -> str:
    """Train, write metrics, kept versions and the final policy. Returns the weights' digest.

    resolved: the config as plain data, for the trackers that record it.
    """
    torch.set_num_threads(config.engine.threads)
    model, tokenizer = load_policy(sources.policy, None, config.seed)
    check_context(config, model)
    keep = set(config.eval.versions(config.run.num_rounds))
    trackers: list[Tracker] = [JsonlTracker(folder / "metrics.jsonl")]
    trackers += mirrors(config.tracker, folder, resolved)
    pipe = build.pipeline(config, sources, tokenizer)
    try:
        with pipe, console.stage(title(config), total=config.run.num_rounds) as bar:
            loop = Loop(
                algo=config.algo,
                engine=build.engine(config, model),
                pipeline=pipe,
                recipe=config.run,
                optim=config.optim,
                ledger=Ledger(
                    num_devices=build.num_devices(config),
                    num_background=config.mode.num_background,
                    policy_parameters=num_parameters(model),
                    reward_parameters=proxy_size(config, sources),
                ),
                seed=config.seed,
                pad_id=build.pad_id(tokenizer),
                log=logger(trackers, bar),
                save=saver(folder, keep),
            )
            weights = loop.train()
    finally:
        for tracker in trackers:
            tracker.close()
    load_weights(model, weights)
    save_policy(model, tokenizer, folder / "policy")
    return weights_digest(weights)


def title(config: Config) -> str:
    """What the bar of a run says."""
    return (
        f"{config.algo.name} {config.mode.name} N={config.run.updates_per_round} "
        f"S={config.mode.max_staleness}"
    )


def proxy_size(config: Config, sources: build.Sources) -> int:
    """Parameters of the reward model that scores the rollouts, 0 for a rule."""
    if not isinstance(config.reward, ModelReward):
        return 0
    return num_parameters(load_reward_model(config.reward.path or sources.proxy)[0])


def logger(trackers: Sequence[Tracker], bar: Bar) -> Callable[[Metrics, int], None]:
    """Write a round everywhere, and show what matters."""

    def log(metrics: Metrics, round_: int) -> None:
        for tracker in trackers:
            tracker.log(metrics, round_)
        wall = metrics["seconds/wall"]
        bar.advance(
            1,
            reward=metrics["reward/mean"],
            kl=metrics["kl/sampled_reference_k1"],
            lag=metrics.get("lag/updates_mean", 0.0),
            waiting=metrics["seconds/wait"] / wall if wall else 0.0,
        )

    return log


def saver(folder: Path, keep: set[int]) -> Callable[[Weights], None]:
    """Keep the versions that will be evaluated."""
    (folder / "weights").mkdir(exist_ok=True)

    def save(weights: Weights) -> None:
        if weights.version in keep:
            save_file(
                dict(weights.state), folder / "weights" / f"{weights.version:06d}.safetensors"
            )

    return save


def weights_digest(weights: Weights) -> str:
    """SHA-256 over names and bytes: equal digests mean bit-identical weights."""
    digest = hashlib.sha256()
    for name in sorted(weights.state):
        digest.update(name.encode())
        digest.update(weights.state[name].contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
