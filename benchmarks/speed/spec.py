"""One benchmarked setting as data: both sides read the same file. Needs the standard library alone,
so that it is importable in either environment."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

# TRL's own default each: no reference for GRPO, and the usual pull for the others.
KL = {"grpo": 0.0, "rloo": 0.05, "online_dpo": 0.1}
ALGORITHMS = tuple(KL)


@dataclass(frozen=True)
class Spec:
    """Everything that decides the work of a run.

    folder: of the models and prompts. rows: completions of an update. micro_rows: those of one
    forward and backward pass. warm_up, updates: updates before the clock starts, and those that it
    times. threads: torch threads of a side that runs in one process.
    """

    model: str
    rows: int
    max_prompt_tokens: int
    max_new_tokens: int
    micro_rows: int
    updates: int
    repeats: int
    dtype: str = "float32"
    algorithm: str = "grpo"
    folder: str = ""
    threads: int = 2
    warm_up: int = 1
    learning_rate: float = 1e-5
    temperature: float = 0.7
    seed: int = 1

    @property
    def name(self) -> str:
        """Model, type and algorithm."""
        dtype = "" if self.dtype == "float32" else f"-{self.dtype}"
        return f"{self.model}{dtype} {self.algorithm}"

    @property
    def group_size(self) -> int:
        """K=4, but where the algorithm compares two."""
        return 2 if self.algorithm == "online_dpo" else 4

    @property
    def groups(self) -> int:
        """Prompts of an update."""
        return self.rows // self.group_size

    @property
    def kl_coef(self) -> float:
        """Weight of the pull to the reference (at 0, TRL holds none); beta of online DPO."""
        return KL[self.algorithm]

    @property
    def model_folder(self) -> Path:
        return Path(self.folder, "models", self.model)

    @property
    def prompts_folder(self) -> Path:
        """Has train.jsonl and validation.jsonl."""
        return Path(self.folder, "prompts")

    def queries(self) -> list[str]:
        """All prompts of the file."""
        text = (self.prompts_folder / "train.jsonl").read_text(encoding="utf-8")
        return [json.loads(line)["query"] for line in text.splitlines()]


NANO = Spec("nano_m", 128, 64, 32, 64, updates=8, repeats=5)
PRETRAINED = Spec("smollm2_135m", 8, 128, 32, 8, updates=2, repeats=3)
# What is measured, with which algorithms; the last where the CPU has instructions for bfloat16.
SIZES = {
    NANO: ALGORITHMS,
    PRETRAINED: ("grpo",),
    replace(PRETRAINED, dtype="bfloat16"): ("grpo",),
}


@dataclass(frozen=True)
class Timed:
    """What a side did between the end of its warm-up and the end of its last timed update."""

    seconds: float
    completions: int
    tokens: int

    @property
    def completions_per_second(self) -> float:
        return self.completions / self.seconds
