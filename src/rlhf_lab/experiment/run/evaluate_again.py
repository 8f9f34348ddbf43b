"""Judge a run on another task than its own: what it forgot (RL's Razor, arXiv:2509.04259)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.artifacts.products import products_of
from rlhf_lab.experiment.build.policy import PolicyLoader, Sources
from rlhf_lab.experiment.build.vocabulary import unknown_tokens
from rlhf_lab.experiment.config.config import Config, plain
from rlhf_lab.experiment.publish.card import CARD, write_card
from rlhf_lab.experiment.publish.harness import run_harness
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.experiment.run.evaluate import Evaluated, evaluate_run, saved_weights
from rlhf_lab.rewards.options import num_proxies
from rlhf_lab.runs import folder as runs
from rlhf_lab.runs.locks import is_free, try_lock
from rlhf_lab.runs.manifest import read_manifest, state_in
from rlhf_lab.runs.provenance import short_commit
from rlhf_lab.runs.run_directory import LOCK, RunDirectory, run_lock
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.runs.trackers.mirrors import JobType, TrackedRun, mirror_evaluation
from rlhf_lab.types.data import Metrics
from rlhf_lab.types.errors import UserError

# Label of the evaluation of a run that is at work: the files without one are the run's.
BESIDE = "running"


def is_second_task(config: Config, own: Config) -> bool:
    """Whether this evaluation is of another task than the run that had the config `own`. A policy
    that a stage made began with what its task's options say; others may find a moved file."""
    if own.model.begins_by_stage:
        return bool(plain(config.task) != plain(own.task))
    return bool(config.task.name != own.task.name)


def on_second_task(config: Config, own: Config) -> Config:
    """The config that judges the run's policy on another task: tasks bring models, which the run
    does not take. Raises UserError with the key and the remedy for what does not fit."""
    name = config.task.name
    if not config.eval.label:
        raise UserError(
            f"task={name} with eval.label='': evals.jsonl has the scores of the run's own task, "
            f"{own.task.name}; pass eval.label=NAME to write evals-NAME.jsonl"
        )
    if num_proxies(config.reward):
        raise UserError(
            f"reward={config.reward.name} with task={name}: it would be trained on preferences of "
            f"that task, which the run had none of; pass reward=task_rule, or another reward that "
            "needs no training"
        )
    found = replace(config, model=own.model, proxy=own.proxy)
    check(found)
    return found


def require_known_texts(config: Config, own: Config, tokenizer: Any) -> None:
    """Raise UserError if the run's tokenizer cannot read what evaluation asks of this task."""
    num = config.eval.most_prompts[1]
    examples = config.task.examples(config.eval.split)
    asked = [examples[index] for index in range(min(num, len(examples)))]
    texts = [text for one in asked for text in (one.prompt, one.reference) if text]
    unknown = [text for text in texts if unknown_tokens(text, tokenizer)[0]]
    if unknown:
        raise UserError(
            f"task={config.task.name}: the tokenizer that the run learned {own.task.name} with "
            f"cannot read {len(unknown)} of {len(texts)} texts, such as {unknown[0][:60]!r}: "
            "choose a task of its vocabulary, or a run of a pretrained model"
        )


def send_evaluation(
    config: Config, folder: Path, job_type: JobType, rows: Sequence[Metrics], console: Console
) -> None:
    """Send an evaluation to the trackers that mirror the run."""
    manifest = read_manifest(runs.manifest_path(folder))
    run = TrackedRun(
        folder, plain(config), manifest.get("run_id", ""), job_type, short_commit(manifest)
    )
    with console.phase("sending the evaluation to the trackers"):
        mirror_evaluation(config.tracker, run, rows, console.print)


def evaluate_again(
    config: Config, console: Console, may_make: bool = False, own: Config | None = None
) -> Evaluated:
    """Evaluate the saved weights of a run, with the eval options of this config. may_make: whether
    artifacts that are not found are made. own: the config that the run had, where this one may be
    of another task."""
    folder = Path(config.output.dir)
    if config.eval.is_harness:
        with run_lock(folder):
            run_harness(config, folder, console)
        return Evaluated(str(folder), [])
    if own is not None and not is_second_task(config, own):
        own = None
    config = config if own is None else on_second_task(config, own)
    with output_of(config, folder) as (config, is_beside):
        if is_beside:
            saved_weights(folder)  # refused before artifacts are looked for that are being made
        loader = PolicyLoader(console)
        if own is None:
            sources = Artifacts(config, console, loader, products_of(folder, may_make)).sources()
        else:
            sources = sources_of_second_task(config, own, console, loader, may_make)
        record = RunDirectory(folder, dict(read_manifest(runs.manifest_path(folder))))
        rows = evaluate_run(config, sources, loader, record, console, is_beside=is_beside)
        if not is_beside:
            send_evaluation(config, folder, "evaluate", rows, console)
            # The card is about the run's own task.
            if own is None and (folder / runs.POLICY).is_dir():
                with record.rewriting(f"{runs.POLICY}/{CARD}"):
                    write_card(config, folder, folder / runs.POLICY, config.run.num_rounds)
    return Evaluated(str(folder), rows)


@contextmanager
def output_of(config: Config, folder: Path) -> Iterator[tuple[Config, bool]]:
    """The config with the label of the files that this evaluation alone writes in the block, and
    whether the run is at work: then nothing else of its folder or its trackers is written, since
    they are the run's. Raises UserError where another process evaluates into the same files."""
    state = state_in(read_manifest(runs.manifest_path(folder)))
    # A process on another machine counts as alive; its lock is free once that machine has stopped.
    is_beside = state == "running" and not is_free(folder / LOCK)
    label = config.eval.label or (BESIDE if is_beside else "")
    with ExitStack() as stack:
        if not is_beside:
            stack.enter_context(run_lock(folder))
        if label and not stack.enter_context(try_lock(folder / f".evals-{label}.lock")):
            raise UserError(
                f"eval.label={label}: another process evaluates into {folder}/evals-{label}.jsonl: "
                "wait for it, or choose another eval.label"
            )
        yield replace(config, eval=replace(config.eval, label=label)), is_beside


def sources_of_second_task(
    config: Config, own: Config, console: Console, loader: PolicyLoader, may_make: bool
) -> Sources:
    """What the saved weights of a run are judged with on another task."""
    of_run = replace(own, output=config.output)
    products = products_of(Path(config.output.dir), may_make)
    sources = Sources(Artifacts(of_run, console, loader, products).policy(own.model))
    tokenizer = loader.read(sources.policy, config.seed)[1]
    require_known_texts(config, own, tokenizer)
    return sources
