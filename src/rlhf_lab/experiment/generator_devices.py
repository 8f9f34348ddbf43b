"""Which device each generator of a run takes."""

from __future__ import annotations

import os
import re

from rlhf_lab.experiment.config import Config
from rlhf_lab.models.devices import chosen
from rlhf_lab.training.engines.ranks import world_size
from rlhf_lab.types.errors import UserError


def generator_devices(config: Config) -> list[str]:
    """The device of each generator beside the trainer: generator number i takes the i-th GPU from
    generator.device=cuda:N on; with auto the i-th that no trainer of this machine uses, or all the
    trainer's where there are too few. One of several GPUs (vLLM's, with tensor or data parallelism)
    is named by its first. Those that share a server all have the device of the option.

    Raises UserError for a GPU that this machine does not have.
    """
    device, count = config.generator.device, config.mode.num_background
    if config.generator.address:
        return [device] * count
    size = config.generator.num_gpus
    if (named := re.fullmatch(r"cuda:(\d+)", device)) and count:
        first = int(named[1])
        require_gpus(device, first, count, size)
        return [f"cuda:{first + number * size}" for number in range(count)]
    if device == "auto" and count and chosen(device, "generator.device").type == "cuda":
        trained = trainer_gpus(config)
        free = [number for number in range(num_visible()) if number not in trained]
        if size > 1:  # its GPUs are neighbours
            free = [number for number in free if number > max(trained, default=-1)]
        if len(free) >= count * size:
            return [f"cuda:{number}" for number in free[: count * size : size]]
    return [device] * count


def require_gpus(device: str, first: int, count: int, size: int) -> None:
    """Raises UserError unless this machine has `count` times `size` GPUs from the first one on."""
    last = first + count * size - 1
    if last >= num_visible():
        raise UserError(
            f"generator.device={device} with mode.num_generators={count}: generators would take "
            f"{device} to cuda:{last}, and torch sees {num_visible()} GPUs here; pass "
            "a smaller mode.num_generators, or generator.device=cuda, which all of them share"
        )


def num_visible() -> int:
    """GPUs that torch sees here."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def trainer_gpus(config: Config) -> set[int]:
    """Numbers of the GPUs that the trainers of this machine use."""
    device = chosen(config.engine.device)
    if device.type != "cuda":
        return set()
    if device.index is not None:
        return {device.index}
    return set(range(int(os.environ.get("LOCAL_WORLD_SIZE", world_size()))))
