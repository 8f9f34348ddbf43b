"""One benchmarked setting as data: both sides read the same file. Needs the standard library alone,
so that it is importable in either environment."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

ALGORITHMS = ("grpo", "rloo", "online_dpo")


@dataclass(frozen=True)
class Spec:
    """A model folder, a folder with train.jsonl, and everything that decides the work of a run.

    name: label of the size, then name of the algorithm. groups: prompts of an update. micro_rows:
    completions of one forward and backward pass. warm_up, updates: updates before the clock starts,
    and those that it times. threads: torch threads of a side that runs in one process. kl_coef:
    weight of the pull to the reference (at 0, TRL holds none); beta of online DPO.
    """

    name: str
    model: str
    prompts: str
    algorithm: str
    groups: int
    group_size: int
    max_prompt_tokens: int
    max_new_tokens: int
    micro_rows: int
    warm_up: int
    updates: int
    threads: int
    kl_coef: float
    learning_rate: float = 1e-5
    temperature: float = 0.7
    device: str = "cpu"
    dtype: str = "float32"
    seed: int = 1

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm={self.algorithm}: choose one of {', '.join(ALGORITHMS)}")
        for key in ("groups", "max_new_tokens", "micro_rows", "warm_up", "updates", "threads"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key}={getattr(self, key)}: choose 1 or more")
        if self.group_size < 2:
            raise ValueError(f"group_size={self.group_size}: choose 2 or more")
        if self.algorithm == "online_dpo" and self.group_size != 2:
            raise ValueError(f"group_size={self.group_size}: TRL's online DPO draws 2 a prompt")

    @property
    def label(self) -> str:
        """Of the size: model and type, the first word of the name."""
        return self.name.split()[0]

    @property
    def rows(self) -> int:
        """Completions of an update."""
        return self.groups * self.group_size

    def queries(self) -> list[str]:
        """All prompts of the file."""
        lines = Path(self.prompts, "train.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["query"] for line in lines]

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")


def load(path: Path) -> Spec:
    """The spec of a file. Raises ValueError for keys that a spec does not have, or lacks."""
    given = json.loads(path.read_text(encoding="utf-8"))
    known = {f.name for f in fields(Spec)}
    if odd := sorted(known ^ set(given)):
        raise ValueError(f"{path}: {odd[0]} is missing, or no key of a spec")
    return Spec(**given)


def answer(measure: Callable[[Spec], dict[str, Any]]) -> int:
    """Print what is measured of the spec in the file that the command names, as a line of JSON."""
    (path,) = sys.argv[1:]
    sys.stdout.write(json.dumps(measure(load(Path(path)))) + "\n")
    return 0


@dataclass(frozen=True)
class Timed:
    """What a side did between the end of its warm-up and the end of its last timed update.

    trained_tokens, update_seconds: prompt and response tokens of its updates, and the seconds of
    these alone, where the side measures them.
    """

    seconds: float
    completions: int
    tokens: int
    trained_tokens: int = 0
    update_seconds: float = 0.0

    @property
    def completions_per_second(self) -> float:
        return self.completions / self.seconds

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def trained_per_second(self) -> float:
        """Tokens trained on per second of the updates alone."""
        return self.trained_tokens / self.update_seconds
