"""Measures of judged samples: win-rates, accuracy, pass@k, maj@k, and the gap of proxy to gold."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rlhf_lab.tasks.task_options import Task
from rlhf_lab.types.data import Metrics, Verdict
from rlhf_lab.types.randomness import stable_hash, uniforms
from rlhf_lab.types.samples import MIXED_TASK, Group


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def wilson(successes: float, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson 95% interval of a share: prompts as trials, one training seed.

    Halves count as half a success. Numbers from 0 to 1 vary at most as much as zeros and ones of
    the same mean, so for them the interval is rather too wide than too narrow.
    """
    share = successes / trials
    centre = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def with_interval(name: str, values: Sequence[float]) -> Metrics:
    """The mean of numbers from 0 to 1, and its 95% bounds under NAME_low and NAME_high."""
    # Rounding must not carry a mean of ones above 1.
    share = min(1.0, mean(values))
    low, high = wilson(share * len(values), len(values))
    return {name: share, f"{name}_low": low, f"{name}_high": high}


@dataclass(frozen=True)
class Judged:
    """A prompt that was judged.

    gold, reference_gold: the scores; of a judge that compares, the win and 0.5. win: what it counts
    in the win-rate. points: the same with a half for a tie. All but gold are None where there is no
    reference. agrees: whether both orders gave the same verdict; None for one order.
    """

    gold: float
    reference_gold: float | None = None
    win: float | None = None
    points: float | None = None
    agrees: bool | None = None


def by_score(row: tuple[float, ...], reference: tuple[float, ...]) -> Judged | None:
    """The first score against the reference's, a tie being no win; None if one is missing."""
    if not row or not reference:
        return None
    mine, theirs = row[0], reference[0]
    points = 0.5 if mine == theirs else float(mine > theirs)
    return Judged(mine, theirs, float(mine > theirs), points)


def by_itself(row: tuple[float, ...]) -> Judged | None:
    """The first score, of a task without references; None if it is missing."""
    return Judged(row[0]) if row else None


def by_comparison(verdicts: tuple[Verdict, ...]) -> Judged | None:
    """The first verdict, a tie being half a win; None if there is none."""
    if not verdicts:
        return None
    win = verdicts[0].win
    return Judged(win, 0.5, win, win, verdicts[0].agrees)


def win_metrics(judged: Sequence[Judged], length_differences: Sequence[int]) -> Metrics:
    """Metrics of all judged prompts; the mean alone without references. length_differences: tokens
    of the sample less those of the reference."""
    references = [one.reference_gold for one in judged if one.reference_gold is not None]
    if not references:
        return {"gold/mean": mean([one.gold for one in judged])}
    points = [one.points for one in judged if one.points is not None]
    metrics = with_interval("gold/win_rate", [one.win for one in judged if one.win is not None])
    metrics |= {
        "gold/tie_rate": mean([float(one == 0.5) for one in points]),
        "gold/win_rate_length_controlled": length_controlled(points, length_differences),
        "gold/mean": mean([one.gold for one in judged]),
        "gold/reference_mean": mean(references),
    }
    agreements = [float(one.agrees) for one in judged if one.agrees is not None]
    if agreements:
        metrics |= with_interval("judge/agreement", agreements)
    return metrics


# Keeps the slope finite where length alone separates wins from losses.
RIDGE = 0.01
MAX_STEPS = 100
MAX_HALVINGS = 30
ROUNDING = 1e-12


def length_controlled(
    points: Sequence[float], differences: Sequence[float], ridge: float = RIDGE
) -> float:
    """The win-rate that a logistic regression expects where sample and reference are equally long,
    after length-controlled AlpacaEval (arXiv:2404.04475), whose regression has a term for the
    prompt too: a row is one model, and prompts are not known from other models.

    points: 1 for a win, 0.5 for a tie, 0 for a loss. differences: length of the sample less that of
    the reference. The regression is on tanh(difference / standard deviation of the differences);
    half the ridge times the squared slope is added to the summed loss. Where all prompts ended
    alike, or all differences are the same, it is the plain win-rate.
    """
    won_P = np.array(points, dtype=np.float64)
    difference_P = np.array(differences, dtype=np.float64)
    spread = difference_P.std()
    if spread == 0 or won_P.min() == won_P.max():
        return float(won_P.mean())
    intercept, _ = regression(won_P, np.tanh(difference_P / spread), ridge)
    return float(sigmoid(np.array(intercept)))


def sigmoid(logit: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-x), where neither end overflows."""
    return 0.5 * (1 + np.tanh(0.5 * logit))


def regression(won_P: np.ndarray, length_P: np.ndarray, ridge: float) -> tuple[float, float]:
    """Intercept and slope of the logistic regression, by Newton's method with halved steps."""
    design_P2 = np.stack([np.ones_like(length_P), length_P], axis=1)
    penalty_2 = np.array([0.0, ridge])

    def loss(coefficient_2: np.ndarray) -> float:
        logit_P = design_P2 @ coefficient_2
        loss_P = np.logaddexp(0.0, logit_P) - won_P * logit_P
        return float(loss_P.sum() + 0.5 * (penalty_2 * coefficient_2**2).sum())

    coefficient_2 = np.zeros(2)
    for _ in range(MAX_STEPS):
        expected_P = sigmoid(design_P2 @ coefficient_2)
        gradient_2 = design_P2.T @ (expected_P - won_P) + penalty_2 * coefficient_2
        if np.abs(gradient_2).max() < 1e-9 * len(won_P):
            return float(coefficient_2[0]), float(coefficient_2[1])
        curvature_P1 = (expected_P * (1 - expected_P))[:, None]
        hessian_22 = design_P2.T @ (curvature_P1 * design_P2) + np.diag(penalty_2)
        step_2 = np.linalg.solve(hessian_22, gradient_2)
        for _ in range(MAX_HALVINGS):
            # Near the optimum the loss changes by less than it is rounded.
            if loss(coefficient_2 - step_2) <= loss(coefficient_2) * (1 + ROUNDING):
                break
            step_2 = step_2 / 2
        coefficient_2 = coefficient_2 - step_2
    raise ArithmeticError(f"the length regression of {len(won_P)} prompts did not converge")


# Subsets of a prompt's samples that vote, at most; all of them if there are no more.
MOST_SUBSETS = 1024
SOLVED = 1.0


def solved_metrics(
    groups: Sequence[Group],
    scores: Sequence[tuple[float, ...]],
    ks: Sequence[int],
    answering: Task | None,
) -> Metrics:
    """Accuracy of the first samples; with several samples also pass@k (arXiv:2107.03374), and maj@k
    (arXiv:2203.11171) of tasks whose texts have an answer."""
    right = [[score >= SOLVED for score in row] for row in scores]
    metrics = with_interval("accuracy/mean", [float(row[0]) for row in right])
    if len(right[0]) == 1:
        return metrics
    for k in ks:
        shares = [pass_at_k(len(row), sum(row), k) for row in right]
        metrics |= with_interval(f"pass/at_{k}", shares)
    return metrics | (vote_metrics(groups, right, ks, answering) if answering else {})


def vote_metrics(
    groups: Sequence[Group], right: Sequence[Sequence[bool]], ks: Sequence[int], task: Task
) -> Metrics:
    metrics: Metrics = {}
    kinds_of_groups = [kinds_of(group, task) for group in groups]
    for k in ks:
        shares = [
            majority_at_k(kinds, row, k, group.prompt.id)
            for group, kinds, row in zip(groups, kinds_of_groups, right, strict=True)
        ]
        metrics |= with_interval(f"majority/at_{k}", shares)
    return metrics


def pass_at_k(num: int, num_right: int, k: int) -> float:
    """Chance that k of num samples hold a right one: 1 - C(n - c, k) / C(n, k)
    (arXiv:2107.03374, equation 1)."""
    return 1 - math.comb(num - num_right, k) / math.comb(num, k)


def kinds_of(group: Group, task: Task) -> list[int | None]:
    """For each sample the first one with the same answer; None for a text without an answer."""
    firsts: dict[int, str] = {}
    kinds: list[int | None] = []
    for number, sample in enumerate(group.samples):
        answer = task.answer(sample.text)
        if answer is None:
            kinds.append(None)
            continue
        same = (kind for kind, known in firsts.items() if task.is_same_answer(known, answer))
        kind = next(same, number)
        firsts.setdefault(kind, answer)
        kinds.append(kind)
    return kinds


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
        vote([answers[number] for number in chosen])
        for chosen in subsets(len(answers), k, prompt_id)
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


def task_metrics(
    groups: Sequence[Group], judged: Sequence[Judged | None], is_verified: bool
) -> Metrics:
    """Mean score, and where there are any win-rate and accuracy, of each task of a mixture of which
    a prompt was judged."""
    found: dict[str, list[Judged]] = {}
    for group, row in zip(groups, judged, strict=True):
        name = group.prompt.example.hidden.get(MIXED_TASK)
        if name is not None and row is not None:
            found.setdefault(str(name), []).append(row)
    metrics: Metrics = {}
    for name in sorted(found):
        scores, wins = [row.gold for row in found[name]], [row.win for row in found[name]]
        metrics[f"task/{name}/gold_mean"] = mean(scores)
        known = [win for win in wins if win is not None]
        if known:
            metrics |= with_interval(f"task/{name}/win_rate", known)
        if is_verified:
            metrics |= with_interval(
                f"task/{name}/accuracy", [float(score >= SOLVED) for score in scores]
            )
    return metrics


@dataclass(frozen=True)
class Scored:
    """Two scores of a prompt by one scorer: of the sample and of the reference answer."""

    sample: float
    reference: float

    @property
    def margin(self) -> float:
        """How much better the sample is."""
        return self.sample - self.reference


def margin_metrics(proxy: Sequence[Scored]) -> Metrics:
    """The proxy against the references, of a run without a judge."""
    if not proxy:
        return {}
    return {
        "proxy/reference_mean": mean([scored.reference for scored in proxy]),
        "proxy/win_rate": mean([float(scored.margin > 0) for scored in proxy]),
    }


def gap_metrics(gold: Sequence[Scored], proxy: Sequence[Scored], wins: Sequence[float]) -> Metrics:
    """Proxy against gold over the same prompts. wins: of gold.

    What cannot be computed (references of equal score, margins of equal rank) is left out.
    """
    rate = mean([float(scored.margin > 0) for scored in proxy])
    metrics: Metrics = {"proxy/win_rate": rate, "gap/win_rate": rate - mean(wins)}
    standard_gold, standard_proxy = standard_margin(gold), standard_margin(proxy)
    if list(gold) == list(proxy):
        metrics["gap/proxy_gold"] = 0.0
    elif standard_gold is not None and standard_proxy is not None:
        metrics["gap/proxy_gold"] = standard_proxy - standard_gold
    margins = ([scored.margin for scored in proxy], [scored.margin for scored in gold])
    correlation = rank_correlation(*margins)
    if correlation is not None:
        metrics["gap/rank_correlation"] = correlation
    return metrics


def standard_margin(scores: Sequence[Scored]) -> float | None:
    """Mean margin in standard deviations of the references' scores; None if those are all equal."""
    references = [scored.reference for scored in scores]
    if min(references) == max(references):
        return None
    return mean([scored.margin for scored in scores]) / statistics.pstdev(references)


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Spearman's: the correlation of ranks, where equal numbers share the mean of their ranks.

    None if one side has but one rank.
    """
    if min(left) == max(left) or min(right) == max(right):
        return None
    return statistics.correlation(ranks(left), ranks(right))


def ranks(values: Sequence[float]) -> list[float]:
    """Rank of each number, from 1; equal ones share the mean of their ranks."""
    order = sorted(values)
    first: dict[float, int] = {}
    last: dict[float, int] = {}
    for place, value in enumerate(order, start=1):
        first.setdefault(value, place)
        last[value] = place
    return [(first[value] + last[value]) / 2 for value in values]
