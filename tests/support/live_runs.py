"""Run folders with hand-worked numbers, as a run leaves them while it works."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rlhf_lab.runs import provenance

# Seconds of a round: the trainer waits 1 of 4, each of two generators works 1 of 4.
ROUND_SECONDS = 4.0


def round_row(step: int, **changes: Any) -> dict[str, Any]:
    """Round `step` of a run with two generators: sums count from its beginning."""
    done = step + 1
    return {
        "step": step,
        "reward/mean": float(step),
        "kl/sampled_reference_k1": 0.5,
        "sample/length": 20.0,
        "sample/eos_rate": 0.75,
        "sample/version": max(0, step - 1),
        "update/entropy": 1.5,
        "update/grad_norm": 0.25,
        "lag/rounds_histogram": {"1": 8},
        "lag/updates_histogram": {"2": 6, "3": 2},
        "lag/rounds_mean": 1.0,
        "lag/updates_mean": 2.25,
        "seconds/wall": ROUND_SECONDS * done,
        "seconds/wait": 1.0 * done,
        "seconds/generator_wait": 6.0 * done,
        "seconds/generate": 1.5 * done,
        "seconds/score": 0.5 * done,
        "seconds/train": 3.0 * done,
        "total/generated_tokens": 400 * done,
        "total/trained_tokens": 800 * done,
        "dropped/groups": 0,
        "sample/groups_unscored": 0,
        "timing/generator_restarts": 0,
        **changes,
    }


def write_run(
    folder: Path, rounds: int = 0, total: int = 20, state: str = "running", **facts: Any
) -> Path:
    """A run of this process that has done so many of its rounds. Returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    manifest = {
        "state": state,
        "started": (now - timedelta(seconds=100)).isoformat(),
        **({"ended": now.isoformat()} if state != "running" else {}),
        "task": "arithmetic",
        "algo": "grpo",
        "correction": "none",
        "mode": "async",
        "model": "nano_s",
        "seed": 3,
        "num_rounds": total,
        "settings": {"num_generators": 2, "updates_per_round": 2, "max_staleness": 1},
        **provenance.provenance(),
        **facts,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    write_rounds(folder, *(round_row(step) for step in range(rounds)))
    return folder


def write_rounds(folder: Path, *rows: dict[str, Any]) -> None:
    """Replace metrics.jsonl in place."""
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
