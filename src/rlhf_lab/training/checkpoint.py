"""Checkpoints: weights, optimizer, queue, budget and ledger of a run between two rounds.

A checkpoint is the folder checkpoints/<rounds done>, which appears in one step with digests of its
files, all of them safetensors or JSON. There is no random state to save: every random number is
keyed by what it is used for.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rlhf_lab.runs.disk import CorruptFolder, atomic_folder, flush, remove_drafts, verify
from rlhf_lab.runs.jsonl import JsonlFile
from rlhf_lab.runs.reading import Unreadable, read_json
from rlhf_lab.runs.row_digests import EMPTY, cut_all
from rlhf_lab.training.checkpoint_files import (
    QUEUE,
    SHARDS,
    STATE,
    Snapshot,
    State,
    optimizer_file,
    read,
    saved_checkpoints,
    write_optimizer,
    write_rest,
    write_weights,
)
from rlhf_lab.training.checkpoint_options import CheckpointOptions
from rlhf_lab.types.data import Clock, Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.rollouts import Chunk

# Files of rows that checkpoints of 0.1 do not know.
NEWER_RECORDS = ("rollouts.jsonl",)


class Checkpoints:
    """The checkpoints of one run's folder."""

    _sealing: Future[None] | None = None

    def __init__(
        self,
        folder: Path,
        options: CheckpointOptions,
        records: Sequence[JsonlFile] = (),
        clock: Clock = time.monotonic,
    ) -> None:
        """records: the files beside the checkpoints' folder that rows are appended to."""
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder} is no folder, so that no state can be saved: move it away")
        self._folder = folder
        self._options = options
        self._records = {file.path.name: file for file in records}
        self._clock = clock
        self._saved_at = clock()
        self._saved_round = 0
        self._thread = ThreadPoolExecutor(1, "seal")
        remove_drafts(folder)

    def is_due(self, round_: int) -> bool:
        """Whether to save when `round_` rounds are done."""
        options = self._options
        by_round = options.rounds > 0 and round_ - self._saved_round >= options.rounds
        by_round = by_round or options.is_kept(round_)
        passed = self._clock() - self._saved_at
        return by_round or (options.minutes > 0 and passed >= 60 * options.minutes)

    @property
    def is_on(self) -> bool:
        return self._options.is_on

    def last_round(self, num_rounds: int) -> int:
        """Rounds done when the run ends for now: all, or those before its pause."""
        return min(self._options.pause_round or num_rounds, num_rounds)

    def save(self, snapshot: Snapshot) -> None:
        """Write a checkpoint, then delete the oldest ones. After an error the others are intact.

        Shards are written beside training, and the checkpoint appears after them.
        """
        self.finish()
        for file in self._records.values():
            if file.place.exists():
                flush(file.place)  # on disk before the checkpoint that counts its rows
        records = {name: asdict(file.extent()) for name, file in self._records.items()}
        folder = self._folder / f"{snapshot.round:08d}"
        if folder.exists():
            shutil.rmtree(folder)
        known: dict[str, str] = {}
        with ExitStack() as stack:
            draft = stack.enter_context(atomic_folder(folder, {"round": snapshot.round}, known))
            shards = write_optimizer(snapshot.optimizer, snapshot.writer, draft)
            write_rest(snapshot, records, draft)
            if shards is None:
                write_weights(snapshot.weights, draft)
            else:
                seal = partial(self._seal, stack.pop_all(), snapshot.weights, draft, shards, known)
                self._sealing = self._thread.submit(seal)
        self._saved_at, self._saved_round = self._clock(), snapshot.round
        if shards is None:
            self._prune()

    def finish(self) -> None:
        """Wait until the last checkpoint is whole. Raises the error of a process that could not
        write its shards."""
        if self._sealing is not None:
            sealing, self._sealing = self._sealing, None
            sealing.result()

    def settle(self, error: Exception) -> None:
        """Wait like `finish` where a run ends by an error, which names that of the checkpoint."""
        try:
            self.finish()
        except Exception as other:
            error.add_note(f"its last checkpoint was not completed: {other}")

    def _seal(
        self,
        begun: ExitStack,
        weights: Mapping[int, Weights],
        draft: Path,
        shards: Future[dict[str, str]],
        known: dict[str, str],
    ) -> None:
        """Let a checkpoint appear once the shards of all processes are there."""
        with begun:
            write_weights(weights, draft)
            known |= {f"{SHARDS}/{name}": digest for name, digest in shards.result().items()}
        self._prune()

    def _prune(self) -> None:
        saved = saved_checkpoints(self._folder)
        others = [path for path in saved if not self._options.is_kept(int(path.name))]
        for old in others[: -self._options.keep]:
            shutil.rmtree(old)

    def newest(
        self,
        chunk: Callable[[int], Chunk],
        say: Callable[[str], None],
        prepare: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> Snapshot | None:
        """The newest intact checkpoint, None if there is none. `say` reports damaged ones. See
        `read` for the others."""
        for folder in reversed(saved_checkpoints(self._folder)):
            try:
                verify(folder, (STATE, optimizer_file(folder), QUEUE))
                found = read(folder, chunk, prepare)
            except (CorruptFolder, Unreadable) as error:
                say(f"checkpoint {error}: using the one before it")
                continue
            self._saved_round = found.round
            return found
        return None

    def cut_records(self, round_: int) -> None:
        """Delete rows written after round `round_`, from which the run continues. Raises UserError
        if rows are missing that its checkpoint counted."""
        folder = self._folder / f"{round_:08d}"
        wanted = dict.fromkeys(self._records, EMPTY)
        if round_:
            wanted = read_json(folder / STATE, State).get("records", {})
        # No version that counted no rows of these wrote any.
        wanted = {name: EMPTY for name in NEWER_RECORDS if name in self._records} | wanted
        if missing := sorted(set(self._records) - set(wanted)):
            raise UserError(
                f"{folder} was saved by an older version, which did not count the rows of "
                f"{missing[0]}: go on with that version, or delete it to start from the beginning"
            )
        cut_all(self._folder.parent, wanted, folder)
