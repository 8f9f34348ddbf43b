"""Composed configs of tiny runs, sharing one cache of stages for the whole session."""

from __future__ import annotations

import os

# Read when the hub's client is imported: tests have no network, so it need not try five times.
os.environ["HF_HUB_OFFLINE"] = "1"

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from composed import composed
from in_memory import Result, result_of

from rlhf_lab.config import Config, typed

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

MakeConfig = Callable[..., Config]
Finished = Callable[..., Result]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Bits depend on the number of threads: every test starts with one."""
    torch.set_num_threads(1)
    yield


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
    stages. Tests that use neither this nor a fixture that trains are quick."""

    def make(*overrides: str) -> Config:
        return tiny(*overrides, cache=Path("/dev/null/cache"), root=tmp_path / "runs")

    return make


def tiny(*overrides: str, cache: Path, root: Path) -> Config:
    """The checked config of a run of seconds below `root`, with its stages in `cache`."""
    base = ["debug=tiny", f"output.cache={cache}", f"output.root={root}", "output.quiet=true"]
    return typed(composed(*base, *overrides))


@pytest.fixture
def finished(make_config: MakeConfig) -> Finished:
    """finished("mode=async") -> rows and digest of a run in memory, trained once a session."""

    def run(*overrides: str) -> Result:
        return result_of(make_config(*overrides))

    return run
