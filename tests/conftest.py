"""Composed configs of tiny runs, sharing one cache of stages for the whole session."""

from __future__ import annotations

import os

# Read when the hub's client is imported: tests have no network, so it need not try five times.
os.environ["HF_HUB_OFFLINE"] = "1"

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from quick_hydra import quicken

from rlhf_lab.config import Config, register, typed
from rlhf_lab.main import conf_folder

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

MakeConfig = Callable[..., Config]
quicken()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Bits depend on the number of threads: every test starts with one."""
    torch.set_num_threads(1)
    yield


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def make_config(cache: Path, tmp_path: Path) -> Iterator[MakeConfig]:
    """make_config("mode=async", "run.passes=2") -> the checked config of a run of seconds."""
    register()
    GlobalHydra.instance().clear()

    def make(*overrides: str) -> Config:
        base = ["debug=tiny", f"output.cache={cache}", f"output.root={tmp_path}/runs"]
        cfg = compose("config", [*base, "output.quiet=true", *overrides])
        return typed(cfg)

    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        yield make
