"""What is called of vLLM's senders of weights is what vLLM has; nothing here needs a GPU."""

from __future__ import annotations

import base64
import inspect
import pickle
from dataclasses import fields
from typing import Any

import pytest
import torch

from rlhf_lab.rollout.generators.vllm.options import Sync, VLLMSampling
from rlhf_lab.rollout.generators.vllm.transfer import Fleet, as_json, ipc_info, nccl_info
from rlhf_lab.types.data import Weights

pytestmark = pytest.mark.vllm


def test_a_fleet_takes_every_call_of_vllms_client() -> None:
    from vllm.distributed.weight_transfer.clients import HTTPVLLMWeightSyncClient

    for name in (
        "init_weight_transfer_engine",
        "start_weight_update",
        "update_weights",
        "finish_weight_update",
    ):
        theirs = inspect.signature(getattr(HTTPVLLMWeightSyncClient, name)).parameters
        assert list(inspect.signature(getattr(Fleet, name)).parameters) == list(theirs), name


def test_senders_are_made_from_what_they_need() -> None:
    from vllm.distributed.weight_transfer import WeightTransferTrainerFactory
    from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerWeightTransferEngine
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerWeightTransferEngine

    made = inspect.signature(WeightTransferTrainerFactory.trainer_init).parameters
    assert {"client", "source"} <= set(made)
    options = VLLMSampling(
        urls=["http://gpu-1:8000"], sync=Sync.nccl, nccl_host="gpu-0", nccl_port=29611
    )
    info = nccl_info(options, num_workers=3)
    assert (info.rank, info.world_size, info.master_port) == (0, 4, 29611)
    assert info.master_address == "gpu-0"
    weights = Weights(0, {"small": torch.zeros(3), "large": torch.zeros(7, dtype=torch.bfloat16)})
    assert ipc_info(weights).packed_buffer_size_bytes > 14
    assert ipc_info(weights).packed
    for engine, own in (
        (NCCLTrainerWeightTransferEngine, info),
        (IPCTrainerWeightTransferEngine, ipc_info(weights)),
    ):
        assert isinstance(own, engine.init_info_cls)
        assert callable(engine.send_weights)
        assert callable(engine.shutdown)


def test_one_buffer_of_an_ipc_transfer_takes_the_largest_tensor() -> None:
    from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

    usual = IPCTrainerInitInfo(rank=0).packed_buffer_size_bytes
    huge = torch.zeros(1).expand(usual // 4 + 1)
    assert ipc_info(Weights(0, {"huge": huge})).packed_buffer_size_bytes == usual + 4


def test_handles_of_memory_travel_as_vllms_own_client_sends_them() -> None:
    from vllm.distributed.weight_transfer.clients import _json_safe_update_payload
    from vllm.distributed.weight_transfer.ipc_engine import IPCWeightTransferUpdateInfo

    info: dict[str, Any] = {"names": ["a"], "ipc_handles": {"GPU-1": (1, "x")}, "shapes": [[2]]}
    own, theirs = as_json(info), _json_safe_update_payload(info)
    assert own == theirs
    assert pickle.loads(base64.b64decode(own["ipc_handles_pickled"])) == info["ipc_handles"]
    assert as_json({"path": "x"}) == {"path": "x"}
    assert own.keys() <= {field.name for field in fields(IPCWeightTransferUpdateInfo)}
