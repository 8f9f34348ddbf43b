"""Folders of finished runs for the commands of analysis/studies and benchmarks/pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlhf_lab_analysis.sources.record import Row
from tests.support.table_records import config, evals, record, rounds, write_run


def make_run(
    folder: Path,
    seed: int,
    versions: Sequence[Row],
    settings: Mapping[str, Any] | None = None,
    metrics: Row | None = None,
    **manifest: Any,
) -> Path:
    """A run of four rounds with a row for each evaluated version. settings: of its config, by
    group; metrics: of every round."""
    own = config(seed)
    for key, value in (settings or {}).items():
        own[key] = {**own.get(key, {}), **value} if isinstance(value, Mapping) else value
    judged = [{**evals((0,))[0], **row} for row in versions]
    numbers = rounds(metrics=metrics or {})
    made = record(str(folder), seed, config=own, rounds=numbers, evals=judged)
    return write_run(folder, made, **manifest)
