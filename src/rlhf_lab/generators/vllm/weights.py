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

from rlhf_lab.types import Weights

FILE_BACKEND = "rlhf_lab_file"
SHARED_MEMORY = Path("/dev/shm")
# Of a config; models that agree in these take each other's tensors.
SHAPE = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")


class WeightFiles:
    """A folder for one version at a time, in memory where there is such a file system."""

    def __init__(self, parent: str = "") -> None:
        chosen = Path(parent) if parent else SHARED_MEMORY
        if parent:
            chosen.mkdir(parents=True, exist_ok=True)
        is_usable = bool(parent) or (chosen.is_dir() and os.access(chosen, os.W_OK))
        self.folder = Path(
            tempfile.mkdtemp(prefix="rlhf_lab_weights_", dir=chosen if is_usable else None)
        )
        # Servers may run as somebody else.
        self.folder.chmod(0o755)

    @contextmanager
    def written(self, weights: Weights, name: str) -> Iterator[str]:
        """The path of the version's file, which is gone afterwards."""
        path = self.folder / f"{name}.safetensors"
        try:
            save_file({key: t.detach().contiguous() for key, t in weights.state.items()}, path)
            yield str(path)
        finally:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def described(model: Any) -> Path:
    """A new folder with what vLLM must know of a model before it has weights: its config."""
    folder = Path(tempfile.mkdtemp(prefix="rlhf_lab_vllm_"))
    config = model.config
    before = config.architectures
    config.architectures = [type(model).__name__]
    try:
        config.save_pretrained(folder)
    finally:
        config.architectures = before
    return folder


def shape_of(config: Any) -> dict[str, Any]:
    """What a policy's config must share with that of a model that takes its weights."""
    return {key: getattr(config, key) for key in SHAPE if hasattr(config, key)}
