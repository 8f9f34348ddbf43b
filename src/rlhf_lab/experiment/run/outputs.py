"""What a run writes into its folder while it trains: metrics, schedule, timeline, samples, kept
weights, checkpoints, and a batch that could not be trained on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from rlhf_lab.evaluation.options import Validate
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.runs.disk import remove_drafts, save_file
from rlhf_lab.runs.folder import (
    EVALS,
    GROWING,
    METRICS,
    POLICY,
    ROLLOUTS,
    SCHEDULE,
    TIMELINE,
    VALIDATION,
)
from rlhf_lab.runs.jsonl import JsonlFile, JsonlTracker, read_rows
from rlhf_lab.runs.live.progress import TRAIN
from rlhf_lab.runs.reading import checked
from rlhf_lab.runs.run_directory import RunDirectory
from rlhf_lab.runs.saved_tensors import WEIGHTS, write_version
from rlhf_lab.runs.schema import Amount, RolloutSample
from rlhf_lab.runs.trackers.console import Bar, Console
from rlhf_lab.runs.trackers.mirrors import TrackedRun, open_mirrors
from rlhf_lab.runs.trackers.options import Tracker
from rlhf_lab.training.checkpoint import Checkpoints
from rlhf_lab.training.loop import Hooks
from rlhf_lab.types.data import Batch, Metrics, Weights
from rlhf_lab.types.errors import RecordChanged, StopRequested, UserError
from rlhf_lab.types.samples import Group

CHECKPOINTS = "checkpoints"
FAILED_BATCH = "failed_batch"
Row = Mapping[str, Any]
Clocked = TypedDict("Clocked", {"seconds/wall": Amount})


class FolderOutput:
    """The output of a run in its folder, with a progress bar on the console and the trackers that
    the config names.

    facts: `resolved`, the config as plain data for the trackers that record it, `run_id`, and the
    `commit` of the code. record: of the run, which gets the sums of what is written. kept(version):
    called when a version is in its file.
    """

    def __init__(
        self,
        config: Config,
        record: RunDirectory,
        console: Console,
        facts: Mapping[str, Any],
        kept: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._config = config
        self._record, self._folder = record, record.folder
        self._console = console
        self._kept = kept
        self.report, self.phase, self.note = console.print, console.phase, record.update
        folder = record.folder
        self._run = TrackedRun(folder, facts["resolved"], facts["run_id"], commit=facts["commit"])
        refuse_occupied(folder)
        self._files = {name: JsonlFile(folder / name) for name in GROWING}
        self.checkpoints = Checkpoints(
            folder / CHECKPOINTS, config.checkpoint, tuple(self._files.values())
        )

    @contextmanager
    def opened(self, begin: int) -> Iterator[tuple[Hooks, float]]:
        """Cut the files back to the first `begin` rounds and append to them. Raises RecordChanged
        at the end of a round, whose checkpoint is saved, if another process changed one."""
        config, folder, console = self._config, self._folder, self._console
        self._record.forget_files(*GROWING)
        wall, mirrored = progress(folder)
        self.checkpoints.cut_records(begin)
        with ExitStack() as stack:
            for file in self._files.values():
                stack.callback(file.close)
            mirrors = open_mirrors(config.tracker, self._run, mirrored, console.print)
            trackers = [JsonlTracker(self._files[METRICS]), *mirrors]
            for tracker in trackers:
                stack.callback(tracker.close)
            bar = stack.enter_context(console.stage(TRAIN, total=config.run.num_rounds))
            bar.advance(begin)
            bar.enter("start")
            hooks = Hooks(
                log=logger(trackers, bar),
                record=recorder(self._files[SCHEDULE], self._files[TIMELINE]),
                save=saver(self._record, kept_versions(config), self._kept),
                keep_batch=batch_keeper(folder),
                should_stop=self._is_changed,
                enter=bar.enter,
                keep_samples=sample_keeper(config, self._files[ROLLOUTS], mirrors),
            )
            try:
                yield hooks, wall
            except StopRequested:
                self._require_unchanged()
                raise
            else:
                self._require_unchanged()
            finally:
                sums = {name: file.extent() for name, file in self._files.items()}
                self._record.note_files({name: one for name, one in sums.items() if one.size})

    def _is_changed(self) -> bool:
        return any(file.change for file in self._files.values())

    def _require_unchanged(self) -> None:
        found = []
        for file in self._files.values():
            file.check()
            remedy = f"restore its {file.extent().rows} rows from a copy"
            if file.place != file.path:
                remedy = f"all its rows are in {file.place}: move that to {file.path}"
            if file.change:
                found.append(f"{file.path} {file.change} while the run wrote it: {remedy}")
        if found:
            raise RecordChanged("; ".join(found))


def refuse_occupied(folder: Path) -> None:
    """Raise UserError where something else has the name of a file that the run writes, before the
    run starts."""
    for name in (WEIGHTS, POLICY):
        path = folder / name
        if os.path.lexists(path) and not path.is_dir():
            raise UserError(f"{path} is no folder: move it away, the run writes one there")
    for name in (*GROWING, EVALS, VALIDATION, "samples.jsonl"):
        path = folder / name
        if os.path.lexists(path) and not path.is_file():
            raise UserError(f"{path} is no file: move it away, the run writes one there")


def progress(folder: Path) -> tuple[float, int]:
    """Wall-clock seconds that had passed by the last row, and how many rows the mirrors have."""
    rows = read_rows(folder / METRICS)
    wall = checked(rows[-1], Clocked, folder / METRICS)["seconds/wall"] if rows else 0.0
    return wall, len(rows)


def logger(trackers: Sequence[Tracker], bar: Bar) -> Callable[[Metrics, int], None]:
    """Write a round everywhere, and count it. What a run shows is read from its files."""

    def log(metrics: Metrics, round_: int) -> None:
        for tracker in trackers:
            tracker.log(metrics, round_)
        bar.advance(1)

    return log


def recorder(*files: JsonlFile) -> Callable[[Sequence[Row], Sequence[Row]], None]:
    """Write down the schedule, and when what happened."""
    for file in files:
        file.open()

    def record(*rows: Sequence[Row]) -> None:
        for file, part in zip(files, rows, strict=True):
            file.append(*part)

    return record


def sample_keeper(
    config: Config, file: JsonlFile, mirrors: Sequence[Tracker]
) -> Callable[[Sequence[RolloutSample]], None]:
    """Write down some samples of a round, and send them to the mirrors."""
    if not config.tracker.samples:
        return lambda _: None
    file.open()

    def keep(samples: Sequence[RolloutSample]) -> None:
        file.append(*(sample.row() for sample in samples))
        for mirror in mirrors:
            mirror.log_samples(samples)

    return keep


def kept_versions(config: Config) -> set[int]:
    """The versions that will be read again: those that are evaluated, where the run pauses, and the
    last one if it is to be validated."""
    rounds = config.run.num_rounds
    versions = set(config.eval.versions(rounds))
    if config.checkpoint.pause_round:
        versions.add(config.checkpoint.pause_round)
    if config.eval.validate is not Validate.none:
        versions.add(rounds)
    return versions


def saver(
    record: RunDirectory, keep: set[int], kept: Callable[[int], None]
) -> Callable[[Weights], None]:
    """Keep the versions that will be evaluated."""
    weights_folder = record.folder / WEIGHTS
    weights_folder.mkdir(exist_ok=True)
    remove_drafts(weights_folder)

    def save(weights: Weights) -> None:
        if weights.version not in keep:
            return
        record.record_files(write_version(weights, weights_folder / f"{weights.version:06d}"))
        kept(weights.version)

    return save


def batch_keeper(folder: Path) -> Callable[[Batch, Sequence[Group], str], None]:
    """Save a batch that could not be trained on: its tensors, its texts, and why."""

    def keep_batch(batch: Batch, groups: Sequence[Group], why: str) -> None:
        # Tensors may be one and the same, which the file format refuses.
        tensors = {name: tensor.clone().contiguous() for name, tensor in vars(batch).items()}
        save_file(tensors, folder / f"{FAILED_BATCH}.safetensors")
        trained = [groups[index] for index in sorted(set(batch.group_B.tolist()))]
        rows = [
            {
                "uid": group.prompt.example.uid,
                "prompt": group.prompt.example.prompt,
                "samples": [sample.text for sample in group.samples],
                "rewards": [repr(reward) for reward in group.rewards],
            }
            for group in trained
        ]
        text = json.dumps({"why": why, "groups": rows}, indent=1)
        (folder / f"{FAILED_BATCH}.json").write_text(text, encoding="utf-8")

    return keep_batch
