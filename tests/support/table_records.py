"""Runs made by hand, as records and as folders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from rlhf_lab_analysis.sources.record import Cell, Facts, Reading, Record, Row, Source
from rlhf_lab_analysis.tables.table import Tables, make_tables

NONE: Row = MappingProxyType({})
CODE = "c0de" * 4


def config(seed: int | None = 1, mode: str = "sync", per_round: int = 1) -> dict[str, Any]:
    """As much of a config as places a run."""
    named = {"task": "arithmetic", "model": "nano_s", "algo": "grpo", "correction": "none"}
    parts: dict[str, Any] = {part: {"name": name} for part, name in named.items()}
    parts |= {"mode": {"name": mode, "max_staleness": 1}, "optim": {"lr": 1e-4}}
    parts |= {"reward": {"name": "task_rule"}, "proxy": {"name": "nano_s"}}
    updates = {"updates": 4 * per_round, "updates_per_round": per_round}
    run = {**updates, "passes": 1, "group_size": 2}
    return {"seed": seed, "run": run, **parts, "tracker": {"sweep": "", "condition": ""}}


def rounds(count: int = 4, metrics: Row = NONE) -> list[Row]:
    """Rounds of 10 seconds on 2 devices, 8 prompts, 16 completions and 160 tokens each."""
    return [
        {
            **{"total/rounds": n, "total/updates": n, "total/prompts": 8 * n},
            **{"total/completions": 16 * n, "total/generated_tokens": 160 * n},
            **{"total/trained_tokens": 150 * n, "total/flops": 1000 * n},
            **{"seconds/wall": 10.0 * n, "seconds/device": 20.0 * n, "reward/mean": n / 8},
            **metrics,
        }
        for n in range(1, count + 1)
    ]


def evals(versions: Sequence[int] = (0, 4), metrics: Row = NONE) -> list[Row]:
    """Win-rates of 0.25 and a tenth more each version."""
    told: dict[str, Cell] = {"eval/prompts": 16, "eval/options": "quick", "sample/length": 3.5}
    return [
        {"label": "", "version": v, "gold/win_rate": 0.25 + v / 10, "kl/sft_k1": v / 4, **told}
        | dict(metrics)
        for v in versions
    ]


def record(run: str = "r1", seed: int | None = 1, **changes: Any) -> Record:
    """A finished run of four rounds. changes: of the record, or of its facts."""
    own = config(seed)
    known = Facts(
        state="finished", seed=seed, name=f"seed-{seed}", planned_rounds=4, code=CODE,
        step="total/updates", project="runs",
    )  # fmt: skip
    made = Record(Source.folder, run, f"runs/{run}", known, own, rounds(), evals())
    of_facts = {key: value for key, value in changes.items() if hasattr(known, key)}
    of_record = {key: value for key, value in changes.items() if key not in of_facts}
    return replace(made, facts=replace(known, **of_facts), **of_record)


def tables(*records: Record, **options: Any) -> Tables:
    return make_tables(Reading(records), **options)


def kinds(made: Tables) -> list[str]:
    """The kinds of a selection's findings."""
    return [str(finding.kind) for finding in made.findings]


def write_run(folder: Path, made: Record, **manifest: Any) -> Path:
    """A run's folder with a record's numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {
        "state": made.facts.state, "run_id": made.run, "seed": made.facts.seed, "code": CODE,
        "num_rounds": made.facts.planned_rounds, "content": made.facts.content, "git": None,
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps({**told, **manifest}))
    (folder / "config.yaml").write_text(yaml.safe_dump(dict(made.config)))
    numbered = [{"step": n, **row} for n, row in enumerate(made.rounds)]
    write_lines(folder / "metrics.jsonl", numbered)
    unlabelled = [{k: v for k, v in row.items() if k != "label"} for row in made.evals]
    write_lines(folder / "evals.jsonl", unlabelled)
    return folder


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
