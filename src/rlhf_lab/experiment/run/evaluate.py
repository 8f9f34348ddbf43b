"""A row of evals.jsonl: what one saved version is worth, and by what it is known again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from rlhf_lab.evaluation.evaluator import Evaluator
from rlhf_lab.evaluation.options import EvalOptions
from rlhf_lab.evaluation.score_table import cells, number, with_bounds
from rlhf_lab.experiment.build.evaluator import build_evaluator
from rlhf_lab.experiment.build.policy import PolicyLoader, Sources
from rlhf_lab.experiment.build.prompt_lengths import left_out_note
from rlhf_lab.experiment.config.config import Config, changed
from rlhf_lab.experiment.run.distributed_generation import spread_evaluator
from rlhf_lab.models.adapters import merged_version
from rlhf_lab.runs.disk import file_digest
from rlhf_lab.runs.folder import EVALS, LAST
from rlhf_lab.runs.identity import hash_of
from rlhf_lab.runs.jsonl import read_rows, write_rows
from rlhf_lab.runs.reading import Unreadable
from rlhf_lab.runs.run_directory import RunDirectory
from rlhf_lab.runs.saved_tensors import check_tensors, read_version, saved_versions
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.runs.verification import require_recorded
from rlhf_lab.types.data import Metrics
from rlhf_lab.types.errors import UserError

Row = Mapping[str, Any]
# Digest of the weights and of the options that a row of a run with eval.every was made by.
DIGEST = "eval/digest"
# Options that decide which versions are judged, where, and what is written beside their rows.
NOT_OF_A_ROW = (
    *("every", "device", "snapshots", "last_prompts", "label", "table_rows", "validate"),
    *("tasks", "tasks_folder", "fewshot"),
)

# What stands in place of a sample without text.
NO_TEXT = "(empty)"


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


@dataclass(frozen=True)
class Evaluated:
    """A run and a row for each of its versions."""

    name: str
    rows: Sequence[Row]


def evaluate_run(
    config: Config,
    sources: Sources,
    loader: PolicyLoader,
    record: RunDirectory,
    console: Console,
    keeps_known: bool = False,
    is_beside: bool = False,
) -> list[Metrics]:
    """Judge the saved versions of a run; evals.jsonl and samples.jsonl are written anew, and
    evals-last.jsonl where the last version is judged on more prompts as well: prompts differ in how
    easily they are won, so that all rows of evals.jsonl are of the same ones.

    keeps_known: whether rows of evals.jsonl stay that were made of these versions with these
    options, beside the training. The last version is judged in any case, for its texts.
    is_beside: whether the run is at work, whose process alone records files.
    """
    folder, options = record.folder, config.eval
    saved = saved_weights(folder)
    known = known_rows(options, folder / EVALS, saved) if keeps_known else {}
    known.pop(max(saved), None)
    with console.phase("loading policy, rewards and prompts for the evaluation"):
        evaluator = build_evaluator(config, sources, loader)
    if note := left_out_note(config, len(evaluator.prompts)):
        console.print(note)
    rows: list[Metrics] = []
    tables: dict[int, list[dict[str, Any]]] = {}
    with (
        spread_evaluator(evaluator, config, sources, loader) as spread,
        console.stage("evaluate", total=len(saved)) as bar,
    ):
        judge = version_judge(spread, options, sources)
        for version, path in saved.items():
            if version in known:
                row = known[version]
            else:
                row, tables[version] = judge.judge(version, path, options.prompts)
            rows.append(row)
            bar.advance(1, **shown_numbers(row))
        last = rows[-1]
        if options.last_prompts:
            last, tables[version] = judge.judge(version, path, options.last_prompts)
    table = tables[version][: options.table_rows]
    # Of a version that was judged beside the training, only the row is known.
    old = tables.get(min(saved), []) if min(saved) != version else []
    label = f"-{options.label}" if options.label else ""
    results = {f"evals{label}.jsonl": rows, f"samples{label}.jsonl": table}
    if options.last_prompts:
        results[f"evals{label}-{LAST}.jsonl"] = [last]
    with nullcontext() if is_beside else record.rewriting(*results):
        for name, found in results.items():
            write_rows(folder / name, found)
    console.print(headline(rows[0], last))
    show_samples(console, table, {row["uid"]: row["sample"] for row in old})
    return rows


def saved_weights(folder: Path) -> dict[int, Path]:
    """The files of a run's versions, oldest first. A damaged one is refused before work is done."""
    saved = saved_versions(folder)
    if not saved:
        raise UserError(
            f"{folder} holds no saved weights to evaluate: train with eval.snapshots=1 or more; "
            "one that has just begun keeps version 0 before its first round"
        )
    for path in saved.values():
        try:
            check_tensors(path)
            require_recorded(folder, path)
        except Unreadable as error:
            raise UserError(f"{error}; delete it to evaluate the other versions") from error
    return saved


def shown_numbers(metrics: Row) -> dict[str, float]:
    """The numbers of a version that the bar shows."""
    names = {"gold/win_rate": "win_rate"}
    if "gold/win_rate" not in metrics:
        names = {"gold/mean": "gold", "proxy/mean": "reward"}
    names["kl/sft_k1"] = "kl"
    return {title: metrics[name] for name, title in names.items() if name in metrics}


def headline(first: Row, row: Row) -> str:
    """A version's scores in a line, behind those of the first version; without a win-rate the mean
    scores, and why there is none."""
    end = f"{row['kl/sft_k1']:.2f} nats a sequence (version {row['version']})"
    is_one = first["version"] == row["version"]

    def before(key: str) -> str:
        return "" if is_one or key not in first else f"{number(first, key)} -> "

    if "eval/no_win_rate" not in row:
        rate = before("gold/win_rate") + with_bounds(row, "gold/win_rate")
        return f"gold win-rate {rate} against references, KL to SFT {end}"
    names = {"mean reward": "proxy/mean", "mean of the judge": "gold/mean"}
    means = [f"{name} {before(key)}{number(row, key)}" for name, key in names.items() if key in row]
    return ", ".join([*means, f"KL to the start {end}; no win-rate: {row['eval/no_win_rate']}"])


def show_samples(console: Console, table: list[dict[str, Any]], before: Mapping[str, str]) -> None:
    """A table of what the policy wrote before, by uid, and writes now; columns without any text are
    left out."""
    columns = {
        "prompt": [row["prompt"] for row in table],
        "before": [before.get(row["uid"], "") for row in table],
        "sample": [row["sample"] or NO_TEXT for row in table],
        "gold": [number(row, "gold", 2) for row in table],
        "reference": [row["reference"] or "" for row in table],
        "gold of reference": [number(row, "reference_gold", 2) for row in table],
    }
    shown = {name: texts for name, texts in columns.items() if any(texts)}
    if table:
        rows = [list(texts) for texts in zip(*shown.values(), strict=True)]
        console.table("samples of the last version", list(shown), rows)


def show(console: Console, runs: Sequence[Evaluated]) -> None:
    """A table over runs and versions; columns without any number are left out."""
    lines = [dict(cells(run.name, row)) for run in runs for row in run.rows]
    columns = list(dict.fromkeys(name for line in lines for name, text in line.items() if text))
    if lines:
        table = [[line.get(name, "") for name in columns] for line in lines]
        console.table("evaluation", columns, table)
