"""Whether a reward model's probabilities are those that come true, and where it is right."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.runs.reading import read_json
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import uniforms

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
