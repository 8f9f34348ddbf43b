"""What two processes did by every kind of engine, in one start a session: they import FSDP and
DeepSpeed for longer than they train."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.support.engine_cases import SPREAD
from tests.support.engine_worker import engine_acts, train_alone
from tests.support.shards_worker import save_alone, shards_acts
from tests.support.two_ranks import act_together, once
from tests.support.variants import names

# Behind a dash, how rows are read.
ENGINES = ("fsdp", "fsdp-blocks", "fsdp-causal", "zero2", "zero3", "zero3-blocks")
# Those of `make test`: each way to split and to read rows, and each algorithm, where it is cheap.
OFTEN = (
    *("fsdp-ppo_bins", "fsdp-online_dpo", "fsdp-blocks-online_dpo"),
    *("zero2-ppo_turns", "zero3-online_dpo", "fsdp-shards", "zero2-shards", "zero3-shards"),
)


def is_installed(name: str) -> bool:
    """Whether the package of an engine is there."""
    return name.startswith("fsdp") or find_spec("deepspeed") is not None


PRESENT = [name for name in ENGINES if is_installed(name)]
SHARDED = [name for name in ("fsdp", "zero2", "zero3") if is_installed(name)]
ACTS = engine_acts(PRESENT) | shards_acts(SHARDED)


def cases(acts: Collection[str]) -> list[Any]:
    """These acts, as far as their engines are installed."""
    return names(acts, [name for name in OFTEN if name in acts])


def trained_by_two(cache: Path, act: str) -> Path:
    """The folder in which two processes left what they did in this act, with what one did alone,
    beside the session's cache."""
    is_often = act in OFTEN
    chosen = [name for name in ACTS if (name in OFTEN) == is_often]
    return once(cache.with_name(f"trained_by_two_{is_often}"), lambda folder: make(folder, chosen))


def make(folder: Path, acts: Sequence[str]) -> None:
    train_alone(folder, SPREAD)
    save_alone(folder)
    act_together(folder, {name: ACTS[name] for name in acts})
