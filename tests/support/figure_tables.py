"""Tables of runs made by hand for figures: a grid of conditions over seeds, numbers by formula."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rlhf_lab_analysis.sources.record import Record, Row
from rlhf_lab_analysis.tables.table import Tables
from tests.support.table_records import config, record, tables

VERSIONS = (0, 2, 4)
PARTS = {
    "updates_per_round": "run", "updates": "run", "passes": "run", "group_size": "run",
    "max_staleness": "mode", "lag_probabilities": "mode", "schedule_per": "optim",
    "combine": "reward",
    "lr": "optim", "beta1": "optim", "order": "cluster", "length_power": "cluster",
    "when_stale": "mode", "executor": "mode",
    "tool_deadline": "episodes", "tool_sigma": "episodes", "tool_seconds": "episodes",
    "lam": "algo",
}  # fmt: skip


def run_of(seed: int, parts: Mapping[str, Any], metrics: Mapping[str, float], sweep: str) -> Record:
    """A run of four rounds. parts: algo, mode, model ... and N, T, K, S by their column. metrics:
    of the last version, which is reached on a straight line from half of it; KL begins at 0."""
    made = config(seed)
    for name, value in parts.items():
        if name in PARTS:
            made[PARTS[name]] = made.get(PARTS[name], {}) | {name: value}
        else:
            made[name] = made.get(name, {}) | {"name": value}
    name = "-".join(f"{key}={value}" for key, value in sorted(parts.items()))
    per_round = int(made["run"]["updates_per_round"])
    base = record(f"{sweep}-{name}-{seed}", seed)
    rounds = [rounded(row, per_round, made["mode"]["name"]) for row in base.rounds]
    evals = [judged(version, metrics) for version in VERSIONS]
    swept = replace(base.facts, sweep=sweep, seed=seed, swept=name.replace("-", ","))
    return replace(base, config=made, facts=swept, rounds=rounds, evals=evals)


def rounded(row: Row, per_round: int, mode: str) -> Row:
    """A recorded round: 4 s of generation, 1 of scoring, 3 of training; of sync 2 more of other."""
    n = float(row["total/rounds"])
    wall = (5.5 if mode == "async" else 10.0) * n
    seconds = {"generate": 4 * n, "score": n, "train": 3 * n, "wall": wall, "device": 2 * wall}
    seconds["wait"] = 2 * n if mode == "async" else 0.0
    told = {f"seconds/{name}": value for name, value in seconds.items()}
    if mode == "virtual":
        told["virtual_seconds/wall"] = 30 * n
    return {**row, **told, "total/updates": n * per_round, "lag/rounds_mean": 1.0}


def judged(version: int, metrics: Mapping[str, float]) -> Row:
    share = version / max(VERSIONS)
    values = {
        name: value * (share if name == "kl/sft_k1" else (1 + share) / 2)
        for name, value in metrics.items()
    }
    return {"label": "", "version": version, "eval/prompts": 16, "eval/options": "quick", **values}


def end_of(seed: int, step: float) -> dict[str, float]:
    """Metrics of the last version: a win-rate of .5 + step + seed / 100."""
    rate = 0.5 + step + seed / 100
    told = {"gold/win_rate": rate, "gold/mean": 4 * rate, "proxy/mean": 8 * rate}
    return told | {"kl/sft_k1": 2 + 10 * step + seed / 10, "accuracy/mean": rate / 2}


def grid(
    conditions: Iterable[Mapping[str, Any]], seeds: Iterable[int] = (1, 2, 3), sweep: str = "own"
) -> Tables:
    """A run for each condition and seed; each next condition is .02 better than the one before."""
    held = list(seeds)
    made = [
        run_of(seed, parts, end_of(seed, 0.02 * place), sweep)
        for place, parts in enumerate(conditions)
        for seed in held
    ]
    return tables(*made)


LADDER = [{"updates_per_round": n, "algo": a} for a in ("ppo", "online_dpo") for n in (1, 4, 16)]
BY_MODE = [{"mode": m, "model": s} for s in ("nano_s", "nano_m") for m in ("sync", "async")]
EVERY: Mapping[str, list[dict[str, Any]]] = {
    "fig1_win_rate_and_cost": BY_MODE,
    "fig2_timelines": BY_MODE,
    "fig3_off_policy_ladder": LADDER,
    "fig4_losses": LADDER,
    "fig5_policy_scale": [
        {"updates_per_round": n, "model": m} for m in ("nano_s", "nano_m") for n in (1, 16)
    ],
    "fig5_reward_scale": [
        {"updates_per_round": n, "proxy": m} for m in ("nano_s", "nano_m") for n in (1, 16)
    ],
    "fig6_who_waits": [{"mode": "lagged", "passes": t} for t in (1, 2, 4)],
    "fig7_passes": [{"mode": "lagged", "passes": t} for t in (1, 2, 4)],
    "fig8_samples": [{"mode": "lagged", "group_size": k} for k in (2, 4)],
    "fig9_reward_and_drift": BY_MODE,
    "gsm8k_accuracy": [{"mode": m, "algo": a} for a in ("grpo", "ppo") for m in ("sync", "async")],
    "rate_schedule": [
        {"updates_per_round": n, "schedule_per": s} for s in ("update", "round") for n in (1, 64)
    ],
    "staleness": [{"mode": "lagged", "max_staleness": 0}]
    + [
        {"mode": "lagged", "max_staleness": s, "correction": c}
        for c in ("none", "truncated_is")
        for s in (1, 4, 8)
    ],
    "corrections": [
        {"mode": "lagged", "max_staleness": 4, "correction": c}
        for c in ("none", "truncated_is", "recompute", "icepop")
    ],
    "queue_policies": [
        {"mode": "virtual", "executor": "virtual", "order": order, "when_stale": stale}
        for order, stale in (("submission", "wait"), ("completion", "wait"), ("completion", "drop"))
    ],
    "turns": [
        {"mode": m, "max_staleness": s}
        for m, s in (("lagged", 0), ("lagged", 4), ("partial_turns", 4))
    ],
    "turns_lambda": [
        {"mode": m, "max_staleness": s, "lam": lam}
        for m, s, lam in (("sync", 0, 0.95), ("sync", 0, 1.0), ("lagged", 4, 1.0))
    ],
    "stragglers": [{"tool_seconds": 5.0, "tool_deadline": seconds} for seconds in (0, 40, 10)],
    "slow_tools": [
        {
            **{"mode": "virtual", "executor": "virtual", "max_staleness": s},
            **{"tool_seconds": 5.0, "tool_sigma": sigma},
        }
        for sigma in (0.0, 2.0)
        for s in (0, 1)
    ],
    "lag_distribution": [
        {"mode": "lagged", "max_staleness": 2, "lag_probabilities": ""},
        {"mode": "lagged", "max_staleness": 4, "lag_probabilities": "0.2,0.2,0.2,0.2,0.2"},
    ],
    "algorithms": LADDER,
    "over_optimisation": [{"reward": "reward_model"}]
    + [{"reward": "ensemble", "combine": c} for c in ("mean", "worst")],
    "aggregates": [
        {"updates_per_round": n, "model": m} for m in ("nano_s", "nano_m") for n in (1, 4, 16)
    ],
    "differences": LADDER,
    "frontier": LADDER,
    "pareto": BY_MODE,
    "targets": LADDER,
    "scaling": LADDER,
    "staleness_rate": [
        {"mode": "lagged", "max_staleness": s, "lr": rate} for s in (1, 4) for rate in (1e-4, 1e-3)
    ],
}
