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
from rlhf_lab.runs.folder import EVALS, METRICS, POLICY, ROLLOUTS, SCHEDULE, TIMELINE, VALIDATION
from rlhf_lab.runs.jsonl import JsonlFile, JsonlTracker, read_rows
from rlhf_lab.runs.live.progress import TRAIN
from rlhf_lab.runs.reading import checked
from rlhf_lab.runs.saved_tensors import WEIGHTS, write_version
from rlhf_lab.runs.schema import Amount, RolloutSample
from rlhf_lab.runs.trackers.console import Bar, Console
from rlhf_lab.runs.trackers.mirrors import TrackedRun, open_mirrors
from rlhf_lab.runs.trackers.options import Tracker
from rlhf_lab.training.checkpoint import Checkpoints
from rlhf_lab.training.loop import Hooks
from rlhf_lab.types.data import Batch, Metrics, Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Group

CHECKPOINTS = "checkpoints"
FAILED_BATCH = "failed_batch"
RECORDS = (METRICS, SCHEDULE, TIMELINE, ROLLOUTS)
Row = Mapping[str, Any]
Clocked = TypedDict("Clocked", {"seconds/wall": Amount})


class FolderOutput:
    """The output of a run in its folder, with a progress bar on the console and the trackers that
    the config names.

    facts: `resolved`, the config as plain data for the trackers that record it, `run_id`, and the
    `commit` of the code. kept(version): called when a version is in its file. note(name=fact):
    records facts about the run.
    """

    def __init__(
        self,
        config: Config,
        folder: Path,
        console: Console,
        facts: Mapping[str, Any],
        kept: Callable[[int], None] = lambda _: None,
        note: Callable[..., None] = lambda **_: None,
    ) -> None:
        self._config = config
        self._folder = folder
        self._console = console
        self._kept = kept
        self.report, self.phase, self.note = console.print, console.phase, note
        self._run = TrackedRun(folder, facts["resolved"], facts["run_id"], commit=facts["commit"])
        refuse_occupied(folder)
        self.checkpoints = Checkpoints(folder / CHECKPOINTS, config.checkpoint, RECORDS)

    @contextmanager
    def opened(self, begin: int) -> Iterator[tuple[Hooks, float]]:
        """Cut the files back to the first `begin` rounds and append to them."""
        config, folder, console = self._config, self._folder, self._console
        wall, mirrored = progress(folder)
        self.checkpoints.cut_records(begin)
        with ExitStack() as stack:
            mirrors = open_mirrors(config.tracker, self._run, mirrored, console.print)
            trackers = [JsonlTracker(folder / METRICS), *mirrors]
            for tracker in trackers:
                stack.callback(tracker.close)
            bar = stack.enter_context(console.stage(TRAIN, total=config.run.num_rounds))
            bar.advance(begin)
            bar.enter("start")
            hooks = Hooks(
                log=logger(trackers, bar),
                record=recorder(folder, stack),
                save=saver(folder, kept_versions(config), self._kept),
                keep_batch=batch_keeper(folder),
                enter=bar.enter,
                keep_samples=sample_keeper(config, folder, mirrors, stack),
            )
            yield hooks, wall


def refuse_occupied(folder: Path) -> None:
    """Raise UserError where something else has the name of a file that the run writes, before the
    run starts."""
    for name in (WEIGHTS, POLICY):
        path = folder / name
        if os.path.lexists(path) and not path.is_dir():
            raise UserError(f"{path} is no folder: move it away, the run writes one there")
    for name in (METRICS, SCHEDULE, TIMELINE, ROLLOUTS, EVALS, VALIDATION, "samples.jsonl"):
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


def recorder(folder: Path, stack: ExitStack) -> Callable[[Sequence[Row], Sequence[Row]], None]:
    """Write down the schedule, and when what happened; the files close with the stack."""
    files = [JsonlFile(folder / name) for name in (SCHEDULE, TIMELINE)]
    for file in files:
        stack.callback(file.close)

    def record(*rows: Sequence[Row]) -> None:
        for file, part in zip(files, rows, strict=True):
            file.append(*part)

    return record


def sample_keeper(
    config: Config, folder: Path, mirrors: Sequence[Tracker], stack: ExitStack
) -> Callable[[Sequence[RolloutSample]], None]:
    """Write down some samples of a round, and send them to the mirrors; the file closes with the
    stack."""
    if not config.tracker.samples:
        return lambda _: None
    file = JsonlFile(folder / ROLLOUTS)
    stack.callback(file.close)

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


def saver(folder: Path, keep: set[int], kept: Callable[[int], None]) -> Callable[[Weights], None]:
    """Keep the versions that will be evaluated."""
    weights_folder = folder / WEIGHTS
    weights_folder.mkdir(exist_ok=True)
    remove_drafts(weights_folder)

    def save(weights: Weights) -> None:
        if weights.version not in keep:
            return
        write_version(weights, weights_folder / f"{weights.version:06d}")
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
