"""What a model card says of a version's evaluations: a table, the hub's metadata, some texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult

from rlhf_lab.evaluation.score_table import cells
from rlhf_lab.experiment.config import Config
from rlhf_lab.runs.folder import EVALS
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.schema import read_harness

OMITTED = ("run", "version", "samples/s")
# Scores that the hub shows beside a model, with their names there.
INDEXED = {
    "gold/win_rate": "win-rate against references",
    "accuracy/mean": "accuracy",
    "kl/sft_k1": "KL to the start, nats a sequence",
    "sample/length": "tokens a response",
}
SAMPLES = "samples.jsonl"
SHOWN_SAMPLES = 3
SHOWN_CHARACTERS = 600


def scores(run: Path, version: int) -> str:
    """Every evaluation of this version, with 95% intervals."""
    lines = [
        {"evaluation": label or row.get("eval/options", ""), **score_row(row)}
        for label, row in evaluations(run, version)
    ]
    if not lines:
        return "This version has not been evaluated (`rlhf-lab evaluate RUN`)."
    columns = list(dict.fromkeys(name for line in lines for name, text in line.items() if text))
    rows = [[line.get(name, "") for name in columns] for line in lines]
    return table(columns, rows) + (
        "\n\nWin-rates are against reference answers, in brackets 95% intervals over prompts. KL "
        "is in nats a sequence to the policy that training started from."
    )


def results(config: Config, run: Path, version: int) -> list[EvalResult]:
    """Scores of a version for the hub: one of each evaluation and metric."""
    return [
        EvalResult(
            task_type="text-generation",
            dataset_type=config.task.name,
            dataset_name=f"{config.task.name}, {row.get('eval/options', '')}",
            dataset_split=row.get("eval/split"),
            dataset_args={"prompts": row.get("eval/prompts")},
            metric_type=name.replace("/", "_"),
            metric_name=INDEXED[name],
            metric_value=row[name],
            metric_args={"seed": config.seed, "judge": config.judge.name, "version": version},
        )
        for _, row in evaluations(run, version)
        for name in INDEXED
        if isinstance(row.get(name), int | float)
    ]


def benchmark_results(config: Config, run: Path, version: int) -> list[EvalResult]:
    """Scores of a version by lm-evaluation-harness for the hub."""
    return [
        EvalResult(
            task_type="text-generation",
            dataset_type=task,
            dataset_name=task,
            dataset_args={"examples": found["examples"].get(task), "limit": found["limit"]},
            metric_type=name,
            metric_name=name,
            metric_value=value,
            metric_args={"seed": config.seed, "version": version, "lm_eval": found["lm_eval"]},
        )
        for _, found in read_harness(run)
        if found["version"] == version
        for task, scores in found["tasks"].items()
        for name, value in scores.items()
        if "_stderr" not in name
    ]


def evaluations(run: Path, version: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Label and row of every evaluation of a version."""
    for path in sorted(run.glob("evals*.jsonl")):
        label = path.stem.removeprefix("evals").removeprefix("-")
        for row in read_rows(path):
            if row["version"] == version:
                yield label, row


def samples(run: Path, version: int) -> str:
    """Some texts of the version, if it is the last that was evaluated: those are the ones kept."""
    rows = read_rows(run / EVALS)
    if not rows or rows[-1]["version"] != version:
        return ""
    shown = read_rows(run / SAMPLES)[:SHOWN_SAMPLES]
    return "\n\n".join(
        f"Prompt:\n\n{as_code(row['prompt'])}\n\nResponse:\n\n{as_code(row['sample'])}"
        for row in shown
        if isinstance(row.get("prompt"), str) and isinstance(row.get("sample"), str)
    )


def as_code(text: str) -> str:
    """Text as an indented block, which Markdown shows as it is; cut if it is long."""
    cut = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} ..."
    return "\n".join(f"    {line}" for line in cut.splitlines() or [""])


def score_row(row: Mapping[str, Any]) -> dict[str, str]:
    """A row of evals.jsonl as columns and texts of the card."""
    size = {"prompts": f"{row.get('eval/prompts', '')} ({row.get('eval/split', '')})"}
    return size | {name: text for name, text in cells("", row) if name not in OMITTED}


def table(columns: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
