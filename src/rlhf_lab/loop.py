"""The round loop: one loop for every mode, algorithm, reward and engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlhf_lab.batching import collate, minibatches, rewards_of
from rlhf_lab.ledger import Ledger
from rlhf_lab.optim import Optim
from rlhf_lab.randomness import stable_hash
from rlhf_lab.recipe import Recipe
from rlhf_lab.rollout.pipeline import Pipeline
from rlhf_lab.types import (
    Algorithm,
    Batch,
    Engine,
    Finish,
    Group,
    Metrics,
    Rollout,
    Weights,
)


@dataclass(frozen=True)
class Loop:
    """Everything that a run is made of. `train` is the whole of its behaviour.

    log(metrics, round) receives one row per round; save(weights) receives every version, the
    first included. Saving is timed like everything else: with a generator at work beside it, time
    that nobody counts would be given to asynchrony for nothing.
    """

    algo: Algorithm
    engine: Engine
    pipeline: Pipeline
    recipe: Recipe
    optim: Optim
    ledger: Ledger
    seed: int
    pad_id: int
    log: Callable[[Metrics, int], None]
    save: Callable[[Weights], None]

    def train(self) -> Weights:
        """Run all rounds; the pipeline must be open. Returns the last weights."""
        weights = self.engine.weights(version=0)
        self._save(weights)
        for round_ in range(self.recipe.num_rounds):
            with self.ledger.span("take"):
                rollouts = self.pipeline.take(weights)
            with self.ledger.span("train"):
                metrics = self._learn(round_, rollouts)
            with self.ledger.span("sync"):
                weights = self.engine.weights(version=round_ + 1)
            with self.ledger.span("take"):
                # The next rollouts start before this round is written down.
                self.pipeline.fill(weights)
            with self.ledger.span("track"):
                totals = self.ledger.totals(self.pipeline.seconds_in_caller)
                self.log(metrics | totals, round_)
            self._save(weights)
        return weights

    def _save(self, weights: Weights) -> None:
        with self.ledger.span("save"):
            self.save(weights)

    def _learn(self, round_: int, rollouts: Sequence[Rollout]) -> Metrics:
        groups = [group for rollout in rollouts for group in rollout.groups]
        batch = collate(groups, self.pad_id)
        batch = replace(batch, reference_logp_BT=self.engine.reference_logp(batch))
        credit = self.algo.credit(rewards_of(groups), batch)
        updates = Updates(self.recipe, round_)
        for pass_ in range(self.recipe.passes):
            order_P = shuffled(len(groups), self.seed, round_, pass_)
            parts = minibatches(
                batch, credit, self.algo.reduction, self.recipe.updates_per_round, order_P
            )
            for part in parts:
                learning_rate = self.optim.learning_rate(
                    updates.number, round_, self.recipe.updates, self.recipe.num_rounds
                )
                has_rows = len(part) > 0
                updates.add(
                    part, self.engine.update(part, self.algo, learning_rate) if has_rows else {}
                )
                self.ledger.count(
                    updates=1, updates_empty=int(not has_rows), trained_tokens=read_tokens(part)
                )
        for rollout in rollouts:
            self.ledger.count_rollout(rollout)
        self.ledger.count(rounds=1, reference_tokens=read_tokens(batch))
        kept = float(credit.keep_B.float().mean())
        return describe(groups, batch) | updates.metrics() | {"rows_kept": kept, "round": round_}


class Updates:
    """The updates of one round: their mean metrics, and the exact lag of every row they used."""

    def __init__(self, recipe: Recipe, round_: int) -> None:
        self._recipe = recipe
        self._round = round_
        self._done = 0
        self._sums: Counter[str] = Counter()
        self._applied = 0
        self._lag_updates: Counter[int] = Counter()
        self._lag_rounds: Counter[int] = Counter()

    @property
    def number(self) -> int:
        """Number of the next update, counted over the run."""
        return self._round * self._recipe.updates_a_round + self._done

    def add(self, part: Batch, metrics: Metrics) -> None:
        """Count an update (empty metrics: no row had credit, nothing was applied)."""
        for version in part.version_B.tolist():
            rounds = self._round - version
            self._lag_rounds[rounds] += 1
            self._lag_updates[rounds * self._recipe.updates_a_round + self._done] += 1
        self._sums.update(metrics)
        self._applied += bool(metrics)
        self._done += 1

    def metrics(self) -> Metrics:
        """Means over the applied updates, and lag in rounds and updates over trained rows."""
        means = {f"update/{name}": value / self._applied for name, value in self._sums.items()}
        lags = {
            **summary("lag/rounds", self._lag_rounds),
            **summary("lag/updates", self._lag_updates),
        }
        return {**means, **lags}


def summary(name: str, histogram: Counter[int]) -> Metrics:
    """Smallest, mean and largest value of a histogram, and itself (nothing when it is empty)."""
    if not histogram:
        return {}
    total = sum(histogram.values())
    return {
        f"{name}_min": min(histogram),
        f"{name}_mean": sum(lag * count for lag, count in histogram.items()) / total,
        f"{name}_max": max(histogram),
        f"{name}_histogram": {str(lag): histogram[lag] for lag in sorted(histogram)},
    }


def shuffled(count: int, seed: int, round_: int, pass_: int) -> Tensor:
    """Order of a round's groups in one pass, keyed by what it is for."""
    key = stable_hash(seed, "minibatches", round_, pass_)
    return torch.randperm(count, generator=torch.Generator().manual_seed(key & (2**63 - 1)))


def read_tokens(batch: Batch) -> int:
    """Prompt and response tokens of the rows, padding left out."""
    return int(batch.prompt_mask_BS.sum() + batch.mask_BT.sum())


def describe(groups: Sequence[Group], batch: Batch) -> Metrics:
    """What the round's samples are like: reward, length, end token, KL per sequence (k1)."""
    reward_PG = rewards_of(groups)
    samples = [sample for group in groups for sample in group.samples]
    kl_B = (batch.behavior_logp_BT - batch.reference_logp_BT).sum(dim=1)
    return {
        "reward/mean": float(reward_PG.mean()),
        "reward/std": float(reward_PG.std(unbiased=False)),
        "reward/best": float(reward_PG.amax(dim=1).mean()),
        "reward/groups_tied": float(
            (reward_PG.amax(dim=1) == reward_PG.amin(dim=1)).float().mean()
        ),
        "sample/length": float(batch.mask_BT.sum(dim=1).mean()),
        "sample/eos_rate": sum(s.finish is Finish.eos for s in samples) / len(samples),
        "sample/version": min(s.version for s in samples),
        "kl/sampled_reference_k1": float(kl_B.mean()),
    }
