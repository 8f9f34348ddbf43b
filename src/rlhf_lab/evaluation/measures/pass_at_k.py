"""Tasks that say right or wrong: accuracy, pass@k, and the vote of k samples (maj@k)."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence

from rlhf_lab.evaluation.measures.intervals import mean, with_interval
from rlhf_lab.tasks.protocols import Answering
from rlhf_lab.types.data import Metrics
from rlhf_lab.types.randomness import stable_hash, uniforms
from rlhf_lab.types.samples import Group

# Subsets of a prompt's samples that vote, at most; all of them if there are no more.
MOST_SUBSETS = 1024
SOLVED = 1.0


def solved_metrics(
    groups: Sequence[Group],
    scores: Sequence[tuple[float, ...]],
    ks: Sequence[int],
    answering: Answering | None,
) -> Metrics:
    """Accuracy of the first samples; with several samples also pass@k, and maj@k of tasks whose
    texts have an answer."""
    right = [[score >= SOLVED for score in row] for row in scores]
    found = with_interval("accuracy/mean", [float(row[0]) for row in right])
    if len(right[0]) == 1:
        return found
    for k in ks:
        shares = [pass_at_k(len(row), sum(row), k) for row in right]
        found |= with_interval(f"pass/at_{k}", shares)
    return found | (vote_metrics(groups, right, ks, answering) if answering else {})


def vote_metrics(
    groups: Sequence[Group], right: Sequence[Sequence[bool]], ks: Sequence[int], task: Answering
) -> Metrics:
    """maj@k over the prompts."""
    found: Metrics = {}
    kinds_of_groups = [kinds_of(group, task) for group in groups]
    for k in ks:
        shares = [
            majority_at_k(kinds, row, k, group.prompt.id)
            for group, kinds, row in zip(groups, kinds_of_groups, right, strict=True)
        ]
        found |= with_interval(f"majority/at_{k}", shares)
    return found


def pass_at_k(num: int, num_right: int, k: int) -> float:
    """Chance that k of num samples hold a right one: 1 - C(n - c, k) / C(n, k)
    (arXiv:2107.03374, equation 1)."""
    return 1 - math.comb(num - num_right, k) / math.comb(num, k)


def kinds_of(group: Group, task: Answering) -> list[int | None]:
    """For each sample the first one with the same answer; None for a text without an answer."""
    firsts: dict[int, str] = {}
    found: list[int | None] = []
    for place, sample in enumerate(group.samples):
        answer = task.answer(sample.text)
        if answer is None:
            found.append(None)
            continue
        same = (kind for kind, known in firsts.items() if task.is_same_answer(known, answer))
        kind = next(same, place)
        firsts.setdefault(kind, answer)
        found.append(kind)
    return found


def majority_at_k(
    answers: Sequence[int | None], right: Sequence[bool], k: int, prompt_id: int
) -> float:
    """Chance that the commonest answer of k samples is right.

    The answer is right if one of its samples is; of equally common ones the first written counts;
    samples without an answer do not vote. The chance is over all subsets of k samples, or over
    MOST_SUBSETS of them drawn by the prompt's id.
    """
    is_right = {answer for answer, ok in zip(answers, right, strict=True) if ok}
    votes = [
        vote([answers[place] for place in chosen]) for chosen in subsets(len(answers), k, prompt_id)
    ]
    return mean([float(winner is not None and winner in is_right) for winner in votes])


def vote(answers: Iterable[int | None]) -> int | None:
    """The commonest answer, the first of equally common ones; None without any."""
    counts = Counter(answer for answer in answers if answer is not None)
    return max(counts, key=lambda answer: counts[answer], default=None)


def subsets(num: int, k: int, prompt_id: int) -> Iterable[Sequence[int]]:
    """Subsets of k of num places, each in order: all of them, or as many as are allowed."""
    if math.comb(num, k) <= MOST_SUBSETS:
        return itertools.combinations(range(num), k)
    seed = stable_hash("majority", num, k)
    return [
        sorted(uniforms(seed, prompt_id, draw, num).argsort(kind="stable")[:k].tolist())
        for draw in range(MOST_SUBSETS)
    ]
