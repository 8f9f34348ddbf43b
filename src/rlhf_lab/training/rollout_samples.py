"""Some samples of a round as rows of rollouts.jsonl: text, reward, credit and age."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlhf_lab.models.batching import steps_of
from rlhf_lab.runs.rollouts import RolloutSample
from rlhf_lab.tasks.environment import TokenTexts, transcript, turns_of
from rlhf_lab.types.data import Credit
from rlhf_lab.types.run_options import RunOptions
from rlhf_lab.types.samples import OFFLINE, Group, lag_in_rounds, lag_in_updates


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
        turns=turns_of(sample, token_texts),
    )
