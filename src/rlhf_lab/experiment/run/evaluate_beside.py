"""Evaluation beside the training: a separate process judges each version that the run keeps.

The versions travel through their files, so that it reads what `rlhf-lab evaluate` reads. The
trainer writes them and continues: it never waits for a row.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import Pipe, parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event
from typing import Any

from rlhf_lab.experiment.build.evaluator import build_evaluator
from rlhf_lab.experiment.build.policy import Sources
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.run.evaluate import DIGEST, known_rows, row_digest, version_judge
from rlhf_lab.rewards.fields import AUTO
from rlhf_lab.rollout.generator_main import portable
from rlhf_lab.runs import forkserver
from rlhf_lab.runs.child import exit_text, read_ahead, when_ended
from rlhf_lab.runs.folder import EVALS
from rlhf_lab.runs.jsonl import write_rows
from rlhf_lab.runs.saved_tensors import saved_versions

# Of the cores that trainer and generators want too, they get most.
NICENESS = 10


class EvaluationBeside:
    """The process that judges the versions of a run with eval.every, while the block runs; nothing
    for other runs.

    Rows stand in evals.jsonl as soon as they are made. What has none at the end, the last version
    among it, is left to the evaluation after the training: so is all that a process that failed did
    not judge.
    """

    def __init__(
        self, config: Config, sources: Sources, folder: Path, report: Callable[[str], None]
    ) -> None:
        self._config, self._sources, self._folder = config, sources, folder
        self._report = report
        rounds = config.run.num_rounds
        self._versions = set(config.eval.versions(rounds)) - {rounds} if config.eval.every else ()
        self._process: Any = None
        self._has_failed = False

    def __enter__(self) -> EvaluationBeside:
        if not self._versions:
            return self
        theirs, self._requests = Pipe(duplex=False)
        self._failures, failures = Pipe(duplex=False)
        # Signals reach the whole group; the trainer alone decides when it ends.
        self._process = forkserver.start(
            judge_offered,
            (theirs, failures, self._config, self._sources, self._folder),
            name="evaluation",
            daemon=True,
            ignores_signals=True,
        )
        theirs.close()
        failures.close()
        for version in saved_versions(self._folder):
            self.offer(version)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._requests.close()
            self._failures.close()

    def offer(self, version: int) -> None:
        """Have a version judged whose file is there; one that has its row already is not judged
        again. Returns at once."""
        if version in self._versions and self._is_at_work():
            with contextlib.suppress(OSError):  # a process that has ended is noticed next time
                self._requests.send(version)

    def finish(self) -> None:
        """Wait for the version that is being judged; no other one is begun."""
        if self._is_at_work():
            self._requests.close()
            self._process.join()
            self._is_at_work()

    def _is_at_work(self) -> bool:
        """Whether there is a process that works or has ended well. One that failed is reported
        once."""
        if self._process is None or self._has_failed:
            return False
        if self._failures.poll():
            try:
                error, text = self._failures.recv()
                self._fail(f"{type(error).__name__}: {error}\n{text}")
            except EOFError:
                self._process.join()
                if self._process.exitcode:
                    self._fail(exit_text(self._process.exitcode))
        return not self._has_failed

    def _fail(self, why: str) -> None:
        self._has_failed = True
        self._report(
            "warning: the evaluation beside the training failed; the training continues, and what "
            f"has no row by its end is judged then: {why}"
        )


def judge_offered(
    requests: Connection, failures: Connection, config: Config, sources: Sources, folder: Path
) -> None:
    """The process: judge the versions that are offered, in order, until the pipe is closed. The
    version at hand is judged to its end, unless the trainer has ended."""
    if (trainer := parent_process()) is not None:
        when_ended(trainer.sentinel, lambda: os._exit(1))
    os.nice(NICENESS)
    is_over = Event()
    offered = read_ahead(requests, is_over.set)
    try:
        judge = version_judge(build_evaluator(on_own_device(config), sources), config.eval, sources)
        rows = known_rows(config.eval, folder / EVALS, saved_versions(folder))
        while (version := offered.get()) is not None and not is_over.is_set():
            path = saved_versions(folder)[version]
            if version in rows and rows[version][DIGEST] == row_digest(config.eval, path):
                continue
            rows[version], _ = judge.judge(version, path, config.eval.prompts)
            write_rows(folder / EVALS, [rows[one] for one in sorted(rows)])
    except BaseException as error:
        failures.send(portable(error))
        raise SystemExit(1) from error


def on_own_device(config: Config) -> Config:
    """The config with all that evaluation computes on eval.device."""
    if (device := config.eval.device) == AUTO:
        return config
    return replace(
        config,
        engine=replace(config.engine, device=device),
        generator=replace(config.generator, device=device),
    )
