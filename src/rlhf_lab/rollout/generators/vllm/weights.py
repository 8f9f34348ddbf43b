"""Weights as files: where a version is written, and for how long."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlhf_lab.rollout.generators.vllm.options import FILE_BACKEND as FILE_BACKEND
from rlhf_lab.runs.disk import save_file
from rlhf_lab.types.data import Weights

SHARED_MEMORY = Path("/dev/shm")
PREFIX = "rlhf_lab_weights_"
OWN = re.compile(rf"{PREFIX}\d+_\w{{8}}")
ENDING = ".safetensors"
# Of a config; models that agree in these take each other's tensors.
SHAPE = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")


class WeightFiles:
    """One version at a time, in memory where it has room, or below a `parent`.

    A process that was killed while it wrote leaves its file behind: the next one removes it. The
    lock of a folder shows whether its process lives, in other containers too, where the number of a
    process is another.
    """

    def __init__(self, parent: str = "") -> None:
        self._parent = Path(parent) if parent else None
        if self._parent is not None:
            self._parent.mkdir(parents=True, exist_ok=True)
            return
        for place in (SHARED_MEMORY, Path(tempfile.gettempdir())):
            remove_left_behind(place)

    @contextmanager
    def written(self, weights: Weights, name: str) -> Iterator[str]:
        """The path of the version's file, which is deleted afterwards. Raises OSError with the path
        where it has no room."""
        parent = self._parent or roomy(sum(t.nbytes for t in weights.state.values()))
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}_", dir=parent))
        try:
            is_shared = self._parent is not None
            with contextlib.nullcontext() if is_shared else locked_folder(folder, fcntl.LOCK_EX):
                # Servers may run as another user.
                folder.chmod(0o755)
                path = folder / f"{name.replace('/', '-')}{ENDING}"
                save_file({key: t.detach().contiguous() for key, t in weights.state.items()}, path)
                yield str(path)
        finally:
            shutil.rmtree(folder)


def roomy(size: int) -> Path:
    """Shared memory where so many bytes can be written to it, or else the folder for temporary
    files: containers often have 64 MiB of shared memory."""
    if os.access(SHARED_MEMORY, os.W_OK) and shutil.disk_usage(SHARED_MEMORY).free > size:
        return SHARED_MEMORY
    return Path(tempfile.gettempdir())


@contextmanager
def locked_folder(folder: Path, kind: int) -> Iterator[None]:
    """Hold the lock of a folder. Raises OSError where it cannot be had."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)


def remove_left_behind(parent: Path) -> None:
    """Remove folders whose processes ended while they wrote. An empty one is perhaps about to be
    locked by its process."""
    for folder in parent.glob(f"{PREFIX}*"):
        if OWN.fullmatch(folder.name):
            # Its process lives, it is another user's, or it has just been removed.
            with (
                contextlib.suppress(OSError),
                locked_folder(folder, fcntl.LOCK_EX | fcntl.LOCK_NB),
            ):
                if any(folder.glob(f"*{ENDING}")):
                    shutil.rmtree(folder)


def shape_of(config: Any) -> dict[str, Any]:
    """What a policy's config must share with that of a model that takes its weights."""
    return {key: getattr(config, key) for key in SHAPE if hasattr(config, key)}
