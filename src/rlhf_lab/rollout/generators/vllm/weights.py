"""Weights as files: where a version is written, and for how long."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from rlhf_lab.rollout.generators.vllm.options import FILE_BACKEND as FILE_BACKEND
from rlhf_lab.types.data import Weights

SHARED_MEMORY = Path("/dev/shm")
PREFIX = "rlhf_lab_weights_"
# Of a config; models that agree in these take each other's tensors.
SHAPE = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")


class WeightFiles:
    """One version at a time, in memory where there is such a file system, or below a `parent`.

    A process that was killed while it wrote leaves its file behind: the next one removes it.
    """

    def __init__(self, parent: str = "") -> None:
        self._parent = Path(parent) if parent else memory()
        self._parent.mkdir(parents=True, exist_ok=True)
        if not parent:
            remove_left_behind(self._parent)

    @contextmanager
    def written(self, weights: Weights, name: str) -> Iterator[str]:
        """The path of the version's file, which is deleted afterwards."""
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}_", dir=self._parent))
        try:
            # Servers may run as somebody else.
            folder.chmod(0o755)
            path = folder / f"{name.replace('/', '-')}.safetensors"
            save_file({key: t.detach().contiguous() for key, t in weights.state.items()}, path)
            yield str(path)
        finally:
            shutil.rmtree(folder)


def memory() -> Path:
    """Where files are in memory, or else the folder for temporary ones."""
    is_usable = SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK)
    return SHARED_MEMORY if is_usable else Path(tempfile.gettempdir())


def remove_left_behind(parent: Path) -> None:
    """Remove files of processes of this machine that are no more."""
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            os.kill(int(folder.name.removeprefix(PREFIX).split("_")[0]), 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except PermissionError:
            continue  # it lives, and is somebody else's


def shape_of(config: Any) -> dict[str, Any]:
    """What a policy's config must share with that of a model that takes its weights."""
    return {key: getattr(config, key) for key in SHAPE if hasattr(config, key)}
