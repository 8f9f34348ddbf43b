"""Composed configs of tiny runs, sharing one cache of stages for the whole session.

What takes seconds to import is imported where it is used: the process that hands out the tests to
the workers of pytest-xdist has no use for it.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys

# Read when the hub's client is imported: tests have no network, so it need not try five times.
os.environ["HF_HUB_OFFLINE"] = "1"
# Read when torch is imported: `auto` is the CPU in all tests but those of `make test-gpu`, so that
# digests and tests of several processes are the same on a machine with GPUs.
if not os.environ.get("RLHF_LAB_GPU_TESTS"):
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

# Read when numpy is imported: threads of small problems wait for each other, at the cost of both.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.no_skips import without_skip
from tests.support.shape_names import install

# Before the modules whose tensors it checks are imported.
install()

pytest_plugins = ["tests.support.cpu_seconds"]

if TYPE_CHECKING:
    from rlhf_lab.experiment.config.config import Config
    from rlhf_lab_analysis.tables.table import Tables
    from tests.support.in_memory import Result

    MakeConfig = Callable[..., Config]
    Finished = Callable[..., Result]
else:
    MakeConfig = Finished = Callable

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# The environment of TRL's losses has no hypothesis, and no test that needs it.
if importlib.util.find_spec("hypothesis"):
    from hypothesis import settings

    # A busy machine fails nobody: no deadline, and the same few examples each time.
    settings.register_profile(
        "fast", max_examples=15, deadline=None, derandomize=True, database=None
    )
    settings.register_profile("thorough", max_examples=200, deadline=None)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

# Tests that use one of these fixtures may train, draw, or start programs: they are not quick, nor
# are those that `make test` leaves out.
HEAVY = {"cache", "processes", "liveness", "costly", "kept_benchmark"}
# Tests that use one of these stay in one worker of pytest-xdist, file by file: what takes seconds
# to make is made once.
BY_FILE = {"processes", "finished", "costly", "config_of"}
LEFT_OUT = {"slow", "pages", "gpu", "oracle", "vllm", "slurm", "browser"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the fixtures that they use, and group them for the workers of pytest-xdist.
    Tests that measure whether a process lives are one group, so that they do not starve each other,
    and so are those of the kept benchmark, which is read once. Groups come first: the rest fills
    the other workers."""
    for item in items:
        if sys.platform != "linux" and item.get_closest_marker("linux"):
            item.add_marker(pytest.mark.skip(reason="needs Linux"))
        fixtures = set(getattr(item, "fixturenames", ()))
        if not fixtures & HEAVY and not LEFT_OUT & {mark.name for mark in item.iter_markers()}:
            item.add_marker("quick")
        lanes = [name for name in ("liveness", "kept_benchmark") if name in fixtures]
        if lanes or fixtures & BY_FILE:
            item.add_marker(pytest.mark.xdist_group(lanes[0] if lanes else item.path.stem))
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


if os.environ.get("RLHF_LAB_NO_SKIPS"):

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Where every package is there, as in `make test-adapters`, nothing may be skipped."""
        return without_skip((yield))


@pytest.fixture(autouse=True)
def default_interrupts() -> Iterator[None]:
    """Ctrl-C raises, as in a terminal: a shell's background jobs, and workers of pytest-xdist below
    them, begin with it ignored, and so would every process that a test starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def processes() -> None:
    """For tests that start processes: one worker runs those of a file, one after the other."""


@pytest.fixture
def liveness() -> None:
    """For tests that measure whether a process lives: no two of them run at once."""


@pytest.fixture
def costly() -> None:
    """For files whose tests train engines, draw, start programs or servers, take seconds in sum, or
    share what takes seconds to make: one worker runs them all."""


@pytest.fixture(scope="session")
def kept_benchmark() -> Tables:
    """The tracked benchmark's tables, which take half a minute to read: not to be changed."""
    from rlhf_lab_analysis.benchmark.kept import load_benchmark

    return load_benchmark()


@pytest.fixture(scope="session", autouse=True)
def quick_composition() -> None:
    """Hydra merges the files of each choice of groups once a session."""
    from tests.support.quick_hydra import quicken

    quicken()


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Bits depend on the number of threads: every test starts with one."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The products of stages, shared by the workers of pytest-xdist too: the cache has locks."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    return shared / "cache"


@pytest.fixture
def make_config(cache: Path, tmp_path: Path) -> MakeConfig:
    """make_config("mode=async", "run.passes=2") -> the checked config of a run of seconds."""

    def make(*overrides: str) -> Config:
        return tiny(*overrides, cache=cache, root=tmp_path / "runs")

    return make


@pytest.fixture
def config_of(tmp_path: Path) -> MakeConfig:
    """The same for tests that look at configs alone: what runs by it would find no folder for its
    stages."""

    def make(*overrides: str) -> Config:
        return tiny(*overrides, cache=Path("/dev/null/cache"), root=tmp_path / "runs")

    return make


def tiny(*overrides: str, cache: Path, root: Path) -> Config:
    """The checked config of a run of seconds below `root`, with its stages in `cache`."""
    from rlhf_lab.experiment.config.typed import typed
    from tests.support.composed import composed

    base = ["debug=tiny", f"output.cache={cache}", f"output.root={root}", "output.quiet=true"]
    return typed(composed(*base, *overrides))


@pytest.fixture
def finished(make_config: MakeConfig) -> Finished:
    """finished("mode=async") -> rows and digest of a run in memory, trained once a session."""
    from tests.support.in_memory import result_of

    def run(*overrides: str) -> Result:
        return result_of(make_config(*overrides))

    return run
