"""A row of evals.jsonl in words: the columns that tables show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Row = Mapping[str, Any]


def cells(name: str, row: Row) -> Iterator[tuple[str, str]]:
    """A row as column names and texts, in the order of the table."""
    yield "run", name
    yield "version", str(row["version"])
    yield "win-rate [95%]", with_bounds(row, "gold/win_rate")
    yield "length-controlled", number(row, "gold/win_rate_length_controlled")
    yield "gold", number(row, "gold/mean")
    yield "proxy", number(row, "proxy/mean")
    yield "gap", number(row, "gap/proxy_gold")
    yield "KL nats", number(row, "kl/sft_k1", 2)
    yield "accuracy [95%]", with_bounds(row, "accuracy/mean")
    for noun, title in (("pass", "pass"), ("majority", "maj")):
        for key in row:
            if key.startswith(f"{noun}/at_") and not key.endswith(("_low", "_high")):
                yield f"{title}@{key.rpartition('_')[2]} [95%]", with_bounds(row, key)
    yield "unjudged", str(row.get("eval/prompts_unjudged") or "")
    yield "samples/s", number(row, "timing/samples_per_second", 1)


def number(row: Row, key: str, digits: int = 3) -> str:
    """A number, or nothing where there is none."""
    value = row.get(key)
    return f"{value:.{digits}f}" if isinstance(value, int | float) else ""


def with_bounds(row: Row, key: str) -> str:
    """A number with its interval, or nothing where there is none."""
    mean, low, high = (number(row, f"{key}{end}") for end in ("", "_low", "_high"))
    return f"{mean} [{low}, {high}]" if mean else ""
