"""Checks of a model's folder before the model is built."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from rlhf_lab.runs.reading import MEBIBYTE, Unreadable, read_json
from rlhf_lab.types.errors import UserError

CONFIG = "config.json"
ADAPTERS = "adapter_config.json"
CONFIG_BYTES = 16 * MEBIBYTE
WEIGHTS = ("*.safetensors", "*.bin", "*.index.json")
REMEDY = "pass a folder made by save_pretrained"
# OWNER/NAME or NAME, and perhaps @REVISION.
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?(@.+)?")
# Whole numbers from 1 on, as most families of transformers call them, and those of GPT-2.
WIDTH = ("hidden_size", "n_embd", "d_model")
# A layer, a token and a neuron each have a weight or more for every unit of the width.
TIMES_WIDTH = ("num_hidden_layers", "n_layer", "vocab_size", "intermediate_size", "n_inner")
OTHERS = (
    "num_attention_heads", "n_head", "num_key_value_heads", "head_dim", "n_positions",
    "max_position_embeddings",
)  # fmt: skip
LARGEST = 2**40
DTYPES = ("dtype", "torch_dtype")
# Two weights a byte are the least that is stored; tied and shared ones are left some room, and
# files that are cut short to who reads them.
WEIGHTS_PER_BYTE, ROOM = 8, 2**20


def require_files(path: str, key: str) -> None:
    """Refuse a local folder without a config or weights, or with sizes that cannot be. key: the
    option that named it."""
    require_config(path, key)
    if Path(path).is_dir() and not weight_files(Path(path)):
        raise UserError(f"{key}={path} has no weights (model.safetensors): {REMEDY}")


def require_config(path: str, key: str) -> None:
    """Refuse a local folder without a config, or with one whose sizes cannot be, and a path that no
    name on the hub could be and that leads to no folder."""
    folder = Path(path)
    if not folder.is_dir():
        if path.startswith(".") or not HUB_NAME.fullmatch(path):
            raise UserError(f"{key}={path}: there is no such folder: {REMEDY}, or a hub name")
        return
    if (folder / ADAPTERS).is_file() and not (folder / CONFIG).is_file():
        raise UserError(
            f"{key}={path} holds adapters of peft without their model: merge them into it "
            "(merge_and_unload of peft) and pass the folder where save_pretrained wrote that"
        )
    if not (folder / CONFIG).is_file():
        raise UserError(f"{key}={path} has no {CONFIG}: {REMEDY}")
    try:
        config = read_json(folder / CONFIG, dict[str, Any], CONFIG_BYTES)
    except Unreadable as error:
        raise UserError(f"{key}={path} could not be loaded ({error}): {REMEDY}") from error
    num_bytes = sum(size_of(file) for file in weight_files(folder))
    for nested in configs(config):
        require_numbers(nested, path, key)
        require_dtype(nested, path, key)
        require_sizes(nested, num_bytes, path, key)


def size_of(file: Path) -> int:
    """Bytes of a file; 0 if it cannot be read, which its reader reports later."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def weight_files(folder: Path) -> list[Path]:
    return [file for pattern in WEIGHTS for file in folder.glob(pattern)]


def weight_bytes(path: str) -> int:
    """Bytes of a folder's weights, 0 for what is no folder. The same weights may be there twice, in
    two formats."""
    folder = Path(path)
    if not folder.is_dir():
        return 0
    return max(sum(map(size_of, folder.glob(pattern))) for pattern in WEIGHTS)


def configs(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A config, and those of its parts, such as the text's in one of images too."""
    yield config
    for name, value in config.items():
        if name.endswith("_config") and isinstance(value, Mapping):
            yield value


def require_numbers(config: Mapping[str, Any], path: str, key: str) -> None:
    """Refuse a size that is no whole number from 1 on, and numbers that are not finite."""
    for name, value in config.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{key}={path}: {CONFIG} has {name}={value}: {REMEDY}")
    for name in (*WIDTH, *TIMES_WIDTH, *OTHERS):
        value = config.get(name)
        if value is not None and (type(value) is not int or not 1 <= value <= LARGEST):
            raise UserError(
                f"{key}={path}: {CONFIG} has {name}={str(value)[:60]}, which must be a whole "
                f"number from 1 on: {REMEDY}"
            )


def require_dtype(config: Mapping[str, Any], path: str, key: str) -> None:
    """Refuse a dtype that torch does not have; `auto` leaves it to the weights."""
    for name in DTYPES:
        named = str(config.get(name) or "auto").removeprefix("torch.")
        if named != "auto" and not isinstance(getattr(torch, named, None), torch.dtype):
            raise UserError(
                f"{key}={path}: {CONFIG} has {name}={named[:60]}, which is no dtype of torch: "
                f"{REMEDY}"
            )


def require_sizes(config: Mapping[str, Any], num_bytes: int, path: str, key: str) -> None:
    """Refuse a config whose weights cannot fit the files: building them would take hours, or fill
    the memory."""
    width = max(config.get(name) or 1 for name in WIDTH)
    for name in TIMES_WIDTH:
        needed = (config.get(name) or 1) * width
        if num_bytes and needed > WEIGHTS_PER_BYTE * num_bytes + ROOM:
            raise UserError(
                f"{key}={path}: {CONFIG} has {name}={config.get(name)}, which needs {needed} "
                f"weights or more, but its files hold {num_bytes} bytes: {REMEDY}"
            )
