"""Sharded tensors in safetensors files, one per process, by torch.distributed.checkpoint.

Every process writes its own shards, beside training, into a folder that all of them share. One
process reads them again as whole tensors, whatever number of processes wrote them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save

from rlhf_lab.runs.atomic_folder import file_digest, files_in
from rlhf_lab.runs.reading import Unreadable
from rlhf_lab.training.engines.distributed import WITHIN_CALL, Processes


class ShardFiles:
    """Writes the shards of this process. All ranks make the same calls."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._thread = ThreadPoolExecutor(1, "shards")
        # Of its own: training goes on with the others meanwhile.
        self._group: Any = None
        self._written: Future[dict[str, str]] | None = None

    def write(self, folder: Path, state: Mapping[str, Tensor]) -> Future[dict[str, str]] | None:
        """Copy the shards to the host, and begin to write them into an empty folder.

        Gives the digests of the files of all ranks, by their paths in the folder; None, with
        nothing written, if there is a rank that does not see the folder.
        """
        self.finish()
        if not all(self._processes.all_gather_object(folder.is_dir())):
            return None
        self._group = self._group or dist.new_group(backend="gloo", timeout=WITHIN_CALL)
        writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
        saving = async_save(dict(state), storage_writer=writer, process_group=self._group)
        self._written = self._thread.submit(self._digests, cast("Future[Any]", saving), folder)
        return self._written

    def finish(self) -> None:
        """Wait until all ranks have written. Raises the error of a rank that could not."""
        if self._written is not None:
            self._written.result()
        self._written = None

    def _digests(self, saving: Future[Any], folder: Path) -> dict[str, str]:
        try:
            saving.result()
        except CheckpointException as error:
            raise next(iter(error.failures.values()))[0] from error
        everyone: list[Any] = [None] * self._processes.size
        dist.all_gather_object(everyone, self._own_digests(folder), group=self._group)
        for digests in everyone:
            if isinstance(digests, OSError):
                raise digests
        return {name: digest for digests in everyone for name, digest in digests.items()}

    def _own_digests(self, folder: Path) -> dict[str, str] | OSError:
        """Of this rank's part of the files; an error is for all ranks, which wait for this one."""
        try:
            paths = files_in(folder)[self._processes.rank :: self._processes.size]
            return {path.name: file_digest(path) for path in paths}
        except OSError as error:
            return error


def read_shards(folder: Path) -> dict[str, Tensor]:
    """The whole tensors of a folder, in memory of their own. Raises Unreadable."""
    try:
        reader = HuggingFaceStorageReader(str(folder))
        layout = reader.read_metadata().state_dict_metadata
        whole = {
            name: torch.empty(found.size, dtype=found.properties.dtype)
            for name, found in layout.items()
            if isinstance(found, TensorStorageMetadata)
        }
        with warnings.catch_warnings():
            # That one process reads is meant.
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            load(dict(whole), storage_reader=reader, no_dist=True)
    except (OSError, ValueError, KeyError, CheckpointException) as error:
        raise Unreadable(folder, f"its shards cannot be read ({error})") from error
    return whole
