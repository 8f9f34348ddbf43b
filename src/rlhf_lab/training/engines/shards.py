"""Sharded tensors in safetensors files, one per process, by torch.distributed.checkpoint.

Every process writes its own shards, beside training, into a folder that all of them share. One
process reads them again as whole tensors, whatever number of processes wrote them.
"""

from __future__ import annotations

import json
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
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from rlhf_lab.runs.disk import file_digest, files_in
from rlhf_lab.runs.reading import Unreadable, read_json
from rlhf_lab.training.engines.distributed import WITHIN_CALL, Processes

LAYOUT = "layout.json"
# Of each tensor: the flat one that it lies in, its first element there, and its shape.
Layout = dict[str, tuple[str, int, list[int]]]


class ShardFiles:
    """Writes the shards of this process. All ranks make the same calls."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._thread = ThreadPoolExecutor(1, "shards")
        # Of its own: training goes on with the others meanwhile.
        self._group: Any = None
        self._written: Future[dict[str, str]] | None = None

    def write(
        self, folder: Path, state: Mapping[str, Tensor], layout: Layout | None = None
    ) -> Future[dict[str, str]] | None:
        """Copy the shards to the host, and begin to write them into an empty folder. layout: the
        tensors that lie in flat ones, None if all are named themselves.

        Gives the digests of the files of all ranks, by their paths in the folder; None, with
        nothing written, if there is a rank that does not see the folder.
        """
        self.finish()
        if not all(self._processes.all_gather_object(folder.is_dir())):
            return None
        if layout is not None and self._processes.is_main:
            (folder / LAYOUT).write_text(json.dumps(layout), encoding="utf-8")
        self._group = self._group or dist.new_group(backend="gloo", timeout=WITHIN_CALL)
        writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
        saving = async_save(dict(state), storage_writer=writer, process_group=self._group)
        self._written = self._thread.submit(self._digests, cast("Future[Any]", saving), folder)
        return self._written

    def flat(self, part: Tensor) -> Tensor:
        """A flat tensor of which every rank has an equal part."""
        if part.device.type == "cpu":
            part = part.clone()  # torch would copy all of the memory that a view is of
        mesh = init_device_mesh(part.device.type, (self._processes.size,))
        return DTensor.from_local(part, mesh, [Shard(0)], run_check=False)

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
    return tensors_in(whole, folder)


def tensors_in(flat: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """The tensors that lie in flat ones, where there is a layout. Raises Unreadable."""
    if not (folder / LAYOUT).is_file():
        return flat
    found = {}
    for key, (buffer, offset, shape) in read_json(folder / LAYOUT, Layout).items():
        size = torch.Size(shape)
        found[key] = flat[buffer][offset : offset + size.numel()].reshape(size).clone()
    return found
