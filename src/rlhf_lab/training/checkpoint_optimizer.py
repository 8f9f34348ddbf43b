"""The state of an engine in a checkpoint: one file of whole tensors, or a file of every process."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

from torch import Tensor

from rlhf_lab.runs.disk import save_file
from rlhf_lab.runs.saved_tensors import read_tensors
from rlhf_lab.types.protocols import ShardWriter

OPTIMIZER = "optimizer.safetensors"
# In the place of OPTIMIZER where processes write their shards: those, and what is not sharded.
# Versions that do not know them miss OPTIMIZER, and do not take the checkpoint for a whole one.
SHARDS = "shards"
UNSHARDED = "unsharded.safetensors"


def write_optimizer(
    optimizer: Mapping[str, Tensor], writer: ShardWriter | None, draft: Path
) -> Future[dict[str, str]] | None:
    """Write the state, or let a writer begin to: the digests of its shards once they are there."""
    if writer is not None:
        folder = draft / SHARDS
        folder.mkdir()
        if (begun := writer.write_shards(folder)) is not None:
            whole, digests = begun
            save_file(whole, draft / UNSHARDED)
            return digests
        folder.rmdir()
        warnings.warn(
            f"not every trainer sees {draft.parent}: checkpoints are gathered by the first one, "
            "which takes longer; name a folder that all hosts share by output.dir",
            stacklevel=2,
        )
        optimizer = writer.state()
    save_file(optimizer, draft / OPTIMIZER)
    return None


def optimizer_file(folder: Path) -> str:
    """The file that a checkpoint must have, with shards beside it or without."""
    return UNSHARDED if (folder / SHARDS).is_dir() else OPTIMIZER


def read_optimizer(folder: Path) -> dict[str, Tensor]:
    """The state as whole tensors, whoever wrote it. Raises Unreadable."""
    state = owned(read_tensors(folder / optimizer_file(folder)))
    if (folder / SHARDS).is_dir():
        from rlhf_lab.training.engines.shards import read_shards  # slow to import

        state |= read_shards(folder / SHARDS)
    return state


def owned(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies in memory of their own: kernels may round differently on a file's unaligned memory."""
    return {name: tensor.clone() for name, tensor in tensors.items()}
