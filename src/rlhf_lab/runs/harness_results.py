"""evaluations/harness*.json: results of lm-evaluation-harness on a run's policy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from typing_extensions import TypedDict

from rlhf_lab.runs.reading import read_json
from rlhf_lab.runs.schema import Count

HARNESS = "evaluations"
PATTERN = "harness*.json"


class HarnessResult(TypedDict):
    """Results of some tasks. version: of the policy. limit: most examples of a task. lm_eval:
    version of the harness. tasks: scores by task, `NAME_stderr` being the standard error of NAME.
    examples: how many each task had. fewshot: solved examples before each question."""

    version: Count
    seed: int
    limit: Count
    lm_eval: str
    tasks: dict[str, dict[str, float]]
    examples: dict[str, Count]
    fewshot: dict[str, int]


def read_harness(run: Path) -> Iterator[tuple[str, HarnessResult]]:
    """Label and results of every evaluation by the harness. Raises Unreadable."""
    for path in sorted((run / HARNESS).glob(PATTERN)):
        label = path.stem.removeprefix("harness").removeprefix("-")
        yield label, read_json(path, HarnessResult)
