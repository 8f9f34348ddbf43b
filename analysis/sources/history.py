"""Convert the history that wandb stores of a run into recorded rounds and evaluated versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlhf_lab_analysis.sources.axes import GLOBAL_STEP
from rlhf_lab_analysis.sources.record import Cell, Facts, Row, as_seed, flat, look_up

STEP = "_step"
# What wandb adds for itself.
NOISE = ("_timestamp", "_wandb")
# Samples of an evaluation; trackers/evaluations.py adds `eval/`, since a round has samples too.
EVAL_SAMPLE, SAMPLE = "eval/sample/", "sample/"


def split_history(history: Iterable[Mapping[str, Any]]) -> tuple[list[Row], list[Row]]:
    """Rows of history as recorded points and evaluated versions, each in the order of steps."""
    rows = sorted((flat(row) for row in history), key=step_of)
    rows = [{name: value for name, value in row.items() if name not in NOISE} for row in rows]
    evals: list[Row] = [as_evaluation(row) for row in rows if is_evaluation(row)]
    return [row for row in rows if not is_evaluation(row)], evals


def step_of(row: Row) -> float:
    step = row.get(STEP, 0)
    return 0.0 if isinstance(step, str) else float(step)


def is_evaluation(row: Row) -> bool:
    """Whether a row is the evaluation of a version."""
    return "version" in row and "eval/prompts" in row


def as_evaluation(row: Row) -> dict[str, Cell]:
    own = (STEP, "_runtime", GLOBAL_STEP)
    kept = {name: value for name, value in row.items() if name not in own}
    names = {
        name: name.replace(EVAL_SAMPLE, SAMPLE, 1) for name in kept if name.startswith(EVAL_SAMPLE)
    }
    return {"label": "", **{names.get(name, name): value for name, value in kept.items()}}


def wandb_facts(config: Mapping[str, Any], rows: Sequence[Row], **known: Any) -> Facts:
    """Facts of a run from its config and rows. known: facts that the source states itself."""
    return Facts(
        seed=as_seed(look_up(config, "seed")),
        sweep=str(look_up(config, "tracker.sweep") or ""),
        swept=str(look_up(config, "tracker.condition") or ""),
        planned_rounds=planned_rounds(config),
        step=GLOBAL_STEP if any(GLOBAL_STEP in row for row in rows) else STEP,
        **known,
    )


def planned_rounds(config: Mapping[str, Any]) -> int | None:
    """The number of rounds in a config of rlhf_lab; None for any other config."""
    keys = ("run.updates", "run.updates_per_round", "run.passes")
    updates, per_round, passes = (as_seed(look_up(config, key)) for key in keys)
    if updates is None or not per_round or not passes:
        return None
    return updates // (per_round * passes)
