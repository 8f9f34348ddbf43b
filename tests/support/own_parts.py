"""A plugin for tests: a module with one part of each group, written into a folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlhf_lab.experiment.config import plugins
from rlhf_lab.experiment.config.keys import sections
from rlhf_lab.experiment.config.own_parts import own_class

MODULE = "parts_of_a_test"
SOURCE = '''
from dataclasses import dataclass
from typing import Any, ClassVar

from rlhf_lab.algos.corrections.proximal import NoCorrection
from rlhf_lab.algos.rloo import RLOO
from rlhf_lab.rewards.limited import OnError, SampleScorer
from rlhf_lab.rewards.options import RewardOptions
from rlhf_lab.runs.trackers.options import Tracker, TrackerOptions
from rlhf_lab.rollout.generators.options import HFSampling
from rlhf_lab.runs.trackers.options import TrackerOptions
from rlhf_lab.tasks.arithmetic import Arithmetic
from rlhf_lab.training.engines.options import SingleEngineOptions
from rlhf_lab.types import limits

PARTS = {
    "algo": {"halved": f"{__name__}:Halved"},
    "correction": {"unchanged": f"{__name__}:Unchanged"},
    "task": {"sums": f"{__name__}:Sums"},
    "reward": {"brief": f"{__name__}:Brief"},
    "generator": {"copied": f"{__name__}:Copied"},
    "engine": {"alone": f"{__name__}:Alone"},
    "tracker": {"lines": f"{__name__}:Lines"},
}


@dataclass(frozen=True)
class Halved(RLOO):
    """RLOO with a factor."""

    name: str = limits.name("halved")
    factor: float = limits.share(0.5, about="Factor of the credit.")


@dataclass(frozen=True)
class Unchanged(NoCorrection):
    """No correction."""

    name: str = limits.name("unchanged")


@dataclass(frozen=True)
class Sums(Arithmetic):
    """Sums."""

    name: str = limits.name("sums")


def brevity(example: Any, text: str, finished: bool) -> float:
    return -float(len(text))


@dataclass(frozen=True)
class Brief(RewardOptions):
    """The length, negated."""

    name: str = limits.name("brief")

    def build(self, context: Any) -> SampleScorer:
        return SampleScorer(brevity, 0.0, OnError.stop)


@dataclass(frozen=True)
class Copied(HFSampling):
    """As by transformers."""

    name: str = limits.name("copied")


@dataclass(frozen=True)
class Alone(SingleEngineOptions):
    """As one process."""

    name: str = limits.name("alone")


class LinesTracker(Tracker):
    def __init__(self, path: Any) -> None:
        self._file = path.open("a")

    def log(self, metrics: Any, step: int) -> None:
        self._file.write(f"{step}\\n")

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True)
class Lines(TrackerOptions):
    """A line for each round."""

    name: str = limits.name("lines")

    def open(self, run: Any) -> LinesTracker:
        return LinesTracker(run.folder / "lines.txt")
'''


def write_plugin(folder: Path, source: str = SOURCE, module: str = MODULE) -> Path:
    """The file of a module with this source."""
    path = folder / f"{module}.py"
    path.write_text(source, encoding="utf-8")
    return path


@contextmanager
def no_plugins(*modules: str) -> Iterator[None]:
    """Forget plugins, and these modules, before and after the block."""
    saved = sys.path[:]

    def forget() -> None:
        plugins._parts.clear()
        plugins._modules.clear()
        own_class.cache_clear()
        sections.cache_clear()
        for module in modules:
            sys.modules.pop(module, None)

    forget()
    try:
        yield
    finally:
        forget()
        sys.path[:] = saved
