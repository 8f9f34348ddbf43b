"""Names of the tensors in a model's files, without the tensors: from an index, or from headers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import constants, get_safetensors_metadata
from huggingface_hub.errors import NotASafetensorsRepoError
from safetensors import safe_open
from transformers.utils.hub import cached_file

from rlhf_lab.runs.reading import MEBIBYTE, read_json

SINGLE, PICKLE = "model.safetensors", "pytorch_model.bin"
INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
INDEX_BYTES = 64 * MEBIBYTE


def weight_names(path: str, where: Mapping[str, Any]) -> set[str] | None:
    """The names in a folder or a repository of the hub; None where they are known only once the
    weights are read: one file of pickles, and, without a network, what was never downloaded.

    where: keywords of the hub, of which only indices and headers are downloaded.
    """
    for name in INDICES:
        if index := found(path, name, where):
            return set(read_json(index, dict[str, Any], INDEX_BYTES)["weight_map"])
    here = {**where, "local_files_only": True}
    if file := found(path, SINGLE, here):
        with safe_open(file, framework="pt") as opened:
            return set(opened.keys())
    if Path(path).is_dir() or constants.HF_HUB_OFFLINE or found(path, PICKLE, here):
        return None
    try:
        metadata = get_safetensors_metadata(path, **where)
    except NotASafetensorsRepoError:
        return None
    return set(metadata.weight_map)


def found(path: str, name: str, where: Mapping[str, Any]) -> Path | None:
    """A file of a folder or a repository; None if it is not there."""
    file = cached_file(
        path,
        name,
        **where,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if file is None else Path(file)
