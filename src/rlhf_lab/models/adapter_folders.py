"""Adapters of peft as they are published: adapter_config.json, which names their base model, and
adapter_model.safetensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.utils.hub import cached_file
from transformers.utils.peft_utils import find_adapter_config_file

from rlhf_lab.runs.reading import MEBIBYTE, Unreadable, read_json
from rlhf_lab.types.errors import UserError

CONFIG_BYTES = 16 * MEBIBYTE


@dataclass(frozen=True)
class Base:
    """The model that adapters were trained beside. path, revision: where it is. key: what names it
    in refusals. has_tokenizer: whether the adapters bring one of their own. kind: its class; ''
    where their config names none."""

    path: str
    revision: str
    key: str
    has_tokenizer: bool
    kind: str


def base_of(path: str, where: Mapping[str, str], key: str) -> Base | None:
    """The base model of the adapters in a folder or a repository of the hub; None for whole models.
    where: keywords of the hub. Raises UserError, naming the option `key`, where the adapters'
    config names none."""
    try:
        found = find_adapter_config_file(path, **where)
    except OSError:
        return None  # nothing is there: the refusal is that of a whole model
    if found is None:
        return None
    try:
        config = read_json(Path(found), dict[str, Any], CONFIG_BYTES)
    except Unreadable as error:
        text = f"{key}={path} could not be loaded ({error}): save the adapters again"
        raise UserError(text) from error
    base = config.get("base_model_name_or_path")
    if not isinstance(base, str) or base in ("", path):
        raise UserError(
            f"{key}={path}: its adapter_config.json has no base_model_name_or_path: write there "
            "the hub name or folder of the model that the adapters were trained beside"
        )
    own = cached_file(
        path,
        "tokenizer_config.json",
        **where,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    named = f"{key}={path}: base_model_name_or_path"
    mapping = config.get("auto_mapping")
    kind = mapping.get("base_model_class") if isinstance(mapping, dict) else None
    return Base(base, str(config.get("revision") or ""), named, own is not None, str(kind or ""))
