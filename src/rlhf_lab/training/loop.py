"""The round loop: one loop for every mode, algorithm, reward and engine.

A round takes the groups that the generators have finished, makes N * T optimizer updates on them,
and publishes the new weights, whose version is the number of rounds done. Synchronous, lagged and
asynchronous runs differ in the `Pipeline` alone: in which version wrote the groups it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from rlhf_lab.algos.declared import require_declared, seen_by_algorithm
from rlhf_lab.models.batching import collate, minibatches, rewards_of
from rlhf_lab.rollout.chunk_states import RoundRollouts
from rlhf_lab.rollout.pipeline import Pipeline
from rlhf_lab.runs.rollouts import chosen
from rlhf_lab.runs.schema import RolloutSample
from rlhf_lab.tasks.environment import TokenTexts
from rlhf_lab.training.batch_builder import (
    ALL,
    BatchBuilder,
    count_tokens,
    informative_first,
    shuffled,
)
from rlhf_lab.training.checkpoint import Checkpoints
from rlhf_lab.training.checkpoint_files import Snapshot
from rlhf_lab.training.ledger import Ledger
from rlhf_lab.training.optim import Optim
from rlhf_lab.training.probe import MismatchLimit, changed_shares, measure_gaps
from rlhf_lab.training.replay import ReplayBuffer, replay_metrics
from rlhf_lab.training.round_credit import (
    ReturnRange,
    credit_among_ended,
    without_rows,
    without_truncated,
)
from rlhf_lab.training.round_metrics import (
    UpdateMetrics,
    generator_metrics,
    require_groups,
    reward_complaint,
    rollout_samples,
    sample_metrics,
    token_fates,
)
from rlhf_lab.types.data import Batch, Credit, Metrics, Objective, UpdateResult, Weights
from rlhf_lab.types.errors import StopRequested
from rlhf_lab.types.protocols import Algorithm, Correction, Engine
from rlhf_lab.types.run_options import ReturnScaling, RunOptions
from rlhf_lab.types.samples import Group

# In place of the number of a pass in the random key: the choice of probe groups.
PROBE = -1


@dataclass(frozen=True)
class Hooks:
    """What a run does besides learning. Its seconds count: generators work on meanwhile, so time
    that is left out would make asynchronous runs look faster than they are.

    log(metrics, round): one row per round. record(schedule, events): which version wrote each chunk
    of the round, and spans of time. save(weights): every version, the first included.
    keep_batch(batch, groups, reason): a batch that could not be trained on, for debugging.
    keep_samples(samples): some samples of the round. should_stop(): read between rounds.
    enter(phase): the trainer begins a phase of the ledger.
    """

    log: Callable[[Metrics, int], None]
    record: Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]], None]
    save: Callable[[Weights], None]
    keep_batch: Callable[[Batch, Sequence[Group], str], None]
    keep_samples: Callable[[Sequence[RolloutSample]], None] = lambda _: None
    should_stop: Callable[[], bool] = lambda: False
    enter: Callable[[str], None] = lambda _: None


@dataclass
class Loop:
    """One run; `train` is all that it does.

    algo: of the present round; replaced after every round. response_limit:
    longest response, in tokens. probe_groups: groups per round whose rows are read again to measure
    the three off-policy gaps (off_policy.gaps), in every `probe_every`-th round. reference_groups:
    groups per round that get reference log-probs where only metrics use them; ALL for every group.
    compares_weights: whether the probe counts the weights that the round changed.
    kept_samples: samples per round that hooks.keep_samples gets. token_texts: the texts of their
    tokens, if these are kept too. returns: range of returns, with run.return_scaling.
    finishes_chunks: whether the run's pause waits for all chunks on their way, which another mode
    then takes over. left_out: rows of a round's batch that no update is made from, by round.
    mismatch: how far generator and trainer may be apart in the first round; None where they are not
    of the same kind. replay: groups of earlier rounds, with run.buffer_rounds.
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
    probe_every: int = 1
    reference_groups: int = ALL
    compares_weights: bool = False
    kept_samples: int = 0
    token_texts: TokenTexts | None = None
    returns: ReturnRange | None = None
    finishes_chunks: bool = False
    left_out: Mapping[int, Collection[int]] = field(default_factory=dict)
    mismatch: MismatchLimit | None = None

    def __post_init__(self) -> None:
        self.replay = ReplayBuffer(self.run_options, self.seed)
        self._builder = BatchBuilder(
            self.engine,
            self.correction,
            self.ledger,
            self.pipeline.weights_of,
            self.seed,
            self.pad_id,
            self.response_limit,
            self.reference_groups,
        )

    def train(self, start: Snapshot | None = None) -> Weights:
        """Train all remaining rounds, or those before the run's pause. The pipeline must be open.

        Returns the last weights. Raises StopRequested if the run was asked to stop; like a pause,
        that leaves a checkpoint.
        """
        try:
            return self._train(start)
        except Exception as error:
            self.checkpoints.settle(error)
            raise

    def _train(self, start: Snapshot | None) -> Weights:
        weights = self._begin(start)
        last = self.checkpoints.last_round(self.run_options.num_rounds)
        for round_ in range(weights.version, last):
            rollouts = self._take(weights)
            self._check_rewards(rollouts)
            fresh = informative_first(rollouts.groups, self.run_options.groups_fresh)
            drawn = self.replay.draw(round_)
            groups = [*fresh, *(one.group for one in drawn)]
            metrics, credit = self._learn(weights, rollouts, groups, len(fresh))
            if self.run_options.buffer_rounds:
                metrics |= replay_metrics(drawn, len(groups), round_)
                self.replay.store(round_, rollouts, fresh)
            metrics |= self.pipeline.observe(round_, rollouts.groups)
            with self._span("sync", round_):
                new = self.engine.weights(version=round_ + 1)
                needs = self.algo.needs
                if needs.reference_every and (round_ + 1) % needs.reference_every == 0:
                    self.engine.move_reference(needs.reference_decay)
            with self._span("take", round_):
                # Generators get the new weights before this round is written down.
                self.pipeline.fill(new)
            with self._span("probe", round_):
                metrics |= self._probe(fresh, weights, new)
            weights = new
            with self._span("track", round_):
                self.hooks.record(rollouts.schedule, self.ledger.drain())
                self._keep_samples(groups, credit, round_)
                self.hooks.log(metrics | self._totals(), round_)
            with self._span("save", round_):
                self.hooks.save(weights)
            is_stopping = self.hooks.should_stop()
            if weights.version < self.run_options.num_rounds:
                is_pause = weights.version == last and not self.finishes_chunks
                self._checkpoint(weights, is_forced=is_stopping or is_pause)
                if is_stopping:
                    raise StopRequested
        if self.finishes_chunks and weights.version < self.run_options.num_rounds:
            self.pipeline.finish()
            self._checkpoint(weights, is_forced=True)
        self.checkpoints.finish()
        self.hooks.record((), self.ledger.drain())
        return weights

    def _span(self, phase: str, round_: int) -> AbstractContextManager[None]:
        self.hooks.enter(phase)
        return self.ledger.span(phase, round_, round_)

    def _begin(self, start: Snapshot | None) -> Weights:
        if start is None:
            weights = self.engine.weights(version=0)
            with self._span("save", 0):
                self.hooks.save(weights)
            return weights
        held = {version: self.engine.whole(one) for version, one in start.weights.items()}
        weights = held[start.round]
        self.engine.restore(weights, start.optimizer)
        # A fork may begin with a coefficient of its own.
        state = {name: start.counters[name] for name in self.algo.state() if name in start.counters}
        self.algo = self.algo.with_state(state)
        if "return_range" in start.counters:
            decay = self.run_options.return_decay
            self.returns = ReturnRange(decay, start.counters["return_range"])
        self.replay = ReplayBuffer(self.run_options, self.seed, start.buffer)
        self.pipeline.restore(start.counters, start.queue, held)
        return weights

    def _take(self, weights: Weights) -> RoundRollouts:
        """Wait for the round's groups. Waiting changes no state, so a run that ends here, because
        it was asked to stop or because a generator failed, is saved as it stands."""
        with self._span("take", weights.version):
            try:
                return self.pipeline.take(weights)
            except (Exception, StopRequested) as error:
                if self.checkpoints.is_on:
                    self._checkpoint(weights, is_forced=True)
                    error.add_note(f"saved at round {weights.version}: `rlhf-lab resume` continues")
                raise

    def _check_rewards(self, rollouts: RoundRollouts) -> None:
        require_groups(rollouts)
        if complaint := reward_complaint(rollouts.groups):
            batch = collate(rollouts.groups, self.pad_id, self.response_limit)
            self.hooks.keep_batch(batch, rollouts.groups, complaint)
            raise FloatingPointError(complaint)

    def _learn(
        self,
        weights: Weights,
        rollouts: RoundRollouts,
        groups: Sequence[Group],
        num_fresh: int,
    ) -> tuple[Metrics, Credit]:
        """The round's updates: T passes over its rows, N minibatches each. num_fresh: groups that
        were generated for the round, before those of earlier ones."""
        round_ = weights.version
        algo = self.algo.at_round(round_, self.run_options.num_rounds)
        with self._span("reference", round_):
            batch = self._builder.build(weights, groups, self.algo)
            if round_ == 0 and self.mismatch is not None:
                self.mismatch.check(self.engine, groups, weights, self.pad_id)
            credit, masked = self._credited(algo, groups, batch)
            if rows := self.left_out.get(round_):
                credit, removed = without_rows(credit, batch, rows, round_)
                masked |= removed
            fates = token_fates(rollouts, batch, credit, num_fresh)
            self.ledger.count(rounds=1, **fates)
            for rollout in rollouts.generated:
                self.ledger.count_rollout(rollout)
            metrics = sample_metrics(groups, batch, rollouts, num_fresh) | masked
            metrics |= generator_metrics(rollouts)
        updates = UpdateMetrics(self.run_options, round_)
        for pass_ in range(self.run_options.passes):
            order_P = shuffled(len(groups), self.seed, round_, pass_)
            num = self.run_options.updates_per_round
            for part in minibatches(batch, credit, self.algo.reduction, num, order_P):
                with self._span("update", round_):
                    updates.add(part, self._update(part, algo, groups, round_, updates.number))
        if self.returns is not None:
            metrics["algo/return_range"] = self.returns.average
        metrics |= {f"algo/{name}": value for name, value in self.algo.state().items()}
        self.algo = self.algo.adapted(metrics, len(batch))
        kept = float(credit.keep_B.float().mean())
        return metrics | updates.metrics() | {"rows_kept": kept, "round": round_}, credit

    def _credited(
        self, algo: Algorithm, groups: Sequence[Group], batch: Batch
    ) -> tuple[Credit, Metrics]:
        """The algorithm's credit, and the metrics of what is left out of it as truncated."""
        seen, masks = seen_by_algorithm(batch, algo), self.run_options.mask_truncated
        if masks and algo.objective is Objective.comparison:
            credit, masked = credit_among_ended(algo, groups, seen)
            return self._scaled(credit, groups, batch), masked
        credit = algo.credit(rewards_of(groups), seen)
        require_declared(credit, algo, len(groups))
        credit = self._scaled(credit, groups, batch)
        return without_truncated(credit, groups) if masks else (credit, {})

    def _scaled(self, credit: Credit, groups: Sequence[Group], batch: Batch) -> Credit:
        if self.run_options.return_scaling is ReturnScaling.none:
            return credit
        before = self.returns or ReturnRange(self.run_options.return_decay)
        self.returns = before.after(credit, rewards_of(groups), batch)
        return self.returns.scaled(credit)

    def _update(
        self, part: Batch, algo: Algorithm, groups: Sequence[Group], round_: int, number: int
    ) -> UpdateResult | None:
        """One optimizer update; none if no row of the minibatch has credit."""
        self.ledger.count(updates=1, updates_empty=int(not part), trained_tokens=count_tokens(part))
        if not len(part):
            return None
        if algo.needs.top_tokens is not None:
            self.ledger.count(reference_tokens=count_tokens(part))
        learning_rate = self.optim.learning_rate(
            number, round_, self.run_options.updates, self.run_options.num_rounds
        )
        try:
            return self.engine.update(part, algo, self.correction, learning_rate)
        except FloatingPointError as error:
            self.hooks.keep_batch(part, groups, f"update {number} of round {round_}: {error}")
            raise

    def _probe(self, groups: Sequence[Group], start: Weights, end: Weights) -> Metrics:
        """The three off-policy gaps on `probe_groups` groups, around the round's updates, and the
        weights that these changed."""
        if start.version % self.probe_every:
            return {}
        online = [g for g in groups if not any(s.is_offline for s in g.samples)]
        order_P = shuffled(len(online), self.seed, start.version, PROBE)[: self.probe_groups]
        chosen = [online[index] for index in order_P.tolist()]
        changes = changed_shares(start, end) if self.compares_weights else {}
        steps = self.run_options.optimizer_steps_per_round
        gaps = measure_gaps(self.engine, self.pipeline, chosen, start, end, self.pad_id, steps)
        return changes | gaps

    def _keep_samples(self, groups: Sequence[Group], credit: Credit, round_: int) -> None:
        if self.kept_samples:
            places = chosen(groups, self.kept_samples, self.seed)
            self.hooks.keep_samples(
                rollout_samples(groups, places, credit, self.run_options, round_, self.token_texts)
            )

    def _totals(self) -> Metrics:
        """Sums over the run, and metrics of the queue. Keys under `timing/` and `seconds/` differ
        from run to run."""
        generated, in_flight = self.pipeline.tokens()
        self.ledger.check_tokens(generated, in_flight)
        return self.ledger.totals(self.pipeline.seconds_in_caller) | {
            "timing/generated_tokens": generated,
            "timing/in_flight_tokens": in_flight,
            "timing/generator_restarts": self.pipeline.restarts,
            **self.pipeline.measures(),
            **{f"timing/peak_{name}": size for name, size in self.engine.peak_memory().items()},
        }

    def _checkpoint(self, weights: Weights, is_forced: bool) -> None:
        is_due = (is_forced and self.checkpoints.is_on) or self.checkpoints.is_due(weights.version)
        if not is_due:
            return
        with self._span("checkpoint", weights.version - 1):
            counters, queue = self.pipeline.state()
            writer = self.engine.sharded()
            counters |= self.algo.state()
            if self.returns is not None and self.returns.average is not None:
                counters["return_range"] = self.returns.average
            self.checkpoints.save(
                Snapshot(
                    round=weights.version,
                    weights={**self.pipeline.history(), weights.version: weights},
                    optimizer={} if writer else self.engine.state(),
                    counters=counters,
                    queue=queue,
                    buffer=self.replay.stored,
                    ledger=self.ledger.state(self.pipeline.seconds_in_caller),
                    writer=writer,
                )
            )
            if is_forced:
                self.checkpoints.finish()
