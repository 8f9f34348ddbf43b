"""The round loop: one loop for every mode, algorithm, reward and engine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.algos import off_policy
from rlhf_lab.algos.off_policy import gaps, is_anchored
from rlhf_lab.models.batching import collate, minibatches, pad_right, rewards_of
from rlhf_lab.rollout.pipeline import Pipeline, RoundRollouts
from rlhf_lab.training.checkpoint import Checkpoints, Snapshot
from rlhf_lab.training.ledger import Ledger
from rlhf_lab.training.optim import Optim
from rlhf_lab.types.data import Batch, Credit, Metrics, UpdateResult, ValueModel, Weights
from rlhf_lab.types.errors import StopRequested
from rlhf_lab.types.protocols import Adaptive, Algorithm, Correction, Engine
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.run_options import RunOptions
from rlhf_lab.types.samples import Finish, Group

# Stand for the pass in the keys of the choice of groups: of the probe, and for the reference.
PROBE = -1
REFERENCE = -2
ALL = -1


@dataclass(frozen=True)
class Hooks:
    """What a run does besides learning. All of it is timed: with a generator at work beside it,
    time that nobody counts would be given to asynchrony for nothing.

    log(metrics, round) receives one row per round; record(schedule, events) what was taken and when
    what happened; save(weights) every version, the first included; keep_batch(batch, groups, why)
    a batch that could not be trained on. should_stop is asked between rounds.
    """

    log: Callable[[Metrics, int], None]
    record: Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]], None]
    save: Callable[[Weights], None]
    keep_batch: Callable[[Batch, Sequence[Group], str], None]
    should_stop: Callable[[], bool] = lambda: False


@dataclass
class Loop:
    """Everything that a run is made of. `train` is the whole of its behaviour.

    algo: of the present round; an adaptive one is another one in the next. response_limit: longest
    response, in tokens. probe_groups: groups per round on which the three gaps are measured (see
    off_policy.gaps). reference_groups: groups per round that the reference is asked about, if
    neither credit nor loss reads what it says; ALL for every group.
    """

    algo: Algorithm
    correction: Correction
    engine: Engine
    pipeline: Pipeline
    run_options: RunOptions
    optim: Optim
    ledger: Ledger
    seed: int
    pad_id: int
    response_limit: int
    hooks: Hooks
    checkpoints: Checkpoints
    probe_groups: int = 0
    reference_groups: int = ALL

    def train(self, start: Snapshot | None = None) -> Weights:
        """Run all rounds that are left, or those before the run's pause; the pipeline must be open.
        Returns the last weights.

        Raises StopRequested when asked to stop. A checkpoint was saved then, and at a pause.
        """
        weights = self._begin(start)
        last = self.checkpoints.last_round(self.run_options.num_rounds)
        for round_ in range(weights.version, last):
            taken = self._take(weights)
            self._require_rewards(taken)
            groups = informative_first(taken.groups, self.run_options.groups_per_round)
            metrics = self._learn(weights, taken, groups)
            with self._span("sync", round_):
                new = self.engine.weights(version=round_ + 1)
                self._move_reference(round_ + 1)
            with self._span("take", round_):
                # The next rollouts start before this round is written down.
                self.pipeline.fill(new)
            with self._span("probe", round_):
                metrics |= self._gaps(groups, weights, new)
            weights = new
            with self._span("track", round_):
                self.hooks.record(taken.schedule, self.ledger.drain())
                self.hooks.log(metrics | self._totals(), round_)
            with self._span("save", round_):
                self.hooks.save(weights)
            is_stopping = self.hooks.should_stop()
            if weights.version < self.run_options.num_rounds:
                self._checkpoint(weights, is_forced=is_stopping or weights.version == last)
                if is_stopping:
                    raise StopRequested
        self.hooks.record((), self.ledger.drain())
        return weights

    def _span(self, phase: str, round_: int) -> AbstractContextManager[None]:
        return self.ledger.span(phase, round_, round_)

    def _begin(self, start: Snapshot | None) -> Weights:
        if start is None:
            weights = self.engine.weights(version=0)
            with self._span("save", 0):
                self.hooks.save(weights)
            return weights
        weights = start.weights[start.round]
        self.engine.restore(weights, start.optimizer)
        if isinstance(self.algo, Adaptive):
            self.algo = self.algo.with_kl_coef(start.counters["kl_coef"])
        self.pipeline.restore(start.counters, start.queue, start.weights)
        return weights

    def _take(self, weights: Weights) -> RoundRollouts:
        """Nothing of the state changes here, so a run that ends while it waits is saved as it is:
        when it is asked to stop, and when generators fail."""
        with self._span("take", weights.version):
            try:
                return self.pipeline.take(weights)
            except (Exception, StopRequested) as error:
                if self.checkpoints.is_on:
                    self._checkpoint(weights, is_forced=True)
                    error.add_note(f"saved at round {weights.version}: `rlhf-lab resume` goes on")
                raise

    def _checkpoint(self, weights: Weights, is_forced: bool) -> None:
        if not (is_forced and self.checkpoints.is_on) and not self.checkpoints.is_due(
            weights.version
        ):
            return
        with self._span("checkpoint", weights.version - 1):
            counters, queue = self.pipeline.state()
            if isinstance(self.algo, Adaptive):
                counters["kl_coef"] = self.algo.kl_coef
            self.checkpoints.save(
                Snapshot(
                    round=weights.version,
                    weights={**self.pipeline.history(), weights.version: weights},
                    optimizer=self.engine.state(),
                    counters=counters,
                    queue=queue,
                    ledger=self.ledger.state(),
                )
            )

    def _read(self, weights: Weights, groups: Sequence[Group]) -> Batch:
        """The round's rows with everything that models say of them before it is trained on."""
        batch = collate(groups, self.pad_id, self.response_limit)
        batch = self._with_reference(batch, len(groups), weights.version)
        tokens = read_tokens(batch)
        if is_anchored(self.algo, self.correction):
            self.ledger.count(reread_tokens=tokens)
            batch = replace(batch, proximal_logp_BT=self.engine.logp(batch, weights))
        kind = self.algo.needs.values
        if kind is not ValueModel.none:
            self.ledger.count(
                **{"reread_tokens" if kind is ValueModel.shared else "value_tokens": tokens}
            )
            batch = replace(batch, value_BT=self.engine.values(batch))
        return batch

    def _with_reference(self, batch: Batch, num_groups: int, round_: int) -> Batch:
        """The reference's word on all rows, or on some groups if nothing but metrics asks for it.
        Rows without a behaviour of their own need it."""
        is_offline = bool(batch.behavior_logp_BT.isnan().any())
        if self.reference_groups == ALL or is_offline or self.reference_groups >= num_groups:
            self.ledger.count(reference_tokens=read_tokens(batch))
            return with_reference(batch, self.engine.reference_logp(batch))
        chosen_P = shuffled(num_groups, self.seed, round_, REFERENCE)[: self.reference_groups]
        has_reference_B = torch.isin(batch.group_B, chosen_P)
        asked = batch.rows(has_reference_B)
        self.ledger.count(reference_tokens=read_tokens(asked))
        reference_BT = batch.behavior_logp_BT.clone()
        reference_BT[has_reference_B] = self.engine.reference_logp(asked)
        return replace(with_reference(batch, reference_BT), has_reference_B=has_reference_B)

    def _move_reference(self, rounds_done: int) -> None:
        needs = self.algo.needs
        if needs.reference_every and rounds_done % needs.reference_every == 0:
            self.engine.move_reference(needs.reference_decay)

    def _learn(self, weights: Weights, taken: RoundRollouts, groups: Sequence[Group]) -> Metrics:
        round_ = weights.version
        with self._span("reference", round_):
            batch = self._read(weights, groups)
            credit = self.algo.credit(rewards_of(groups), batch)
            self._count(taken, batch, credit)
            described = describe(groups, batch, taken) | generator_metrics(taken)
        updates = UpdateMetrics(self.run_options, round_)
        for pass_ in range(self.run_options.passes):
            order_P = shuffled(len(groups), self.seed, round_, pass_)
            parts = minibatches(
                batch, credit, self.algo.reduction, self.run_options.updates_per_round, order_P
            )
            for part in parts:
                with self._span("update", round_):
                    updates.add(part, self._update(part, groups, round_, updates.number))
        if isinstance(self.algo, Adaptive):
            described["algo/kl_coef"] = self.algo.kl_coef
            self.algo = self.algo.adapted(described["kl/sampled_reference_k1"], len(batch))
        kept = float(credit.keep_B.float().mean())
        return described | updates.metrics() | {"rows_kept": kept, "round": round_}

    def _update(
        self, part: Batch, groups: Sequence[Group], round_: int, number: int
    ) -> UpdateResult | None:
        """None if no row of the minibatch had credit: then there is nothing to learn."""
        self.ledger.count(updates=1, updates_empty=int(not part), trained_tokens=read_tokens(part))
        if not len(part):
            return None
        learning_rate = self.optim.learning_rate(
            number, round_, self.run_options.updates, self.run_options.num_rounds
        )
        try:
            return self.engine.update(part, self.algo, self.correction, learning_rate)
        except FloatingPointError as error:
            self.hooks.keep_batch(part, groups, f"update {number} of round {round_}: {error}")
            raise

    def _require_rewards(self, taken: RoundRollouts) -> None:
        groups = taken.groups
        if not groups:
            raise RuntimeError(
                f"none of the {len(taken.unscored)} groups of a round could be scored, so there is "
                f"nothing to learn from: mend the reward{reward_failure_text(taken)}"
            )
        for group in groups:
            for reward in group.rewards:
                if not math.isfinite(reward):
                    complaint = (
                        f"prompt {group.prompt.example.uid} (number {group.prompt.id}) got reward "
                        f"{reward}: no update was made; mend the reward"
                    )
                    batch = collate(groups, self.pad_id, self.response_limit)
                    self.hooks.keep_batch(batch, groups, complaint)
                    raise FloatingPointError(complaint)

    def _count(self, taken: RoundRollouts, batch: Batch, credit: Credit) -> None:
        length_B = batch.mask_BT.sum(dim=1)
        kept, read = int(length_B[credit.keep_B].sum()), int(length_B.sum())
        written = sum(rollout.response_tokens for rollout in taken.rollouts)
        unscored = sum(len(s.tokens) for group in taken.unscored for s in group.samples)
        self.ledger.count(
            rounds=1,
            kept_tokens=kept,
            tied_tokens=read - kept,
            left_out_tokens=written - unscored - read,
            unscored_tokens=unscored,
            unscored_groups=len(taken.unscored),
            dropped_tokens=sum(rollout.response_tokens for rollout in taken.dropped),
            dropped_groups=sum(len(rollout.groups) for rollout in taken.dropped),
        )
        for rollout in [*taken.rollouts, *taken.dropped]:
            self.ledger.count_rollout(rollout)

    def _gaps(self, groups: Sequence[Group], start: Weights, end: Weights) -> Metrics:
        """The three gaps on a few groups of the round, before and after its updates.

        Not on offline samples: no version of this run wrote them."""
        round_ = start.version
        groups = [g for g in groups if not any(s.is_offline for s in g.samples)]
        order_P = shuffled(len(groups), self.seed, round_, PROBE)[: self.probe_groups]
        if not len(order_P):
            return {}
        probe = collate([groups[place] for place in order_P.tolist()], self.pad_id)
        samples = [s for place in order_P.tolist() for s in groups[place].samples]
        version_BT = pad_right(
            [s.versions or [s.version] * len(s.tokens) for s in samples], torch.long
        )
        start_BT = self.engine.logp(probe, start)
        writer_BT = start_BT
        for version in sorted(set(version_BT[probe.mask_BT > 0].tolist()) - {start.version}):
            logp_BT = self.engine.logp(probe, self.pipeline.weights_of(version))
            writer_BT = torch.where(version_BT == version, logp_BT, writer_BT)
        end_BT = self.engine.logp(probe, end)
        return gaps(probe, writer_BT, start_BT, end_BT, round_ - probe.version_B)

    def _totals(self) -> Metrics:
        """Sums over the run; keys under `timing/` and `seconds/` differ from run to run."""
        generated, in_flight = self.pipeline.tokens()
        self.ledger.check_tokens(generated, in_flight)
        return self.ledger.totals(self.pipeline.seconds_in_caller) | {
            "timing/generated_tokens": generated,
            "timing/in_flight_tokens": in_flight,
            "timing/generator_restarts": self.pipeline.restarts,
            **{f"timing/peak_{name}": size for name, size in self.engine.peak_memory().items()},
        }


class UpdateMetrics:
    """The updates of one round: their mean metrics, and the exact lag of every row they used."""

    def __init__(self, run_options: RunOptions, round_: int) -> None:
        self._run_options = run_options
        self._round = round_
        self._done = 0
        self._sums: Counter[str] = Counter()
        self._applied: list[Mapping[str, Tensor]] = []
        self._lags: list[Tensor] = []
        self._lag_updates: Counter[int] = Counter()
        self._lag_rounds: Counter[int] = Counter()

    @property
    def number(self) -> int:
        """Number of the next update, counted over the run."""
        return self._round * self._run_options.optimizer_steps_per_round + self._done

    def add(self, part: Batch, updated: UpdateResult | None) -> None:
        """Count an update (None: no row had credit, nothing was applied)."""
        rounds_B = self._round - part.version_B
        updates_B = rounds_B * self._run_options.optimizer_steps_per_round + self._done
        self._lag_rounds.update(rounds_B.tolist())
        self._lag_updates.update(updates_B.tolist())
        if updated is not None:
            self._sums.update(updated.metrics)
            self._applied.append(updated.rows)
            self._lags.append(updates_B)
        self._done += 1

    def metrics(self) -> Metrics:
        """Means over the applied updates, off-policy measures, and lag in rounds and updates."""
        means = {f"update/{name}": s / len(self._applied) for name, s in self._sums.items()}
        lags = {
            **histogram("lag/rounds", self._lag_rounds),
            **histogram("lag/updates", self._lag_updates),
        }
        return {**means, **off_policy.summary(self._applied, self._lags), **lags}


def generator_metrics(taken: RoundRollouts) -> Metrics:
    """Means of what the round's generators measured of themselves, over those that did."""
    found: dict[str, list[float]] = {}
    for rollout in taken.rollouts:
        for name, value in rollout.report.measures.items():
            found.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in found.items()}


def reward_failure_text(taken: RoundRollouts) -> str:
    """What the round's reward counted, such as its failures, for an error that ends the run."""
    counts: Counter[str] = Counter()
    for rollout in taken.rollouts:
        counts.update({k: v for k, v in rollout.tokens.items() if not k.endswith("_tokens")})
    text = ", ".join(f"{name}={amount}" for name, amount in sorted(counts.items()) if amount)
    return f" (it counted {text})" if text else ""


def histogram(name: str, counts: Counter[int]) -> Metrics:
    """Smallest, mean and largest value of a histogram, and itself (nothing when it is empty)."""
    if not counts:
        return {}
    total = sum(counts.values())
    return {
        f"{name}_min": min(counts),
        f"{name}_mean": sum(lag * count for lag, count in counts.items()) / total,
        f"{name}_max": max(counts),
        f"{name}_histogram": {str(lag): counts[lag] for lag in sorted(counts)},
    }


def shuffled(count: int, seed: int, round_: int, pass_: int) -> Tensor:
    """Order of a round's groups in one pass, keyed by what it is for."""
    key = stable_hash(seed, "minibatches", round_, pass_)
    return torch.randperm(count, generator=torch.Generator().manual_seed(key & (2**63 - 1)))


def informative_first(groups: Sequence[Group], count: int) -> list[Group]:
    """The first `count` groups whose rewards differ, filled up with tied ones, in their order."""
    is_tied = [min(group.rewards) == max(group.rewards) for group in groups]
    chosen = sorted(range(len(groups)), key=lambda place: is_tied[place])[:count]
    return [groups[place] for place in sorted(chosen)]


def with_reference(batch: Batch, reference_BT: Tensor) -> Batch:
    """The batch with the reference's log-probs, which also stand in for unknown behaviour: exact
    where the reference wrote the samples, at the run's temperature."""
    behavior_BT = batch.behavior_logp_BT
    behavior_BT = torch.where(behavior_BT.isnan(), reference_BT, behavior_BT)
    return replace(
        batch,
        reference_logp_BT=reference_BT,
        behavior_logp_BT=behavior_BT,
        proximal_logp_BT=behavior_BT,
    )


def read_tokens(batch: Batch) -> int:
    """Prompt and response tokens of the rows, padding left out."""
    return int(batch.prompt_mask_BS.sum() + batch.mask_BT.sum())


def describe(groups: Sequence[Group], batch: Batch, taken: RoundRollouts) -> Metrics:
    """What the round's samples are like: reward, length, end token, KL per sequence (k1), versions;
    and how long and how old the groups were that had to be dropped."""
    reward_PG = rewards_of(groups)
    all_PG = rewards_of(taken.groups)
    samples = [sample for group in groups for sample in group.samples]
    kl_B = (batch.behavior_logp_BT - batch.reference_logp_BT).sum(dim=1)[batch.has_reference_B]
    metrics: Metrics = {
        "reward/mean": float(reward_PG.mean()),
        "reward/std": float(reward_PG.std(unbiased=False)),
        "reward/best": float(reward_PG.amax(dim=1).mean()),
        "reward/groups_tied": float(
            (reward_PG.amax(dim=1) == reward_PG.amin(dim=1)).float().mean()
        ),
        "sample/length": float(batch.mask_BT.sum(dim=1).mean()),
        "sample/eos_rate": sum(s.finish is Finish.eos for s in samples) / len(samples),
        "sample/version": min(s.version for s in samples),
        "sample/continued": sum(bool(s.versions) for s in samples),
        "sample/version_span": sum(s.newest_version - s.version for s in samples) / len(samples),
        "kl/sampled_reference_k1": float(kl_B.mean()),
        "reward/mean_generated": float(all_PG.mean()),
        "sample/groups_left_out": len(all_PG) - len(reward_PG),
        "sample/groups_unscored": len(taken.unscored),
        "dropped/groups": sum(len(rollout.groups) for rollout in taken.dropped),
    }
    gone = [s for r in taken.dropped for group in r.groups for s in group.samples]
    if gone:
        round_ = taken.schedule[0]["round"]
        metrics["dropped/length"] = sum(len(s.tokens) for s in gone) / len(gone)
        metrics |= histogram("dropped/lag_rounds", Counter(round_ - s.version for s in gone))
    return metrics
