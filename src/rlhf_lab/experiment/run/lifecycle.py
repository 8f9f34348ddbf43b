"""What the checkpoints of a run take on the disk."""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.artifacts.products import PRODUCTS, own_products
from rlhf_lab.experiment.build.policy import PolicyLoader, Sources
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.planning import planner
from rlhf_lab.experiment.planning.forecast import size
from rlhf_lab.experiment.publish.card import CARD, write_card
from rlhf_lab.experiment.rules.derived import generation_settings, timing_settings
from rlhf_lab.experiment.run.evaluate import evaluate_run
from rlhf_lab.experiment.run.evaluate_again import send_evaluation
from rlhf_lab.experiment.run.evaluate_beside import EvaluationBeside
from rlhf_lab.experiment.run.fork import Fork, Past
from rlhf_lab.experiment.run.fork_training import state_at, train_past
from rlhf_lab.experiment.run.outputs import CHECKPOINTS, FolderOutput
from rlhf_lab.experiment.run.train import learn
from rlhf_lab.experiment.run.validate import validate
from rlhf_lab.models.causal_lm import require_savable, save_adapters, save_policy
from rlhf_lab.models.devices import release_unused
from rlhf_lab.models.weights import meta_model, weights_digest, with_parameters
from rlhf_lab.rollout.mode import ExecutorKind
from rlhf_lab.runs import folder as runs
from rlhf_lab.runs import forkserver
from rlhf_lab.runs.disk import atomic_write, disk_error, files_in
from rlhf_lab.runs.folder import FAILURE, MANIFEST
from rlhf_lab.runs.manifest import precision_in
from rlhf_lab.runs.provenance import peak_memory_bytes, short_commit
from rlhf_lab.runs.run_directory import End, RunDirectory, run_lock
from rlhf_lab.runs.secrets import masked
from rlhf_lab.runs.signals import SignalHandler, listening
from rlhf_lab.runs.trackers.console import Console, counted
from rlhf_lab.training.checkpoint_files import saved_checkpoints, state_bytes
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import RUN_FAILED, StopRequested, UserError

Record = Mapping[str, Any]


def report_states(config: Config, folder: Path, console: Console) -> dict[str, Any]:
    """Print how many checkpoints a run with checkpoint.keep_every left, and their size. Returns the
    facts for its manifest."""
    found = state_bytes(folder / CHECKPOINTS)
    if found and config.checkpoint.keep_every:
        mean = sum(found.values()) / len(found)
        kept = f"{counted(len(found), 'checkpoint')} kept, {size(mean)} each"
        console.print(f"{kept}: `rlhf-lab fork {folder} round=R` continues from any round")
    return {"rounds": list(found), "bytes": list(found.values())}


def end_early(record: RunDirectory, error: BaseException) -> None:
    """Record how a run ended, and the traceback of a failure. If the disk or the folder is what
    failed, the error itself must still be seen."""
    ends: dict[type[BaseException], End] = {
        KeyboardInterrupt: "interrupted",
        StopRequested: "stopped",
    }
    state = ends.get(type(error), "failed")
    facts = {"error": masked(traceback.format_exc())} if state == "failed" else {}
    try:
        if facts and not disk_error(error):
            atomic_write(record.folder / FAILURE, facts["error"])
        record.finish(state, **facts)
    except OSError as second:
        error.add_note(f"{record.folder / MANIFEST} could not be updated either: {second}")


def with_hint(error: BaseException, stop: SignalHandler, folder: Path) -> BaseException:
    """The exception that ends a run's command. Of a run that was stopped: KeyboardInterrupt at
    Ctrl-C, else StopRequested, whose text names the checkpoint and how to resume the run."""
    if not isinstance(error, KeyboardInterrupt | StopRequested):
        if not isinstance(error, UserError):
            where = "" if disk_error(error) else f"; its traceback: {folder / FAILURE}"
            error.add_note(f"{RUN_FAILED}, {resume_hint(folder)}{where}")
        return error
    kind = KeyboardInterrupt if stop.is_interrupt else type(error)
    return kind(resume_hint(folder))


def resume_hint(folder: Path) -> str:
    """The newest checkpoint of a run that ended early, and how to resume it."""
    rounds = [int(path.name) for path in saved_checkpoints(folder / CHECKPOINTS)]
    newest = f"its newest checkpoint is of round {rounds[-1]}" if rounds else "it has no checkpoint"
    return f"{newest}; `rlhf-lab resume {shlex.quote(str(folder))}` continues it"


def resume_text(manifest: Mapping[str, Any], folder: Path) -> str:
    """Where a run that is resumed continues, if not at a checkpoint, and whether it computes in
    another way; else ""."""
    if "resumed" not in manifest:
        return ""
    return "\n".join(filter(None, (place_text(manifest, folder), other_precision(manifest))))


def other_precision(manifest: Mapping[str, Any]) -> str:
    """A warning if `auto` means another device or dtype than when the run began; else ""."""
    before, now = manifest["resumed"][-1].get("precision"), precision_in(manifest)
    if not before or before == now:
        return ""
    return (
        f"warning: it computed with {before} before, and goes on with {now}: its rounds compare "
        "with no run of one kind; name engine.device and engine.dtype to keep the former"
    )


def place_text(manifest: Mapping[str, Any], folder: Path) -> str:
    """Where it continues, if that is not at a checkpoint; else ""."""
    if "weights_digest" in manifest:
        return "it had trained to its end: its evaluation is made"
    if saved_checkpoints(folder / CHECKPOINTS):
        return ""
    return "it has no checkpoint: it begins again at round 0"


def train(
    config: Config,
    console: Console,
    facts: Record,
    loader: PolicyLoader | None = None,
    may_make: bool = True,
) -> Path:
    """One run: its folder holds the manifest, the config, metrics, weights and evaluation.

    Raises StopRequested on SIGTERM, SIGHUP or SIGUSR1, and KeyboardInterrupt on SIGINT, once a
    checkpoint is saved. A run that came to its pause (checkpoint.pause_round) is left for
    `output.resume=true`. may_make: whether artifacts that the run was made from before, and that
    are gone, are made again.
    """
    preload_processes(config)
    loader = loader or PolicyLoader(console)
    own = own_products(config, may_make)
    stages = Artifacts(config, console, loader, own)
    if not own.may_make:
        stages.sources()  # refused before the run has a folder
    folder = claim_folder(config)
    with run_lock(folder):
        return train_in(folder, config, console, facts, loader, stages)


def train_in(
    folder: Path,
    config: Config,
    console: Console,
    facts: Record,
    loader: PolicyLoader,
    stages: Artifacts,
) -> Path:
    """Train in a folder that no other process uses."""
    claim = RunDirectory.resume if config.output.resume else RunDirectory.create
    manifest = {**facts["manifest"], "settings": timing_settings(config)}
    record = claim(folder, manifest, facts["config_yaml"])
    if record.manifest["state"] == "finished":
        console.print(f"run {folder} has finished already: nothing to do")
        return folder
    console.print(f"run {folder}")
    if text := resume_text(record.manifest, folder):
        console.print(text)
    with console.run(folder):
        with listening() as stop:
            try:
                state = finish_run(config, console, facts, record, loader, stages, stop)
            except BaseException as error:
                # A scheduler that signals twice must not cut off the record of the end.
                with stop.shielded():
                    ending = with_hint(error, stop, folder)
                    end_early(record, ending)
                if ending is error:
                    raise
                raise ending from error
        (folder / FAILURE).unlink(missing_ok=True)  # of before it was resumed
        record.finish(state, peak_memory_bytes=peak_memory_bytes())
    return folder


def preload_processes(config: Config) -> None:
    """Begin the imports of other processes now, beside the work before they start."""
    if config.mode.executor is ExecutorKind.process or config.eval.every:
        forkserver.warm()


def finish_run(
    config: Config,
    console: Console,
    facts: Record,
    record: RunDirectory,
    loader: PolicyLoader,
    stages: Artifacts,
    stop: SignalHandler,
) -> End:
    """Train, unless the run had trained to its end before; then evaluate. Returns the state of the
    run: it may have come to its pause only."""
    folder, rounds = record.folder, config.run.num_rounds
    sources = stages.sources()
    with record.rewriting(PRODUCTS):
        stages.used.write(folder)
    if "weights_digest" not in record.manifest:
        code = short_commit(record.manifest)
        facts = {**facts, "run_id": record.manifest["run_id"], "commit": code}
        fork = facts.get("fork", Fork())
        record.forget_files(runs.EVALS)
        with EvaluationBeside(config, sources, folder, console.print) as beside:
            with stop.deferred():
                begun = train_past(
                    fork, config, record, console, facts, loader, stages, lambda: stop.is_requested
                )
                record.update(**begun)
                output = FolderOutput(config, record, console, facts, beside.offer)
                weights = train_policy(
                    config, sources, record, fork, output, loader, lambda: stop.is_requested
                )
            with console.phase("waiting for the evaluation beside the training"):
                beside.finish()
        if weights.version < rounds:
            validate(config, sources, loader, record, console, weights.version)
            console.print(f"paused at round {weights.version} of {rounds} (checkpoint.pause_round)")
            return "paused"
        # Which chunk waits for which version follows from the lengths of partial rollouts.
        is_planned = not (config.mode.segment_steps or config.mode.is_virtual)
        with console.phase("recording the end of the training"):
            ideal = planner.report_overlap(folder, console) if is_planned else {}
            states = report_states(config, folder, console)
            digest = weights_digest(weights)
            record.update(weights_digest=digest, checkpoints=states, **ideal)
    validate(config, sources, loader, record, console, rounds)
    if config.eval.versions(rounds):
        rows = evaluate_run(config, sources, loader, record, console, keeps_known=True)
        send_evaluation(config, folder, "train", rows, console)
    with console.phase("writing the card"), record.rewriting(f"{runs.POLICY}/{CARD}"):
        write_card(config, folder, folder / runs.POLICY, rounds)
    return "finished"


def train_policy(
    config: Config,
    sources: Sources,
    record: RunDirectory,
    fork: Fork,
    output: FolderOutput,
    loader: PolicyLoader,
    should_stop: Callable[[], bool],
) -> Weights:
    """Train into the run's folder, and save the policy if the run came to its end. Returns the last
    weights."""
    release_unused()
    model, tokenizer = loader.take(sources.policy, config.seed)
    settings = generation_settings(config)
    require_savable(model, tokenizer, sources.policy.path, settings)
    # The engine may cut the trained one into parts.
    shape = meta_model(model)
    state = state_at(fork.own or Past(config), record.folder)
    weights = learn(config, sources, (model, tokenizer), output, should_stop, state)
    if weights.version == config.run.num_rounds:
        policy = record.folder / runs.POLICY
        with output.phase("saving the policy"):
            if weights.adapters is not None:
                save_adapters(weights.adapters, shape, tokenizer, policy, settings)
            else:
                save_policy(with_parameters(shape, weights.state), tokenizer, policy, settings)
            record.record_files(files_in(policy))
    return weights


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
    if config.fork.is_on:
        label_ += f"-fork{config.fork.round}"
    return runs.new_folder(Path(config.output.root), label_)
