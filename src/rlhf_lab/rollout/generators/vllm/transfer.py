"""How a version reaches servers, by vLLM's own four calls: init, start, update, finish."""

from __future__ import annotations

import base64
import functools
import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from rlhf_lab.rollout.generators.vllm.http import Server, at_once
from rlhf_lab.rollout.generators.vllm.options import Sync, VLLMSampling
from rlhf_lab.rollout.generators.vllm.weights import WeightFiles
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError


class Transfer(Protocol):
    """Sends a version to all servers, under a name."""

    def send(self, weights: Weights, name: str) -> None: ...

    def close(self) -> None: ...


class Fleet:
    """Several servers as one to vLLM's own senders of weights. ranks: workers of each server.

    A call goes to all of them at once, since each waits for the others in the transfer.
    """

    def __init__(self, servers: Sequence[Server], ranks: Sequence[int]) -> None:
        self._servers = servers
        self._ranks = ranks
        self.name = ""

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """init_info: as for the only server; the ranks of later ones begin after the earlier's."""
        infos = []
        offset = 0
        for ranks in self._ranks:
            infos.append({**init_info})
            if "rank_offset" in init_info:
                infos[-1]["rank_offset"] = init_info["rank_offset"] + offset
            offset += ranks
        at_once(
            server.ask("POST", "/init_weight_transfer_engine", {"init_info": info})
            for server, info in zip(self._servers, infos, strict=True)
        )

    def start_weight_update(self) -> None:
        self._all("/start_weight_update")

    def update_weights(self, update_info: Any) -> None:
        self._all("/update_weights", {"update_info": as_json(update_info)})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """vLLM's senders know no version: it is the fleet's `name`."""
        self._all("/finish_weight_update", {"weight_version": weight_version or self.name})

    def _all(self, path: str, content: Any = None) -> None:
        at_once(server.ask("POST", path, content) for server in self._servers)


class FileTransfer:
    """Servers read a file, in this machine's memory or in a folder that all of them see."""

    def __init__(self, servers: Sequence[Server], folder: str, shape: dict[str, Any]) -> None:
        self._fleet = Fleet(servers, [1] * len(servers))
        self._fleet.init_weight_transfer_engine({"shape": shape})
        self._files = WeightFiles(folder)

    def send(self, weights: Weights, name: str) -> None:
        with self._files.written(weights, name) as path:
            self._fleet.start_weight_update()
            self._fleet.update_weights({"path": path})
            self._fleet.finish_weight_update(name)

    def close(self) -> None:
        """Nothing is kept between loads."""


class DeviceTransfer:
    """From this process's GPU to those of all servers, by vLLM's own sender: NCCL, or IPC where
    both are the same GPU. Versions that are on the GPU already do not pass through the host."""

    def __init__(
        self, servers: Sequence[Server], ranks: Sequence[int], options: VLLMSampling
    ) -> None:
        self._fleet = Fleet(servers, ranks)
        self._new_sender = functools.partial(self._start, options, sum(ranks))
        self._sender: Any = None
        require_gpu(options)
        from rlhf_lab.rollout.generators.vllm.source import VersionSource

        self._source = VersionSource()
        if options.sync is not Sync.ipc:
            self._sender = self._new_sender()

    def _start(self, options: VLLMSampling, num_workers: int) -> Any:
        from vllm.distributed.weight_transfer import WeightTransferTrainerFactory

        info = (
            ipc_info(self._source.weights)
            if options.sync is Sync.ipc
            else nccl_info(options, num_workers)
        )
        return WeightTransferTrainerFactory.trainer_init(
            info, client=self._fleet, source=self._source
        )

    def send(self, weights: Weights, name: str) -> None:
        self._source.weights = weights
        self._fleet.name = name
        if self._sender is None:
            self._sender = self._new_sender()
        self._sender.send_weights()

    def close(self) -> None:
        if self._sender is not None:
            self._sender.shutdown()


def require_gpu(options: VLLMSampling) -> None:
    """Refuse to send from a machine without a GPU, or by IPC from one of several trainers."""
    import torch

    if not torch.cuda.is_available():
        raise UserError(
            f"generator.sync={options.sync.value} takes {options.backend.upper()} for "
            f"generator.urls={options.urls[0]}, and this machine has no GPU to send from: pass "
            "generator.weights_folder=<folder of a shared file system>"
        )
    # vLLM's sender gathers handles over torch's default group, and the others would not come.
    group = torch.distributed
    if options.sync is Sync.ipc and group.is_initialized() and group.get_world_size() > 1:
        raise UserError(
            "generator.sync=ipc with several trainers: only one that trains alone shares its GPU; "
            "pass generator.sync=nccl"
        )


def nccl_info(options: VLLMSampling, num_workers: int) -> Any:
    """What vLLM's sender must know of a group of this process and all workers."""
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    return NCCLTrainerInitInfo(
        rank=0,
        master_address=options.nccl_host,
        master_port=options.nccl_port,
        world_size=1 + num_workers,
    )


def ipc_info(weights: Weights) -> Any:
    """What vLLM's sender must know to pass chunks, each in one buffer that takes any tensor."""
    from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

    info = IPCTrainerInitInfo(rank=0, packed=True)
    largest = max(tensor.nbytes for tensor in weights.state.values())
    return replace(info, packed_buffer_size_bytes=max(largest, info.packed_buffer_size_bytes))


def as_json(update_info: Any) -> Any:
    """An update as JSON can have it: handles of GPU memory are pickled, as vLLM's client does."""
    if isinstance(update_info, dict) and update_info.get("ipc_handles") is not None:
        handles = base64.b64encode(pickle.dumps(update_info["ipc_handles"])).decode("ascii")
        rest = {key: v for key, v in update_info.items() if key != "ipc_handles"}
        return {**rest, "ipc_handles_pickled": handles}
    return update_info
