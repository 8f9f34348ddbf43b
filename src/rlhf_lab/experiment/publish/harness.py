"""`rlhf-lab evaluate RUN eval=harness`: lm-evaluation-harness on an exported policy."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import torch

from rlhf_lab.evaluation.options import EvalOptions
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.publish.export import export, versions
from rlhf_lab.runs.disk import atomic_write
from rlhf_lab.runs.folder import POLICY, make_folder
from rlhf_lab.runs.schema import HARNESS, HarnessResult
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

# What results of a task hold besides numbers.
NOT_SCORES = ("alias", "name", "sample_len", "sample_count")


def run_harness(config: Config, run: Path, console: Console) -> HarnessResult:
    """Run eval.tasks on the newest version of a run, as it is exported, and write the results to
    the run's folder. The policy is not trained further, and no other file of the run changes."""
    options = config.eval
    if not options.tasks:
        raise UserError("eval=harness runs no task: pass eval.tasks=[NAME,...] (lm-eval ls tasks)")
    with console.phase("reading the harness's index of tasks"):
        manager = task_manager(options)
    saved = versions(config, run)
    with tempfile.TemporaryDirectory(prefix="rlhf-lab-harness-") as draft:
        policy = export(config, run, Path(draft) / POLICY, None, console)
        found = evaluate(policy, config, manager)
    result: HarnessResult = {
        "version": max(saved),
        "seed": config.seed,
        "limit": options.prompts,
        "lm_eval": version_of("lm_eval"),
        "tasks": {name: scores_of(row) for name, row in found["results"].items()},
        "examples": {name: row["effective"] for name, row in found["n-samples"].items()},
        "fewshot": dict(found["n-shot"]),
    }
    write(run, options.label, result)
    show(result, console)
    return result


def task_manager(options: EvalOptions) -> Any:
    """The harness's index of tasks. Raises UserError without the harness, and for a task that it
    does not have."""
    try:
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise UserError(
            "eval.tasks needs the package lm_eval: pip install 'rlhf-lab[harness]'"
        ) from error
    if options.tasks_folder and not Path(options.tasks_folder).is_dir():
        raise UserError(f"eval.tasks_folder={options.tasks_folder} is no folder")
    own = options.tasks_folder
    # The index of all tasks takes many seconds.
    manager = TaskManager(include_path=own, include_defaults=False) if own else None
    if manager is None or missing(options, manager):
        manager = TaskManager(include_path=own or None)
    if names := missing(options, manager):
        raise UserError(
            f"eval.tasks: the harness has no task {names[0]!r}: `lm-eval ls tasks` lists them; "
            "pass eval.tasks_folder for your own"
        )
    return manager


def missing(options: EvalOptions, manager: Any) -> list[str]:
    """The tasks that an index lacks."""
    return [name for name in options.tasks if not manager.match_tasks([name])]


def evaluate(policy: Path, config: Config, manager: Any) -> Mapping[str, Any]:
    """The harness's results of a saved policy."""
    from lm_eval import simple_evaluate

    options = config.eval
    torch.set_num_threads(options.threads)
    found: Mapping[str, Any] = simple_evaluate(
        model="hf",
        model_args={"pretrained": str(policy), "dtype": "auto"},
        tasks=list(options.tasks),
        num_fewshot=None if options.fewshot < 0 else options.fewshot,
        batch_size=options.chunk_groups,
        device="cuda" if torch.cuda.is_available() else "cpu",
        limit=options.prompts,
        log_samples=False,
        task_manager=manager,
        random_seed=config.seed,
        numpy_random_seed=config.seed,
        torch_random_seed=config.seed,
        fewshot_random_seed=config.seed,
    )
    return found


def scores_of(row: Mapping[str, Any]) -> dict[str, float]:
    """Numbers of a task: `acc` and `acc_stderr`, or `exact_match/strict-match` for a filter."""
    found = {}
    for name, value in row.items():
        metric, _, filter_ = name.partition(",")
        if metric not in NOT_SCORES and isinstance(value, int | float):
            found[metric if filter_ in ("", "none") else f"{metric}/{filter_}"] = float(value)
    return found


def write(run: Path, label: str, result: HarnessResult) -> None:
    """Write the results in one step, over those of an earlier time with the same label."""
    name = f"harness-{label}.json" if label else "harness.json"
    make_folder(run / HARNESS)
    atomic_write(run / HARNESS / name, json.dumps(result, indent=1) + "\n")


def show(result: HarnessResult, console: Console) -> None:
    """A table of tasks and scores."""
    examples = {task: str(count) for task, count in result["examples"].items()}
    rows: list[Sequence[str]] = [
        [task, name, f"{value:.4f}", error_text(scores, name), examples.get(task, "")]
        for task, scores in result["tasks"].items()
        for name, value in scores.items()
        if not name.partition("/")[0].endswith("_stderr")
    ]
    title = f"lm-evaluation-harness, version {result['version']}"
    console.table(title, ["task", "score", "value", "standard error", "examples"], rows)


def error_text(scores: Mapping[str, float], name: str) -> str:
    """The standard error of a score; "" where the harness gives none."""
    metric, slash, filter_ = name.partition("/")
    error = scores.get(f"{metric}_stderr{slash}{filter_}")
    return "" if error is None else f"{error:.4f}"
