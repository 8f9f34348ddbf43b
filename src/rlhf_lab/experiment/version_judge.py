"""A row of evals.jsonl: what one saved version is worth, and by what it is known again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from rlhf_lab.evaluation.evaluator import Evaluator
from rlhf_lab.evaluation.options import EvalOptions
from rlhf_lab.experiment.config import changed
from rlhf_lab.experiment.sources import Sources
from rlhf_lab.models.adapters import merged_version
from rlhf_lab.runs.disk import file_digest
from rlhf_lab.runs.identity import hash_of
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.saved_tensors import read_version
from rlhf_lab.types.data import Metrics

Row = Mapping[str, Any]
# Digest of the weights and of the options that a row of a run with eval.every was made by.
DIGEST = "eval/digest"
# Options that decide which versions are judged, where, and what is written beside their rows.
NOT_OF_A_ROW = (
    *("every", "device", "snapshots", "last_prompts", "label", "table_rows", "validate"),
    *("tasks", "tasks_folder", "fewshot"),
)


@dataclass(frozen=True)
class VersionJudge:
    """Judges saved versions. facts: that all rows have."""

    evaluator: Evaluator
    options: EvalOptions
    facts: Metrics

    def judge(self, version: int, path: Path, prompts: int) -> tuple[Metrics, list[dict[str, Any]]]:
        """The row of a version on the first prompts, with the seconds that it took, and the table
        of its texts."""
        known = {DIGEST: row_digest(self.options, path)} if self.options.every else {}
        weights = merged_version(self.evaluator.reference, read_version(version, path))
        start = perf_counter()
        metrics, table = self.evaluator.evaluate(weights, prompts)
        row = metrics | speed(metrics, perf_counter() - start) | self.facts
        return row | known, table


def version_judge(evaluator: Evaluator, options: EvalOptions, sources: Sources) -> VersionJudge:
    """The judge of a run's versions. sources: of the run."""
    return VersionJudge(evaluator, options, {"eval/options": options.name, **sources.quality})


def speed(metrics: Row, seconds: float) -> Metrics:
    """What a clock measured, under names that promise no exactness."""
    samples = metrics["eval/prompts"] * metrics["eval/samples"]
    return {"timing/seconds": seconds, "timing/samples_per_second": samples / seconds}


def row_digest(options: EvalOptions, path: Path) -> str:
    """What a row of the weights in this file is known by: other weights, or options that give other
    numbers, have another one."""
    own = {name: value for name, value in changed(options).items() if name not in NOT_OF_A_ROW}
    return hash_of({"eval": own, "weights": file_digest(path)})


def known_rows(options: EvalOptions, rows: Path, saved: Mapping[int, Path]) -> dict[int, Metrics]:
    """The rows of a file that are of these weights and options, by version: none without
    eval.every. saved: the files of the versions."""
    return {
        row["version"]: row
        for row in (read_rows(rows) if options.every else ())
        if row["version"] in saved and row.get(DIGEST) == row_digest(options, saved[row["version"]])
    }
