"""Which parts a job of a sweep has, and the seconds of a core that each of them takes."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from rlhf_lab.types.data import Clock

REST = "rest"
TOTAL = "total"
# The name of each part, the module of the function, and the function in it. The name of one that
# begins with INSIDE follows that of the part in which it is called.
INSIDE = " / "
PARTS = (
    ("config", "rlhf_lab.cli.main", "run_command"),
    ("start", "rlhf_lab.cli.train", "train"),
    ("training", "rlhf_lab.experiment.lifecycle", "train_policy"),
    ("evaluation", "rlhf_lab.experiment.lifecycle", "evaluate_run"),
    (" / samples", "rlhf_lab.rollout.generators.hf", "HFGenerator.generate"),
    (" / proxy", "rlhf_lab.rewards.model", "ModelScorer.score"),
    (" / judge", "rlhf_lab.rewards.limited", "SampleScorer.score"),
    (" / log-probs", "rlhf_lab.training.engines.engine", "TrainingEngine._read"),
    (" / update", "rlhf_lab.training.engines.engine", "TrainingEngine.update"),
    (" / prompts", "rlhf_lab.experiment.build", "build_eval_prompts"),
    (" / KL", "rlhf_lab.evaluation.evaluator", "distance_metrics"),
)


class Stopwatch:
    """Seconds by part; those of a part do not contain the parts within it."""

    def __init__(self, clock: Clock = time.process_time) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock
        self._open = [REST]
        self._since = clock()

    def stop(self) -> dict[str, float]:
        """The seconds of all parts until now, REST for what lies outside of them."""
        now = self._clock()
        self.seconds[self._open[-1]] = self.seconds.get(self._open[-1], 0.0) + now - self._since
        self._since = now
        return self.seconds

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the block for a part."""
        self.stop()
        self._open.append(self._open[-1] + name if name.startswith(INSIDE) else name)
        try:
            yield
        finally:
            self.stop()
            self._open.pop()

    def watch(self, name: str, owner: Any, attribute: str) -> None:
        """Count every call of a function for a part from now on."""
        function: Callable[..., Any] = getattr(owner, attribute)

        @functools.wraps(function)
        def timed(*args: Any, **keywords: Any) -> Any:
            with self.part(name):
                return function(*args, **keywords)

        setattr(owner, attribute, timed)


def watch_parts(stopwatch: Stopwatch) -> None:
    """Count the parts of a job that runs in this process."""
    for name, module, path in PARTS:
        *owners, attribute = path.split(".")
        owner = functools.reduce(getattr, owners, import_module(module))
        stopwatch.watch(name, owner, attribute)


def run_job(words: Sequence[str], result: Path) -> None:
    """Run `rlhf-lab WORDS` in this process, which is good for nothing else afterwards, and write
    the seconds of its parts to a file. Exits with the command's code if that is not 0."""
    sys.argv = ["rlhf-lab", *words]
    stopwatch = Stopwatch()
    watch_parts(stopwatch)
    if code := import_module("rlhf_lab.cli.main").main():
        sys.exit(code)
    spent = os.times()
    seconds = {**stopwatch.stop(), TOTAL: spent.user + spent.system}
    result.write_text(json.dumps(seconds), encoding="utf-8")
