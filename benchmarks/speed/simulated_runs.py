"""Simulate runs as a large sweep would leave them: rounds, evaluations and configs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from rlhf_lab_analysis.sources.record import Facts, Reading, Record, Row, Source
from rlhf_lab_analysis.tables.table import Tables, make_tables

SEEDS, ROUNDS, EVERY = 5, 256, 32
# Of the config's keys, beside those that place a run, and of the metrics of a round.
SETTINGS, METRICS = 300, 24
PER_ROUND = (1, 2, 4, 8, 16, 32, 64)


def simulated_runs(number: int, rounds: int = ROUNDS) -> Tables:
    """Tables of so many finished runs, five seeds of each condition, sync and async. The same
    numbers each time."""
    return make_tables(Reading(tuple(record(place, rounds) for place in range(number))))


def record(place: int, rounds: int) -> Record:
    condition, seed = place // SEEDS, place % SEEDS + 1
    draw = random.Random(place)
    mode, per_round = ("sync", "async")[condition % 2], PER_ROUND[condition // 2 % len(PER_ROUND)]
    config = config_of(seed, mode, per_round, 1 + condition // (2 * len(PER_ROUND)))
    facts = Facts(
        state="finished", seed=seed, name=f"seed-{seed}", sweep="simulated", planned_rounds=rounds,
        code="simulated", content=f"run {place}", step="total/updates", project="simulated",
    )  # fmt: skip
    folder = f"runs/simulated/condition-{condition}/seed-{seed}"
    points = list(rounds_of(draw, mode, per_round, rounds))
    judged = [evaluation(draw, version, rounds) for version in range(0, rounds + 1, EVERY)]
    return Record(Source.folder, f"run-{place}", folder, facts, config, points, judged)


def config_of(seed: int, mode: str, per_round: int, passes: int) -> dict[str, Any]:
    named = {"task": "tldr_nano", "model": "nano_s", "algo": "online_dpo", "correction": "none"}
    parts: dict[str, Any] = {part: {"name": name} for part, name in named.items()}
    return {
        **parts,
        "seed": seed,
        "mode": {"name": mode, "max_staleness": 1},
        "run": {"updates_per_round": per_round, "passes": passes, "group_size": 2},
        "settings": {f"setting_{number}": number for number in range(SETTINGS)},
    }


def rounds_of(draw: random.Random, mode: str, per_round: int, rounds: int) -> Iterator[Row]:
    seconds = 0.0
    for number in range(1, rounds + 1):
        seconds += (10 if mode == "sync" else 6) * draw.uniform(0.9, 1.1)
        yield {
            **{"total/rounds": number, "total/updates": per_round * number},
            **{"total/completions": 16 * per_round * number, "total/flops": 1e9 * number},
            **{"seconds/wall": seconds, "seconds/device": 2 * seconds},
            **{"reward/mean": number / rounds + draw.gauss(0, 0.05)},
            **{f"update/metric_{name}": draw.random() for name in range(METRICS)},
        }


def evaluation(draw: random.Random, version: int, rounds: int) -> Row:
    share = version / rounds
    return {
        **{"label": "", "version": version, "kl/sft_k1": 3 * share},
        **{"gold/win_rate": 0.4 + 0.4 * share + draw.gauss(0, 0.01), "gold/mean": 5 * share},
        **{"proxy/mean": 6 * share, "sample/length": 30 + draw.random(), "eval/prompts": 256},
    }
