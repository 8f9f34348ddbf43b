"""The life of one run: claim its folder, train and evaluate its policy, record how it ended."""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlhf_lab.evaluation.evaluator import Validate
from rlhf_lab.experiment import build
from rlhf_lab.experiment.config import Config, plain
from rlhf_lab.experiment.evaluate import Evaluated, evaluate_run
from rlhf_lab.experiment.model_card import write_card
from rlhf_lab.experiment.outputs import CHECKPOINTS, RECORDS, FolderOutput
from rlhf_lab.experiment.planning import planner
from rlhf_lab.experiment.planning.timing import measured
from rlhf_lab.experiment.prepare import Artifacts
from rlhf_lab.experiment.train import learn
from rlhf_lab.experiment.validate import validate
from rlhf_lab.models.causal_lm import load_policy, require_savable, save_policy
from rlhf_lab.models.forward import load_weights, weights_digest
from rlhf_lab.rollout.mode import ExecutorKind
from rlhf_lab.runs import folder as runs
from rlhf_lab.runs import forkserver
from rlhf_lab.runs.disk import disk_error
from rlhf_lab.runs.extents import extent_of
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.runs.provenance import peak_memory_bytes, short_commit
from rlhf_lab.runs.run_lock import run_lock
from rlhf_lab.runs.secrets import masked
from rlhf_lab.runs.signals import Stop, listening
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.runs.trackers.evaluations import mirror_evaluation
from rlhf_lab.runs.trackers.identity import JobType, Tracked
from rlhf_lab.training.checkpoint import saved_checkpoints
from rlhf_lab.types.data import Metrics, Weights
from rlhf_lab.types.errors import StopRequested, UserError

Record = Mapping[str, Any]


def train(config: Config, console: Console, facts: Record) -> Path:
    """One run: its folder holds the manifest, the config, metrics, weights and evaluation.

    Raises StopRequested on SIGTERM or SIGUSR1, once a checkpoint is saved. A run that came to its
    pause (checkpoint.pause_round) is left for `output.resume=true`.
    """
    warm(config)
    folder = claim_folder(config)
    with run_lock(folder):
        return train_in(folder, config, console, facts)


def train_in(folder: Path, config: Config, console: Console, facts: Record) -> Path:
    """The same in a folder that no other process uses."""
    claim = runs.RunDirectory.resume if config.output.resume else runs.RunDirectory.create
    manifest = {**facts["manifest"], "settings": build.settings(config)}
    record = claim(folder, manifest, facts["config_yaml"])
    if record.manifest["state"] == "finished":
        console.say(f"run {folder} has finished already: nothing to do")
        return folder
    console.say(f"run {folder}")
    with listening() as stop:
        try:
            state = finish_run(config, console, facts, record, stop)
        except BaseException as error:
            if disk_error(error):
                error.add_note(saved(folder))
            # A scheduler that asks twice must not cut off what is written down about the end.
            with stop.deferred():
                end_early(record, error)
            raise
    record.finish(state, peak_memory_bytes=peak_memory_bytes())
    return folder


def warm(config: Config) -> None:
    """Let the imports of generator processes begin now, beside what comes before they start."""
    if config.mode.executor is ExecutorKind.process:
        forkserver.warm()


def finish_run(
    config: Config, console: Console, facts: Record, record: runs.RunDirectory, stop: Stop
) -> runs.End:
    """Train, unless a run that was cut off had trained to the end; then evaluate. Returns the state
    that the run is in now: it may have come to its pause only."""
    folder, rounds = record.folder, config.run.num_rounds
    sources = Artifacts(config, console).sources()
    if "weights_digest" not in record.manifest:
        given = {
            **facts,
            "run_id": record.manifest["run_id"],
            "commit": short_commit(record.manifest),
        }
        with stop.deferred():
            weights = trained(config, sources, folder, console, given, lambda: stop.is_requested)
        if weights.version < rounds:
            validated(config, sources, folder, console, weights.version)
            console.say(f"paused at round {weights.version} of {rounds} (checkpoint.pause_round)")
            return "paused"
        # Which chunk waits for which version follows from the lengths of partial rollouts.
        ideal = {} if config.mode.segment_tokens else overlap(folder, console)
        written = {name: asdict(extent_of(folder / name)) for name in RECORDS}
        record.update(weights_digest=weights_digest(weights), records=written, **ideal)
    validated(config, sources, folder, console, rounds)
    if config.eval.snapshots:
        rows = evaluate_run(config, sources, folder, console)
        tell(config, folder, "train", rows, console)
    write_card(config, folder, folder / runs.POLICY, rounds)
    return "finished"


def trained(
    config: Config,
    sources: build.Sources,
    folder: Path,
    console: Console,
    facts: Record,
    should_stop: Callable[[], bool],
) -> Weights:
    """Train into the run's folder, and save the policy if the run came to its end. Returns the last
    weights."""
    output = FolderOutput(config, folder, console, facts)
    model, tokenizer = load_policy(sources.policy, None, config.seed)
    written = build.written(config)
    require_savable(model, tokenizer, sources.policy.path, written)
    weights = learn(config, sources, model, tokenizer, output, console.say, should_stop)
    if weights.version == config.run.num_rounds:
        # The engine may have cut the trained one into parts.
        whole, _ = load_policy(sources.policy, None, config.seed)
        load_weights(whole, weights)
        save_policy(whole, tokenizer, folder / runs.POLICY, written)
    return weights


def validated(
    config: Config, sources: build.Sources, folder: Path, console: Console, version: int
) -> None:
    """Ask those that eval.validate names about a version."""
    if config.eval.validate is not Validate.none:
        validate(config, sources, folder, console, version)


def tell(
    config: Config, folder: Path, job_type: JobType, rows: Sequence[Metrics], console: Console
) -> None:
    """Pass an evaluation on to where the run is mirrored."""
    manifest = read_manifest(runs.manifest_path(folder))
    run = Tracked(
        folder, plain(config), manifest.get("run_id", ""), job_type, short_commit(manifest)
    )
    mirror_evaluation(config.tracker, run, rows, console.say)


def overlap(folder: Path, console: Console) -> dict[str, float]:
    """Say who waited and what would help; returns the wall-clock and that of the ideal timeline."""
    measurement = measured(folder)
    if not measurement.is_whole:
        return {}
    console.say(planner.advice(measurement))
    ideal = planner.predict(measurement, measurement.settings).wall
    return {"wall_seconds": measurement.wall, "ideal_seconds": ideal}


def end_early(record: runs.RunDirectory, error: BaseException) -> None:
    """Note how a run ended; the disk may be what failed, and then the error itself must be seen."""
    ends: dict[type[BaseException], runs.End] = {
        KeyboardInterrupt: "interrupted",
        StopRequested: "stopped",
    }
    state = ends.get(type(error), "failed")
    facts = {"error": masked(traceback.format_exc())} if state == "failed" else {}
    try:
        record.finish(state, **facts)
    except OSError as second:
        error.add_note(f"{record.folder / runs.MANIFEST} could not be updated either: {second}")


def saved(folder: Path) -> str:
    """The newest checkpoint of a run that the disk stopped, and how to resume it."""
    rounds = [int(path.name) for path in saved_checkpoints(folder / CHECKPOINTS)]
    kept = f"its newest checkpoint is of round {rounds[-1]}" if rounds else "no checkpoint is kept"
    return f"the run has failed, {kept}; `rlhf-lab resume {shlex.quote(str(folder))}` goes on"


def claim_folder(config: Config) -> Path:
    """The folder that the user named, or a new one named after the run."""
    if config.output.dir:
        return Path(config.output.dir)
    if config.output.resume:
        raise UserError("output.resume=true goes on with a run: pass output.dir=<its folder>")
    correction = "" if config.correction.name == "none" else f"-{config.correction.name}"
    method = f"{config.algo.name}{correction}"
    name = f"{config.task.name}-{method}-{config.mode.name}-{config.model.name}"
    label_ = f"{name}-N{config.run.updates_per_round}-seed{config.seed}"
    return runs.new_folder(Path(config.output.root), label_)


def evaluated(config: Config, console: Console) -> Evaluated:
    """Judge the saved weights of a finished run again, with other eval options if wanted."""
    folder = Path(config.output.dir)
    with run_lock(folder):
        sources = Artifacts(config, console).sources()
        rows = evaluate_run(config, sources, folder, console)
        tell(config, folder, "evaluate", rows, console)
        if (folder / runs.POLICY).is_dir():
            write_card(config, folder, folder / runs.POLICY, config.run.num_rounds)
    return Evaluated(str(folder), rows)
