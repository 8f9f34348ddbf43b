"""What wandb keeps of a run, back in the form in which a run's folder has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis.sources.axes import GLOBAL_STEP
from analysis.sources.record import Cell, Facts, Row, as_seed, flat, look_up, whole

STEP = "_step"
# What wandb adds for itself.
NOISE = ("_timestamp", "_wandb")
# Names that a round's own samples have too: trackers/evaluations.py tells them apart like this.
EVAL_SAMPLE, SAMPLE = "eval/sample/", "sample/"


def split(history: Iterable[Mapping[str, Any]]) -> tuple[list[Row], list[Row]]:
    """Rows of history as recorded points and evaluated versions, each in the order of steps."""
    rows = sorted((flat(row) for row in history), key=step_of)
    rows = [{name: value for name, value in row.items() if name not in NOISE} for row in rows]
    evals: list[Row] = [as_evaluation(row) for row in rows if is_evaluation(row)]
    return [row for row in rows if not is_evaluation(row)], evals


def step_of(row: Row) -> float:
    step = row.get(STEP, 0)
    return 0.0 if isinstance(step, str) else float(step)


def is_evaluation(row: Row) -> bool:
    """Whether a row is about a version that was judged, as rlhf_lab tells them."""
    return "version" in row and "eval/prompts" in row


def as_evaluation(row: Row) -> dict[str, Cell]:
    own = (STEP, "_runtime", GLOBAL_STEP)
    kept = {name: value for name, value in row.items() if name not in own}
    names = {
        name: name.replace(EVAL_SAMPLE, SAMPLE, 1) for name in kept if name.startswith(EVAL_SAMPLE)
    }
    return {"label": "", **{names.get(name, name): value for name, value in kept.items()}}


def join(parts: Sequence[Sequence[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """The history of a run over several files, oldest first: a step told again, by a run that went
    on from an earlier one, is what was told last."""
    rows: dict[int, Mapping[str, Any]] = {}
    for part in parts:
        for row in part:
            step = whole(row.get(STEP))
            if step is None:
                step = len(rows)
                while step in rows:
                    step += 1
            rows[step] = row
    return [rows[step] for step in sorted(rows)]


def facts(config: Mapping[str, Any], rows: Sequence[Row], **known: Any) -> Facts:
    """Facts of a run that wandb keeps. known: those that it says itself."""
    return Facts(
        seed=as_seed(look_up(config, "seed")),
        sweep=str(look_up(config, "tracker.sweep") or ""),
        swept=str(look_up(config, "tracker.condition") or ""),
        planned_rounds=planned(config),
        step=GLOBAL_STEP if any(GLOBAL_STEP in row for row in rows) else STEP,
        **known,
    )


def planned(config: Mapping[str, Any]) -> int | None:
    """Rounds that a config of rlhf_lab asks for; None of any other."""
    keys = ("run.updates", "run.updates_per_round", "run.passes")
    updates, per_round, passes = (as_seed(look_up(config, key)) for key in keys)
    if updates is None or not per_round or not passes:
        return None
    return updates // (per_round * passes)
