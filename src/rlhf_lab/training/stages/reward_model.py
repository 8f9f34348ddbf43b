"""The proxy reward model: learned from gold-labelled pairs, it is all that the policy sees."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rlhf_lab.rewards.model import last_token_scores
from rlhf_lab.runs.reading import read_json
from rlhf_lab.training.stages.options import RewardModelOptions
from rlhf_lab.training.stages.scored_rows import (
    PairwiseLoss,
    Row,
    TrainingPairs,
    apply_treatment,
    engine_gaps,
    engine_scores,
    gold_gaps,
    pair_batch,
    tokens_of,
)
from rlhf_lab.training.stages.supervised import Bar, fit
from rlhf_lab.types.data import Batch, Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Engine
from rlhf_lab.types.randomness import stable_hash, uniforms

CALIBRATION = "calibration.json"
BINS = 10
# Keys the draw of a pair's order, apart from every other use of the seed.
ORDER = 1_000_033


@dataclass(frozen=True)
class Bin:
    """Pairs whose predicted probability is in [low, high): their number, the mean prediction, and
    the share in which the first answer was the chosen one."""

    low: float
    high: float
    count: int
    predicted: float
    observed: float


def calibration(gap_P: Tensor, seed: int, num_bins: int = BINS) -> list[Bin]:
    """Bins of sigmoid(first - second) that hold pairs, each pair in an order keyed by its place.

    In the labelled order every prediction would be about the chosen one, and always come true.
    """
    is_first_P = torch.from_numpy(uniforms(seed, 0, ORDER, len(gap_P))) < 0.5
    predicted_P = torch.where(is_first_P, gap_P, -gap_P).double().sigmoid()
    place_P = (predicted_P * num_bins).long().clamp(max=num_bins - 1)
    bins = []
    for place in place_P.unique().tolist():  # type: ignore[no-untyped-call]
        held_P = place_P == place
        bins.append(
            Bin(
                place / num_bins,
                (place + 1) / num_bins,
                int(held_P.sum()),
                float(predicted_P[held_P].mean()),
                float(is_first_P[held_P].double().mean()),
            )
        )
    return bins


def expected_error(bins: Sequence[Bin]) -> float:
    """Expected calibration error: |predicted - observed|, a mean over pairs (arXiv:1706.04599)."""
    total = sum(part.count for part in bins)
    return sum(part.count * abs(part.predicted - part.observed) for part in bins) / total


def by_quarter(name: str, is_right_P: Tensor, order_P: Tensor) -> dict[str, float]:
    """Share of right pairs in each quarter, from the smallest of the ordering values."""
    return {
        f"{name}_quarter_{number + 1}": float(part.mean())
        for number, part in enumerate(is_right_P[order_P.argsort()].tensor_split(4))
        if len(part)
    }


def values_of(rows: Sequence[Mapping[str, Any]], field: str) -> list[str]:
    """The value that each pair has in a field, a list counting as one value whatever its order.
    Raises UserError for a pair without the field."""
    for place, row in enumerate(rows):
        if field not in row:
            raise UserError(
                f"reward_model.accuracy_by={field}: held-out pair {place + 1} has no such field, "
                f"but {', '.join(sorted(row))}; name one of these"
            )
    found = (row[field] if isinstance(row[field], list) else [row[field]] for row in rows)
    return [" and ".join(sorted(map(str, parts))) for parts in found]


def by_value(name: str, is_right_P: Tensor, values: Sequence[str]) -> dict[str, float]:
    """Share of right pairs for each value, and how many pairs have it."""
    found = {}
    for value in sorted(set(values)):
        own = is_right_P[[one == value for one in values]]
        found[f"{name}_{value}"] = float(own.mean())
        found[f"{name}_{value}_pairs"] = float(len(own))
    return found


def write_calibration(folder: Path, bins: Sequence[Bin]) -> None:
    text = json.dumps([asdict(part) for part in bins], indent=1)
    (folder / CALIBRATION).write_text(text, encoding="utf-8")


def read_calibration(folder: Path) -> list[Bin]:
    """The bins of a reward model's folder. Raises UserError if it has none."""
    path = folder / CALIBRATION
    if not path.is_file():
        raise UserError(
            f"{folder} has no {CALIBRATION}: pass the folder that `rlhf-lab reward-model` names"
        )
    return read_json(path, list[Bin])


@dataclass(frozen=True)
class RewardModelResult:
    """What training found. offset: the mean score of reference answers, which the reward subtracts
    (N+ detail 15). bins: calibration on held-out pairs. weights: of the trained model."""

    metrics: dict[str, float]
    offset: float
    bins: Sequence[Bin]
    weights: Weights


def pair_gap(model: Any, rows: Sequence[Row]) -> Tensor:
    """Score of the chosen less score of the rejected, one a pair."""
    sides = [tokens_of(row, side) for side in ("chosen", "rejected") for row in rows]
    chosen_P, rejected_P = last_token_scores(model, sides).chunk(2)
    return chosen_P - rejected_P


def pair_gaps(model: Any, rows: Sequence[Row], batch: int) -> Tensor:
    """The same without gradients, `batch` pairs at a time."""
    with torch.inference_mode():
        starts = range(0, len(rows), batch)
        return torch.cat([pair_gap(model, rows[start : start + batch]) for start in starts])


def train_reward_model(
    engine: Engine,
    pairs: Sequence[Row],
    held_out: Sequence[Row],
    references: Sequence[Sequence[int]],
    options: RewardModelOptions,
    seed: int,
    bar: Bar,
    strength_P: Tensor | None = None,
) -> RewardModelResult:
    """Fit the engine's ScoreNetwork with the pair loss. strength_P: of each pair, where the options
    go by it."""
    values = values_of(held_out, field) if (field := options.accuracy_by) else []
    used = apply_treatment(pairs, strength_P, options.treatment)
    losses = fit_pairs(engine, used, options, seed, bar)
    # H pairs are held out, N are trained on.
    gap_H = engine_gaps(engine, held_out, options.batch)
    trained_gap_N = engine_gaps(engine, used.rows[: len(held_out)], options.batch)
    scores = engine_scores(engine, references, options.batch)
    bins = calibration(gap_H, seed)
    tail = losses[-20:]
    metrics = accuracy(gap_H, held_out) | {
        "calibration_error": expected_error(bins),
        # Of as many pairs as are held out, so that the two accuracies have the same spread.
        "train_accuracy": float((trained_gap_N > 0).float().mean()),
        "train_pairs": float(len(used.rows)),
        "train_loss": sum(tail) / len(tail),
        "reference_std": float(scores.std()),
        **by_value(f"accuracy_{field}", (gap_H > 0).float(), values),
    }
    weights = engine.weights(len(losses))
    return RewardModelResult(metrics, float(scores.mean()), bins, weights)


def fit_pairs(
    engine: Engine, pairs: TrainingPairs, options: RewardModelOptions, seed: int, bar: Bar
) -> list[float]:
    """Epochs over the pairs, in an order keyed by the seed; the loss of every step."""
    steps_per_epoch = len(pairs.rows) // options.batch
    if steps_per_epoch == 0:
        raise UserError(
            f"reward_model.batch={options.batch} is larger than the {len(pairs.rows)} labelled "
            "pairs: lower it, or raise labels.pairs"
        )

    def data_of_step(step: int) -> tuple[Batch, PairwiseLoss]:
        epoch, place = divmod(step, steps_per_epoch)
        key = stable_hash(seed, "pairs", epoch) & (2**63 - 1)
        order = torch.randperm(len(pairs.rows), generator=torch.Generator().manual_seed(key))
        index_P = order[place * options.batch : (place + 1) * options.batch]
        batch = pair_batch([pairs.rows[index] for index in index_P.tolist()])
        return batch, PairwiseLoss(pairs.target_P[index_P], pairs.margin_P[index_P])

    return fit(engine, data_of_step, steps_per_epoch * options.epochs, options, bar)


def accuracy(gap_P: Tensor, rows: Sequence[Row]) -> dict[str, float]:
    """Share of held-out pairs ordered as labelled: all, by quarter of the model's own |gap|, and by
    quarter of the gold gap where the pairs have gold scores."""
    is_right_P = (gap_P > 0).float()
    found = {
        "accuracy": float(is_right_P.mean()),
        "held_out_pairs": float(len(rows)),
        "held_out_loss": float(-logsigmoid(gap_P).mean()),
    }
    gold_P = gold_gaps(rows)
    if gold_P is not None:
        found |= by_quarter("accuracy_gap", is_right_P, gold_P.abs())
    return found | by_quarter("accuracy_confidence", is_right_P, gap_P.abs())
