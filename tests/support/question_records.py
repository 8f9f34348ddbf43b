"""Runs for questions: win-rates rise to a given end on a straight line, over four rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_lab_analysis.sources.record import Record
from tests.support import table_records as made


@dataclass(frozen=True)
class Made:
    """A condition. groups: prompts an update, left open where it is None. seconds: a round;
    generate: of these, with scoring; work: FLOPs a round."""

    algo: str = "ppo"
    model: str = "nano_s"
    proxy: str = "nano_s"
    mode: str = "sync"
    correction: str = "none"
    per_round: int = 1
    staleness: int = 1
    passes: int = 1
    group_size: int = 2
    groups: int | None = None
    updates: int = 64
    schedule: str = "update"
    seconds: float = 10.0
    generate: float = 4.0
    work: float = 1000.0
    start: float = 0.4
    kl: float = 2.0
    sweep: str = ""
    snapshots: int = 4

    @property
    def config(self) -> dict[str, Any]:
        parts = {"task": "tldr_nano", "model": self.model, "algo": self.algo}
        parts |= {"correction": self.correction, "reward": "reward_model", "proxy": self.proxy}
        run = {"updates": self.updates, "updates_per_round": self.per_round}
        run |= {} if self.groups is None else {"groups_per_update": self.groups}
        return {
            **{name: {"name": value} for name, value in parts.items()},
            "run": {**run, "passes": self.passes, "group_size": self.group_size},
            "mode": {"name": self.mode, "max_staleness": self.staleness},
            "eval": {"snapshots": self.snapshots},
            "optim": {"lr": 1e-4, "schedule_per": self.schedule},
        }

    def runs(self, ends: Mapping[int, float] | Sequence[float]) -> list[Record]:
        """A run for each seed (1, 2, ... of a plain list) that ends at the given win-rate."""
        by_seed = ends if isinstance(ends, Mapping) else dict(enumerate(ends, start=1))
        return [self.run(seed, end) for seed, end in by_seed.items()]

    def run(self, seed: int, end: float) -> Record:
        told = " ".join(f"{key}={value}" for key, value in vars(self).items())
        versions = range(0, 5, 4 // self.snapshots)
        evals = [
            {
                **{"label": "", "version": v, "kl/sft_k1": self.kl * v / 4},
                "gold/win_rate": self.start + (end - self.start) * v / 4,
            }
            for v in versions
        ]
        each = self.updates / 4
        rounds = [
            {
                **{"total/rounds": n, "total/updates": each * n},
                **{"total/completions": 16 * self.group_size * each * n / self.passes},
                **{"total/flops": self.work * n, "seconds/wall": self.seconds * n},
                **{"seconds/device": self.seconds * n * (2 if self.mode == "async" else 1)},
                **{"seconds/take": self.generate * n},
            }
            for n in range(1, 5)
        ]
        return made.record(
            f"{told}, seed {seed}", seed, config={**self.config, "seed": seed}, rounds=rounds,
            evals=evals, sweep=self.sweep, content=f"{told}{seed}",
            swept=f"model@proxy={self.proxy},optim.schedule_per={self.schedule}",
        )  # fmt: skip
