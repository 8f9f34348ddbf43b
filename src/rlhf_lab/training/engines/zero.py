"""Where DeepSpeed's stages keep tensors: in one piece, in flat buffers, or in parts of parameters.

Only what all processes do together crosses between them; nothing is imported before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from rlhf_lab.training.engines.parameter_backend import WEIGHT


class ZeroStorage(Protocol):
    """Whole tensors by parameter, read and written by all processes together; and this process's
    own parts, to be changed in place."""

    def optimizer_parts(self) -> Iterator[str]: ...

    def read(self, parameter: Any, part: str) -> Tensor: ...

    def write(self, parameter: Any, part: str, value: Tensor) -> None: ...

    def part(self, parameter: Any) -> Tensor:
        """What forward passes read of the parameter, as far as this process holds it."""
        ...

    def own(self, value: Tensor, like: Tensor) -> Tensor:
        """This process's part of a whole tensor."""
        ...

    def settle(self) -> None:
        """Give up whole copies, which would be stale once the parts change."""
        ...


class WholeStorage:
    """Stage 0: every process has everything, in the optimizer that it was given."""

    def __init__(self, engine: Any) -> None:
        self._state = engine.optimizer.state

    def optimizer_parts(self) -> Iterator[str]:
        yield from parts_of(self._state)

    def read(self, parameter: Any, part: str) -> Tensor:
        held: Tensor = parameter if part == WEIGHT else self._state[parameter][part]
        return cloned(held)

    def write(self, parameter: Any, part: str, value: Tensor) -> None:
        if part == WEIGHT:
            parameter.data.copy_(value)
        else:
            device = parameter.device if value.dim() else value.device
            self._state[parameter][part] = value.to(device).clone()

    def part(self, parameter: Any) -> Tensor:
        return whole(parameter)

    def own(self, value: Tensor, like: Tensor) -> Tensor:
        return value

    def settle(self) -> None:
        pass


class FlatBufferStorage:
    """Stages 1 and 2: the optimizer works on a part of one flat float32 copy of all weights."""

    def __init__(self, engine: Any) -> None:
        self._optimizer = engine.optimizer

    def _flat(self) -> list[Tensor]:
        return [p for group in self._optimizer.optimizer.param_groups for p in group["params"]]

    def optimizer_parts(self) -> Iterator[str]:
        yield from parts_of(self._optimizer.optimizer.state)

    def read(self, parameter: Any, part: str) -> Tensor:
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        if part == WEIGHT:
            return cloned(safe_get_full_fp32_param(parameter))
        if part == "step":
            return cloned(self._optimizer.optimizer.state[self._flat()[0]][part])
        return cloned(safe_get_full_optimizer_state(parameter, part))

    def write(self, parameter: Any, part: str, value: Tensor) -> None:
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

        given = value.to(parameter.device, torch.float32)
        if part == WEIGHT:
            parameter.data.copy_(given)
            safe_set_full_fp32_param(parameter, given)
            return
        made = make_state(self._optimizer.optimizer, self._flat(), part, value)
        if part != "step":
            if made:
                self._optimizer._hp_optimizer_states_linked = False
                self._optimizer._lazy_init_hp_params_optimizer_state()
            safe_set_full_optimizer_state(parameter, given, part)

    def part(self, parameter: Any) -> Tensor:
        return whole(parameter)

    def own(self, value: Tensor, like: Tensor) -> Tensor:
        return value

    def settle(self) -> None:
        pass


class PartitionedStorage:
    """Stage 3: of every parameter a process has an equal part, the last ones padded."""

    def __init__(self, engine: Any, rank: int) -> None:
        self._engine = engine
        self._rank = rank

    def optimizer_parts(self) -> Iterator[str]:
        yield from parts_of(self._engine.optimizer.optimizer.state)

    def read(self, parameter: Any, part: str) -> Tensor:
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        if part == WEIGHT:
            return cloned(safe_get_full_fp32_param(parameter))
        if part == "step":
            optimizer = self._engine.optimizer
            flat = optimizer.fp32_partitioned_groups_flat[0]
            return cloned(optimizer.optimizer.state[flat][part])
        return cloned(safe_get_full_optimizer_state(parameter, part))

    def write(self, parameter: Any, part: str, value: Tensor) -> None:
        from deepspeed.utils import safe_set_local_fp32_param, safe_set_local_optimizer_state

        optimizer = self._engine.optimizer
        if part == WEIGHT:
            own = self.part(parameter)
            own.copy_(self.own(value, own))
            safe_set_local_fp32_param(parameter, self.own(value, own).float())
            return
        flat = list(optimizer.fp32_partitioned_groups_flat)
        make_state(optimizer.optimizer, flat, part, value)
        if part != "step":
            own = self.own(value, self.part(parameter)).float()
            safe_set_local_optimizer_state(parameter, own, part)

    def own(self, value: Tensor, like: Tensor) -> Tensor:
        """This process's part of a whole tensor, padded with zeros."""
        size = like.numel()
        own = value.flatten()[self._rank * size : (self._rank + 1) * size]
        own = own.to(like.device)
        return torch.cat([own, own.new_zeros(size - own.numel())])

    def part(self, parameter: Any) -> Tensor:
        held: Tensor = parameter.ds_tensor.data
        return held

    def settle(self) -> None:
        self._engine.optimizer.empty_partition_cache()


def parts_of(state: Any) -> Iterator[str]:
    """Names of the optimizer's tensors, none before the first step."""
    yield from dict.fromkeys(part for held in state.values() for part in held)


def make_state(optimizer: Any, flat: list[Tensor], part: str, value: Tensor) -> bool:
    """Make a part of the optimizer's state where it is missing; whether it was. A step is set."""
    is_missing = False
    for buffer in flat:
        held = optimizer.state[buffer]
        if part == "step":
            held[part] = value.clone()
        elif part not in held:
            held[part] = torch.zeros_like(buffer)
            is_missing = True
    return is_missing


def whole(parameter: torch.nn.Parameter) -> Tensor:
    """The parameter's own memory, without its gradient."""
    return parameter.detach()


def cloned(tensor: Tensor) -> Tensor:
    """A copy on the host."""
    return tensor.detach().cpu().clone()
