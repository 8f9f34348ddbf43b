"""What runs inside of vLLM's own processes: weights from a file, and exact greedy log-probs.

vLLM finds `register` by its entry point `vllm.general_plugins` in every process that it starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from safetensors import safe_open
from vllm.distributed.weight_transfer import WeightTransferEngine, WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import (
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.v1.sample.logits_processor import LogitsProcessor, process_dict_updates
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as SlotProcessor

from rlhf_lab.rollout.generators.vllm.requests import GREEDY_TEMPERATURE
from rlhf_lab.rollout.generators.vllm.weights import FILE_BACKEND


@dataclass
class FileInitInfo(WeightTransferInitInfo):  # type: ignore[misc]
    """shape: values that the policy's config must share with the served model's."""

    shape: dict[str, Any]


@dataclass
class FileUpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """path: a safetensors file with the whole policy, under the names of its checkpoint."""

    path: str


class FileWeightEngine(WeightTransferEngine[FileInitInfo, FileUpdateInfo]):  # type: ignore[misc]
    """Loads weights from a file that every worker can read: shared memory, or a shared folder.

    Layers are rebuilt as if from a checkpoint, so that what vLLM packs or ties is made anew.
    """

    init_info_cls = FileInitInfo
    update_info_cls = FileUpdateInfo

    def init_transfer_engine(self, init_info: FileInitInfo) -> None:
        """Refuse to take the weights of another model."""
        served = self.model_config.hf_config
        for key, value in init_info.shape.items():
            if (own := getattr(served, key, None)) != value:
                raise ValueError(
                    f"vLLM serves {self.model_config.model} with {key}={own}, the run's policy has "
                    f"{key}={value}: serve the model that the run trains"
                )

    def start_weight_update(self) -> None:
        """Take the layers back to where a checkpoint is loaded into them."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: FileUpdateInfo) -> None:
        """Load the whole file, tensor by tensor."""
        with safe_open(update_info.path, framework="pt", device="cpu") as file:
            self.model.load_weights((name, file.get_tensor(name)) for name in file.keys())  # noqa: SIM118

    def finish_weight_update(self) -> None:
        """Put the new weights where the kernels read them, a tied head's too."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)
        repack_tied_heads(self.model)

    def shutdown(self) -> None:
        """Nothing is held between loads."""


def repack_tied_heads(model: torch.nn.Module) -> None:
    """Make a head that shares the embedding's weight read the new one.

    On a CPU a head computes with a packed copy of its weight. Nothing is loaded under a tied head's
    own name, so vLLM would use the copy of the old weight without an error.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    modules = list(model.modules())
    heads = [module for module in modules if isinstance(module, ParallelLMHead)]
    others = {id(m.weight) for m in modules if hasattr(m, "weight") and m not in heads}
    for head in heads:
        if id(head.weight) in others:
            head.quant_method.process_weights_after_loading(head)


class GreedyTemperature(LogitsProcessor, SlotProcessor):  # type: ignore[misc]
    """Divides the logits of greedy requests, which vLLM does not, so that the log-probs of the
    likeliest tokens are those of the run's temperature too.

    vLLM has two model runners: V2 runs wherever Triton does, so on every CUDA device, V1 elsewhere.
    Each accepts only processors of its own base class, and whoever names the processor for a server
    does not know which one runs there: this class is both. V1 passes batches of rows, V2 the
    slots that requests keep.
    """

    def __init__(self, vllm_config: Any, place: Any, is_pin_memory: bool = False) -> None:
        """place: the device under V1, the state of the request slots under V2."""
        self._temperatures: dict[int, float] = {}
        if not isinstance(place, torch.device):
            self._by_slot = torch.ones(place.max_num_reqs, device=place.device)

    def is_argmax_invariant(self) -> bool:
        """V1 leaves processors out of greedy rows that answer True here."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """V1: which rows are greedy now."""
        process_dict_updates(
            self._temperatures, batch_update, lambda params, *_: greedy_temperature(params)
        )

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """V2: a slot belongs to another request now. Returns whether that one is greedy."""
        temperature = greedy_temperature(sampling_params)
        self._by_slot[req_idx] = 1.0 if temperature is None else temperature
        return temperature is not None

    def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        """logits: one row a request (V1), or one for each entry of ctx.expanded_idx_mapping."""
        if ctx is not None:
            return logits.div_(self._by_slot[ctx.expanded_idx_mapping].unsqueeze(1))
        for row, temperature in self._temperatures.items():
            logits[row] /= temperature
        return logits


def greedy_temperature(sampling_params: Any) -> float | None:
    """The temperature that log-probs of a greedy request are wanted at; None for other requests."""
    found: float | None = (sampling_params.extra_args or {}).get(GREEDY_TEMPERATURE)
    return found


def register() -> None:
    """Make the backend known, once a process."""
    if FILE_BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(FILE_BACKEND, FileWeightEngine)


register()
