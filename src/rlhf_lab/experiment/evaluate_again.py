"""Evaluate a run, send the results to its trackers, write them into its card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlhf_lab.experiment.config import Config, plain
from rlhf_lab.experiment.evaluate import Evaluated, evaluate_run
from rlhf_lab.experiment.harness import run_harness
from rlhf_lab.experiment.model_card import write_card
from rlhf_lab.experiment.policy_loader import PolicyLoader
from rlhf_lab.experiment.prepare import Artifacts
from rlhf_lab.experiment.run_products import products_of
from rlhf_lab.experiment.second_task import is_second_task, on_second_task, require_known_texts
from rlhf_lab.experiment.sources import Sources
from rlhf_lab.runs import folder as runs
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.runs.provenance import short_commit
from rlhf_lab.runs.run_lock import run_lock
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.runs.trackers.evaluations import mirror_evaluation
from rlhf_lab.runs.trackers.identity import JobType, TrackedRun
from rlhf_lab.types.data import Metrics


def send_evaluation(
    config: Config, folder: Path, job_type: JobType, rows: Sequence[Metrics], console: Console
) -> None:
    """Send an evaluation to the trackers that mirror the run."""
    manifest = read_manifest(runs.manifest_path(folder))
    run = TrackedRun(
        folder, plain(config), manifest.get("run_id", ""), job_type, short_commit(manifest)
    )
    mirror_evaluation(config.tracker, run, rows, console.print)


def evaluate_again(
    config: Config, console: Console, may_make: bool = False, own: Config | None = None
) -> Evaluated:
    """Evaluate the saved weights of a run, with the eval options of this config. may_make: whether
    artifacts that are not found are made. own: the config that the run had, where this one may be
    of another task."""
    folder = Path(config.output.dir)
    if own is not None and not config.eval.is_harness and is_second_task(config, own):
        return evaluate_second_task(on_second_task(config, own), own, console, may_make)
    with run_lock(folder):
        if config.eval.is_harness:
            run_harness(config, folder, console)
            return Evaluated(str(folder), [])
        loader = PolicyLoader()
        sources = Artifacts(config, console, loader, products_of(folder, may_make)).sources()
        rows = evaluate_run(config, sources, loader, folder, console)
        send_evaluation(config, folder, "evaluate", rows, console)
        if (folder / runs.POLICY).is_dir():
            write_card(config, folder, folder / runs.POLICY, config.run.num_rounds)
    return Evaluated(str(folder), rows)


def evaluate_second_task(
    config: Config, own: Config, console: Console, may_make: bool
) -> Evaluated:
    """Evaluate the saved weights of a run on another task. They began as its own task's policy; its
    model card stays as it is."""
    folder = Path(config.output.dir)
    with run_lock(folder):
        loader = PolicyLoader()
        of_run = replace(own, output=config.output)
        artifacts = Artifacts(of_run, console, loader, products_of(folder, may_make))
        sources = Sources(artifacts.policy(own.model))
        tokenizer = loader.read(sources.policy, config.seed)[1]
        require_known_texts(config, own, tokenizer)
        rows = evaluate_run(config, sources, loader, folder, console)
        send_evaluation(config, folder, "evaluate", rows, console)
    return Evaluated(str(folder), rows)
