"""The recorded schedule of a run, which mode=recorded repeats."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlhf_lab.rollout.feeds import Segments
from rlhf_lab.rollout.generators.options import GeneratorOptions
from rlhf_lab.rollout.mode import Mode
from rlhf_lab.runs.folder import SCHEDULE
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.run_options import RunOptions


def read_schedule(
    folder: Path, mode: Mode, options: RunOptions, generator: GeneratorOptions
) -> dict[int, Segments]:
    """The versions that wrote each chunk of a run. Raises UserError for a run that differs from
    this one in length or staleness, that has partial rollouts, or whose samples the generator did
    not write in step."""
    rows = read_rows(folder / SCHEDULE)
    if not rows:
        raise UserError(
            f"mode.schedule={folder} has no {SCHEDULE}: name the folder of a run that trained"
        )
    if rows[-1]["round"] + 1 < options.num_rounds:
        raise UserError(
            f"mode.schedule={folder} ends at round {rows[-1]['round']}, this run has "
            f"{options.num_rounds}: resume that run first, or lower run.updates"
        )
    refuse_partial(folder, rows[-1])
    if "virtual_generator" in rows[-1]:
        raise UserError(
            f"mode.schedule={folder} is of a virtual cluster, which no machine's timing changes: "
            "train again with that run's own options, which repeats it bit for bit"
        )
    if absent := set(range(len(rows))) - {row["chunk"] for row in rows}:
        raise UserError(
            f"mode.schedule={folder} has no row of chunk {min(absent)}: restore its {SCHEDULE}, or "
            "name another run"
        )
    if generator.has_own_kernels and any(len(row["segments"]) > 1 for row in rows):
        raise UserError(
            f"mode.schedule={folder} has chunks of several versions with generator="
            f"{generator.name}: vLLM gave new weights to each sample at another token, which the "
            "schedule does not have; replay a run with mode.weights=latest, or with generator=hf"
        )
    lag = max(
        (row["round"] - row["segments"][0][1] for row in rows if not row["dropped"]), default=0
    )
    if lag > mode.max_staleness:
        raise UserError(
            f"mode.max_staleness={mode.max_staleness}, but mode.schedule={folder} has samples "
            f"{lag} rounds old: pass mode.max_staleness={lag}"
        )
    return {row["chunk"]: tuple((s, v) for s, v in row["segments"]) for row in rows}


def refuse_partial(folder: Path, row: Mapping[str, Any]) -> None:
    """Refuse the schedule of partial rollouts, whose versions follow from positions or turns."""
    for key in ("segment_tokens", "segment_turns"):
        if steps := row.get(key):
            raise UserError(
                f"mode.schedule={folder} is of partial rollouts (mode.{key}={steps}), which timing "
                "does not change: train again with that run's own options, which repeats it bit "
                "for bit"
            )
