"""Choose the metrics and the axes that a page has curves of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from rlhf_lab_analysis.comparison.selection import labelled
from rlhf_lab_analysis.sources.axes import STEP
from rlhf_lab_analysis.sources.conditions import NUMBERS
from rlhf_lab_analysis.sources.record import MAPPINGS
from rlhf_lab_analysis.tables.table import Tables
from rlhf_lab_analysis.words import COMPLETIONS, DEVICE_HOURS, FLOPS, KL, UPDATES, VIRTUAL, WALL

MEASURED_AXIS = KL
AXES = (UPDATES, WALL, VIRTUAL, DEVICE_HOURS, FLOPS, "x/generated_tokens", COMPLETIONS, STEP, KL)
FIRST_VERSIONS = (
    *("gold/win_rate", MEASURED_AXIS, "gold/mean", "proxy/mean", "ppl/sft_response"),
    *("accuracy/mean", "gap/proxy_gold", "proxy/win_rate", "ppl/sft_paper", "sample/length"),
)
FIRST_ROUNDS = (
    *("reward/mean", "kl/policy_reference_k1", "lag/updates_mean", "ratio/ess", "ratio/clipped"),
    *("update/entropy", "update/grad_norm", "sample/length"),
)
MOST = {"versions": 10, "rounds": 8}
# Numbers of the measuring or of an interval, by which no run is better than another.
ASIDE = (*MAPPINGS, "x/", "eval/", "timing/", "total/", "lag/updates_histogram", "lag/rounds_hist")
ENDS = ("_low", "_high")
KEYS = frozenset(("stage_seed", "seed", "version", *NUMBERS))


@dataclass(frozen=True)
class Chosen:
    """Columns that the page has curves of, by table, the first of them shown first."""

    versions: tuple[str, ...]
    rounds: tuple[str, ...]
    axes: tuple[str, ...]


def choose(tables: Tables, metric: str, modes: bool = False) -> Chosen:
    """The metrics and axes that these runs have; the chosen metric comes first. modes: whether runs
    differ in mode, which changes how long they take: then wall-clock is the first axis."""
    judged, recorded = (
        numeric_columns(labelled(tables.versions, "")),
        numeric_columns(tables.points),
    )
    known = judged | recorded
    axes = [axis for axis in AXES if axis in (judged if axis == KL else known)]
    if UPDATES in axes and STEP in axes:
        axes.remove(STEP)
    if modes and WALL in axes:
        axes.insert(0, axes.pop(axes.index(WALL)))
    return Chosen(
        order_metrics(judged, (metric, *FIRST_VERSIONS), MOST["versions"]),
        order_metrics(recorded, (metric, *FIRST_ROUNDS), MOST["rounds"]),
        tuple(axes),
    )


def numeric_columns(frame: pd.DataFrame) -> set[str]:
    """Names of the columns that hold a number, keys left out."""
    numbers = frame.select_dtypes("number").dropna(axis="columns", how="all")
    return set(map(str, numbers.columns)) - KEYS


def is_metric(name: str) -> bool:
    """Whether a column describes the policy, not the measuring or an interval."""
    return not name.startswith(ASIDE) and not name.endswith(ENDS)


def order_metrics(names: set[str], first: Sequence[str], most: int) -> tuple[str, ...]:
    """The metrics among the names, those that are wanted first before others."""
    wanted = [name for name in dict.fromkeys(first) if name in names]
    others = sorted(name for name in names - set(wanted) if is_metric(name))
    return tuple([*wanted, *others][:most])
