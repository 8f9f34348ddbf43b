"""Tables of runs made by hand in the shape of a sweep: its own configs, numbers by formula."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product

from rlhf_lab.experiment.config.config import Config, plain
from rlhf_lab_analysis.sources.record import Record
from rlhf_lab_analysis.tables.table import Tables
from tests.support.figure_tables import end_of, judged, rounded
from tests.support.table_records import record, rounds, tables

SEEDS = (1, 2, 3)
QUARTERS = (0, 1, 2, 3, 4)


def run_of(config: Config, name: str, condition: tuple[str, ...], seed: int, step: float) -> Record:
    """A run of a condition of a sweep; it is judged after each quarter of its rounds."""
    tracked = {"sweep": name, "condition": ",".join(condition)}
    made = {**plain(config), "seed": seed, "tracker": tracked}
    per_round, count = config.run.updates_per_round, config.run.num_rounds
    ends = end_of(seed, step)
    evals = [{**judged(quarter, ends), "version": quarter * count // 4} for quarter in QUARTERS]
    # As many rounds as the evaluated versions need; those between are as the tables compact them.
    kept = [
        rounds(count)[place - 1]
        for place in sorted({*range(1, min(4, count) + 1), *versions(count)} - {0})
    ]
    base = record(f"{name}-{'-'.join(condition)}-{seed}", seed)
    facts = replace(base.facts, sweep=name, swept=",".join(condition), planned_rounds=count)
    rows = [rounded(row, per_round, config.mode.name) for row in kept]
    return replace(base, config=made, facts=facts, rounds=rows, evals=evals)


def versions(count: int) -> set[int]:
    return {quarter * count // 4 for quarter in QUARTERS[1:]}


def of_sweep(
    name: str, swept: Mapping[str, Sequence[str]], compose: Callable[..., Config], most: int = 3
) -> Tables:
    """A run for each condition and seed, with the first `most` - 1 values of each key and its last;
    each next condition is .01 better than the one before. compose: overrides to a config."""
    held = {
        key: list(dict.fromkeys([*values[: most - 1], values[-1]]))
        for key, values in swept.items()
        if key != "seed"
    }
    runs = []
    for place, values in enumerate(product(*held.values())):
        line = tuple(f"{key}={value}" for key, value in zip(held, values, strict=True))
        config = compose(*line)
        runs += [run_of(config, name, line, seed, 0.01 * place) for seed in SEEDS]
    return tables(*runs)
