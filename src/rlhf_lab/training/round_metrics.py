"""Measures of one round: its samples, its updates, samples that are kept to be read, and rewards
that cannot be trained on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, cast

from torch import Tensor

from rlhf_lab.algos import off_policy
from rlhf_lab.models.batching import rewards_of, steps_of
from rlhf_lab.rollout.chunk_states import RoundRollouts
from rlhf_lab.runs.schema import RolloutSample, Written
from rlhf_lab.tasks.environment import TokenTexts, episode_metrics, transcript, turns_of
from rlhf_lab.types.data import Batch, Credit, Metrics, UpdateResult
from rlhf_lab.types.run_options import RunOptions
from rlhf_lab.types.samples import (
    MIXED_TASK,
    OFFLINE,
    Finish,
    Group,
    Sample,
    lag_in_rounds,
    lag_in_updates,
)


def token_texts(tokenizer: Any, tokens: Sequence[int]) -> list[str]:
    """What each token adds to the text, special tokens by their names. A token that is a part of a
    character has U+FFFD."""
    return [
        added_text(tokenizer, tokens[max(0, place - 1) : place], token)
        for place, token in enumerate(tokens)
    ]


def added_text(tokenizer: Any, before: Sequence[int], token: int) -> str:
    """Some tokenizers begin a word with a space only where a token stands before it."""
    alone, first = tokenizer.decode([token]), tokenizer.decode(list(before)) if before else ""
    both = tokenizer.decode([*before, token])
    return str(both[len(first) :] if both.startswith(first) else alone)


# Mirrors make a metric of each turn number: turns from this one on have one together.
MOST_TURNS = 32


class UpdateMetrics:
    """Collects the updates of one round: mean metrics, and the exact lag of every row used.

    Lags and off-policy measures are of rows that the run wrote: offline ones have no writer.
    """

    def __init__(self, run_options: RunOptions, round_: int) -> None:
        self._run_options = run_options
        self._round = round_
        self._done = 0
        self._sums: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._rows: list[Mapping[str, Tensor]] = []
        self._lags: list[Tensor] = []
        self._lag_updates: Counter[int] = Counter()
        self._lag_rounds: Counter[int] = Counter()

    @property
    def number(self) -> int:
        """Number of the next update, counted over the run."""
        return self._round * self._run_options.optimizer_steps_per_round + self._done

    def add(self, part: Batch, updated: UpdateResult | None) -> None:
        """Count an update (None: no row had credit, nothing was applied)."""
        drawn_B = part.version_B != OFFLINE
        rounds_D = lag_in_rounds(self._round, part.version_B[drawn_B])
        steps = self._run_options.optimizer_steps_per_round
        updates_D = lag_in_updates(rounds_D, steps, self._done)
        self._lag_rounds.update(rounds_D.tolist())
        self._lag_updates.update(updates_D.tolist())
        if updated is not None:
            self._sums.update(updated.metrics)
            self._counts.update(updated.metrics.keys())
            if bool(drawn_B.any()):
                self._rows.append({name: row[drawn_B] for name, row in updated.rows.items()})
                self._lags.append(updates_D)
        self._done += 1

    def metrics(self) -> Metrics:
        """Means over the applied updates that have a metric, off-policy measures, and lag in rounds
        and updates."""
        means = {f"update/{name}": s / self._counts[name] for name, s in self._sums.items()}
        lags = {
            **histogram("lag/rounds", self._lag_rounds),
            **histogram("lag/updates", self._lag_updates),
        }
        return {**means, **off_policy.summary(self._rows, self._lags), **lags}


def sample_metrics(
    groups: Sequence[Group], batch: Batch, rollouts: RoundRollouts, num_fresh: int
) -> Metrics:
    """Reward, length, end token, KL per sequence (k1) and versions of the groups trained on, of
    which the first `num_fresh` were generated for the round; length and age of the groups that were
    dropped as too old."""
    reward_PG = rewards_of(groups)
    reward_of_all = rewards_of(rollouts.groups)
    samples = [sample for group in groups for sample in group.samples]
    drawn = [sample for sample in samples if sample.version != OFFLINE]
    known_B = batch.has_reference_B & (batch.version_B != OFFLINE)
    kl_D = (batch.behavior_logp_BT - batch.reference_logp_BT).sum(dim=1)[known_B]
    metrics: Metrics = {
        "reward/mean": float(reward_PG.mean()),
        "reward/std": float(reward_PG.std(unbiased=False)),
        "reward/best": float(reward_PG.amax(dim=1).mean()),
        "reward/groups_tied": float(
            (reward_PG.amax(dim=1) == reward_PG.amin(dim=1)).float().mean()
        ),
        "sample/length": float(batch.mask_BT.sum(dim=1).mean()),
        "sample/eos_rate": sum(s.finish is Finish.eos for s in samples) / len(samples),
        "sample/empty_rate": sum(not s.text.strip() for s in samples) / len(samples),
        "sample/version": min(s.version for s in drawn),
        "sample/continued": sum(bool(s.versions) for s in samples),
        "sample/version_span": sum(s.newest_version - s.version for s in samples) / len(samples),
        "kl/sampled_reference_k1": float(kl_D.mean()),
        "reward/mean_generated": float(reward_of_all.mean()),
        "sample/groups_left_out": len(reward_of_all) - num_fresh,
        "sample/groups_unscored": len(rollouts.unscored),
        "dropped/groups": sum(len(rollout.groups) for rollout in rollouts.dropped),
    }
    if len(drawn) < len(samples):
        metrics["sample/offline"] = 1 - len(drawn) / len(samples)
    metrics |= task_rewards(groups) | episode_metrics(samples) | turn_lags(drawn, rollouts)
    dropped = [s for r in rollouts.dropped for group in r.groups for s in group.samples]
    if dropped:
        round_ = rollouts.schedule[0]["round"]
        metrics["dropped/length"] = sum(len(s.tokens) for s in dropped) / len(dropped)
        lags = Counter(lag_in_rounds(round_, sample.version) for sample in dropped)
        metrics |= histogram("dropped/lag_rounds", lags)
    return metrics


def turn_lags(samples: Sequence[Sample], rollouts: RoundRollouts) -> Metrics:
    """Mean age in rounds of the first, of the last and of each turn, from 1, and how many turns
    each of these means is of; nothing without episodes. A turn is as old as its first token, in
    `episode/lag_last_turn` as its last. Turns from MOST_TURNS on count as one."""
    played = [sample for sample in samples if sample.episode]
    if not played:
        return {}
    round_ = rollouts.schedule[0]["round"]
    lags: dict[int, list[int]] = {}
    for sample in played:
        for number, version in enumerate(turn_versions(sample), start=1):
            lags.setdefault(min(number, MOST_TURNS), []).append(lag_in_rounds(round_, version))
    return {
        "episode/lag_first_turn": fmean(lag_in_rounds(round_, s.version) for s in played),
        "episode/lag_last_turn": fmean(lag_in_rounds(round_, s.newest_version) for s in played),
        "by_turn/lag": {str(k): sum(lags[k]) / len(lags[k]) for k in sorted(lags)},
        "by_turn/count": {str(k): len(lags[k]) for k in sorted(lags)},
    }


def turn_versions(sample: Sample) -> Iterator[int]:
    """The version that wrote the first token of each turn of an episode."""
    start = 0
    for last, _ in sample.episode.turns if sample.episode else ():
        yield sample.versions[start] if sample.versions else sample.version
        start = last + 1


def task_rewards(groups: Sequence[Group]) -> Metrics:
    """Mean reward of each task of a mixture; nothing for other tasks."""
    found: dict[str, list[float]] = {}
    for group in groups:
        if (name := group.prompt.example.hidden.get(MIXED_TASK)) is not None:
            found.setdefault(name, []).extend(group.rewards)
    return {f"reward/task/{name}": sum(found[name]) / len(found[name]) for name in sorted(found)}


def token_fates(
    rollouts: RoundRollouts, batch: Batch, credit: Credit, num_fresh: int
) -> dict[str, int]:
    """Counts for the ledger: what became of every response token generated for the round, whose
    groups are the first `num_fresh` of the batch, and how many of earlier ones it repeats."""
    length_B = batch.mask_BT.sum(dim=1)
    is_fresh_B = batch.group_B < num_fresh
    read = int(length_B[is_fresh_B].sum())
    kept = int(length_B[is_fresh_B & credit.keep_B].sum())
    written = sum(rollout.response_tokens for rollout in rollouts.rollouts)
    unscored = sum(len(s.tokens) for group in rollouts.unscored for s in group.samples)
    return {
        "kept_tokens": kept,
        "tied_tokens": read - kept,
        "left_out_tokens": written - unscored - read,
        "unscored_tokens": unscored,
        "unscored_groups": len(rollouts.unscored),
        "replayed_tokens": int(length_B.sum()) - read,
        "dropped_tokens": sum(rollout.response_tokens for rollout in rollouts.dropped),
        "dropped_groups": sum(len(rollout.groups) for rollout in rollouts.dropped),
    }


def generator_metrics(rollouts: RoundRollouts) -> Metrics:
    """Metrics of the generators' own reports, each a mean over the rollouts that have it."""
    found: dict[str, list[float]] = {}
    for rollout in [*rollouts.rollouts, *rollouts.work]:
        for name, value in rollout.report.measures.items():
            found.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in found.items()}


def reward_failure_text(rollouts: RoundRollouts) -> str:
    """The counts that the reward reported, such as judge failures, for an error message."""
    counts: Counter[str] = Counter()
    for rollout in [*rollouts.rollouts, *rollouts.work]:
        counts.update({k: v for k, v in rollout.tokens.items() if not k.endswith("_tokens")})
    text = ", ".join(f"{name}={amount}" for name, amount in sorted(counts.items()) if amount)
    return f" (it counted {text})" if text else ""


def histogram(name: str, counts: Counter[int]) -> Metrics:
    """A histogram with its smallest, mean and largest value; no metrics if it is empty."""
    if not counts:
        return {}
    total = sum(counts.values())
    return {
        f"{name}_min": min(counts),
        f"{name}_mean": sum(lag * count for lag, count in counts.items()) / total,
        f"{name}_max": max(counts),
        f"{name}_histogram": {str(lag): counts[lag] for lag in sorted(counts)},
    }


def require_groups(rollouts: RoundRollouts) -> None:
    """Raise RuntimeError if a round has no group with rewards."""
    if not rollouts.groups:
        raise RuntimeError(
            f"none of the {len(rollouts.unscored)} groups of a round could be scored, so there is "
            f"nothing to learn from: correct the reward{reward_failure_text(rollouts)}"
        )


def reward_complaint(groups: Sequence[Group]) -> str:
    """What is wrong with the first reward that is not finite; "" if all are."""
    for group in groups:
        for reward in group.rewards:
            if not math.isfinite(reward):
                return (
                    f"prompt {group.prompt.example.uid} (number {group.prompt.id}) got reward "
                    f"{reward}: no update was made; correct the reward"
                )
    return ""


def rollout_samples(
    groups: Sequence[Group],
    places: Iterable[tuple[int, int]],
    credit: Credit,
    run_options: RunOptions,
    round_: int,
    token_texts: TokenTexts | None,
) -> list[RolloutSample]:
    """The samples at these places, (number of the group, number in it). credit: of all samples of
    the groups, in order. token_texts: of tokens in a row."""
    firsts = [0]
    for group in groups:
        firsts.append(firsts[-1] + len(group.samples))
    return [
        rollout_sample(
            groups[one], number, credit, firsts[one] + number, run_options, round_, token_texts
        )
        for one, number in places
    ]


def rollout_sample(
    group: Group,
    number: int,
    credit: Credit,
    row: int,
    run_options: RunOptions,
    round_: int,
    token_texts: TokenTexts | None,
) -> RolloutSample:
    """A group's sample, whose credit is in this row."""
    sample, example = group.samples[number], group.prompt.example
    length = len(sample.tokens)
    total = float(credit.value_BT[row, :length].sum())
    lag = 0 if sample.version == OFFLINE else lag_in_rounds(round_, sample.version)
    steps = run_options.optimizer_steps_per_round
    return RolloutSample(
        round=round_,
        updates=round_ * steps,
        prompt_id=group.prompt.id,
        uid=example.uid,
        sample=number,
        prompt=example.prompt,
        response=transcript(sample),
        reward=group.rewards[number],
        credit=total / length if length else 0.0,
        is_kept=bool(credit.keep_B[row]),
        version=sample.version,
        newest_version=sample.newest_version,
        lag_rounds=lag,
        lag_updates=lag_in_updates(lag, steps),
        tokens=length,
        finish=sample.finish.value,
        steps=[list(step) for step in steps_of(group)[number]],
        turns=cast(list[Written], turns_of(sample, token_texts)),
    )
