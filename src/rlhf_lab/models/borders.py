"""Lengths in a model's config: how far attention reaches, and how long a row may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# Parts of the names by which transformers' configs limit attention to near or chosen tokens.
REACHES = ("window", "chunk", "local", "block_size", "topk")
# Names with such a part that count something else than tokens.
OTHERS = ("num_", "layers", "pattern", "experts", "group", "moe")
# Rotary tables that are a function of the position alone; others change with the longest position
# of a batch.
FIXED_ROTARY = ("default", "linear", "llama3", "yarn", "proportional")


def borders(config: Any) -> tuple[int, ...]:
    """Numbers of tokens at which a model may read otherwise than by attention to all that came
    before, smallest first: its windows, chunks and blocks; () if its config has none."""
    found = {
        value
        for name, value in fields_of(config.get_text_config().to_dict())
        if any(part in name for part in REACHES)
        and not any(part in name for part in OTHERS)
        and isinstance(value, int)
        and value > 1
    }
    return tuple(sorted(found))


def fields_of(node: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Names and values of a config, those of nested ones included."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from fields_of(value, str(key))
    elif isinstance(node, list | tuple):
        for value in node:
            yield from fields_of(value, name)
    else:
        yield name, node


def longest_row(config: Any) -> int | None:
    """The tokens that a row may have; None where the config has no limit.

    Rotary tables of longrope and dynamic change for all rows of a batch, and for a whole cache,
    when one row grows beyond a border (arXiv:2402.13753): a row's log-probs are its own only where
    all rows are on one side of it.
    """
    text = config.get_text_config()
    limits = [getattr(text, "max_position_embeddings", None)]
    rotary = getattr(text, "rope_parameters", None) or {}
    for table in [rotary, *(part for part in rotary.values() if isinstance(part, Mapping))]:
        if table.get("rope_type", "default") not in FIXED_ROTARY:
            limits.append(table.get("original_max_position_embeddings"))
    known = [limit for limit in limits if isinstance(limit, int)]
    return min(known) if known else None
