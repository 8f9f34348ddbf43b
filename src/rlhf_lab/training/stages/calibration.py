"""Whether a reward model's probabilities are those that come true, and where it is right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

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
