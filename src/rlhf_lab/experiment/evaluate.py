"""Judging the saved versions of a run: its files, what is told, and the table over runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from rlhf_lab.evaluation.score_table import cells, number, with_bounds
from rlhf_lab.experiment import build
from rlhf_lab.experiment.config import Config
from rlhf_lab.runs.jsonl import write_rows
from rlhf_lab.runs.reading import Unreadable
from rlhf_lab.runs.saved_tensors import check_tensors, kept_versions, read_tensors
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.data import Metrics, Weights
from rlhf_lab.types.errors import UserError

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Evaluated:
    """A run and a row for each of its versions."""

    name: str
    rows: Sequence[Row]


def evaluate_run(
    config: Config, sources: build.Sources, folder: Path, console: Console
) -> list[Metrics]:
    """Judge the saved versions of a run; evals.jsonl and samples.jsonl are written anew."""
    saved = saved_weights(folder)
    judge = build.evaluator(config, sources)
    rows = []
    with console.stage("evaluate", total=len(saved)) as bar:
        for version, path in saved.items():
            start = perf_counter()
            metrics, table = judge.evaluate(Weights(version, read_tensors(path)))
            seconds = perf_counter() - start
            rows.append(metrics | {"eval/options": config.eval.name} | speed(metrics, seconds))
            bar.advance(1, win_rate=metrics["gold/win_rate"], kl=metrics["kl/sft_k1"])
    table = table[: config.eval.table_rows]
    label = f"-{config.eval.label}" if config.eval.label else ""
    write_rows(folder / f"evals{label}.jsonl", rows)
    write_rows(folder / f"samples{label}.jsonl", table)
    last = rows[-1]
    console.print(
        f"gold win-rate {with_bounds(last, 'gold/win_rate')} against references, "
        f"KL to SFT {last['kl/sft_k1']:.2f} nats a sequence (version {last['version']})"
    )
    show_samples(console, table)
    return rows


def saved_weights(folder: Path) -> dict[int, Path]:
    """The files of a run's versions, oldest first. A damaged one is refused before work is done."""
    saved = kept_versions(folder)
    if not saved:
        raise UserError(
            f"{folder} holds no saved weights to evaluate: train with eval.snapshots=1 or more"
        )
    for path in saved.values():
        try:
            check_tensors(path)
        except Unreadable as error:
            raise UserError(f"{error}: delete it to evaluate the other versions") from error
    return saved


def speed(metrics: Row, seconds: float) -> Metrics:
    """What a clock measured, under names that promise no exactness."""
    samples = metrics["eval/prompts"] * metrics["eval/samples"]
    return {"timing/seconds": seconds, "timing/samples_per_second": samples / seconds}


def show_samples(console: Console, table: list[dict[str, Any]]) -> None:
    """A table of what the policy writes now."""
    if table:
        console.table(
            "samples of the last version",
            ["prompt", "sample", "gold", "reference", "gold of reference"],
            [
                [
                    row["prompt"],
                    row["sample"],
                    number(row, "gold", 2),
                    row["reference"],
                    number(row, "reference_gold", 2),
                ]
                for row in table
            ],
        )


def show(console: Console, runs: Sequence[Evaluated]) -> None:
    """A table over runs and versions; columns without any number are left out."""
    lines = [dict(cells(run.name, row)) for run in runs for row in run.rows]
    columns = list(dict.fromkeys(name for line in lines for name, text in line.items() if text))
    if lines:
        table = [[line.get(name, "") for name in columns] for line in lines]
        console.table("evaluation", columns, table)
