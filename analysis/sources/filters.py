"""Typed queries that select runs of any source, and their form for wandb's server."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlhf_lab.runs.former_names import present_value
from rlhf_lab_analysis.sources.conditions import place_of
from rlhf_lab_analysis.sources.record import Record, Source, look_up

ENV_KEY, EXP_KEY = "env_id", "exp_name"
# Runs that these sources hold are named by where they lie, not by entity and project.
UNADDRESSED = (Source.folder, Source.csv, Source.tensorboard)


@dataclass(frozen=True)
class Where:
    """The first string of a group: where runs are, and which keys name environment and experiment.

    entity and project: "" is any. metrics: empty is all. xaxis: "" is the source's own.
    """

    entity: str = ""
    project: str = ""
    env_key: str = ENV_KEY
    exp_key: str = EXP_KEY
    metrics: tuple[str, ...] = ()
    xaxis: str = ""

    def holds(self, record: Record) -> bool:
        """Whether a run lies there."""
        if record.source in UNADDRESSED:
            return True
        entity, _, project = record.facts.project.rpartition("/")
        # An offline file names its entity only if the run did.
        fits_entity = self.entity in ("", entity) or not entity
        return fits_entity and self.project in ("", project)


@dataclass(frozen=True)
class Experiment:
    """A further string: one experiment. name: "" is any. values: allowed ones by config key."""

    name: str
    tags: tuple[str, ...] = ()
    user: str = ""
    legend: str = ""
    values: Mapping[str, tuple[Any, ...]] | None = None

    def holds(self, record: Record, where: Where) -> bool:
        """Whether a run is of it."""
        facts = record.facts
        return (
            self.name in ("", text_of(record, where.exp_key))
            and set(self.tags) <= set(facts.tags)
            and self.user in ("", facts.user)
            and all(
                any(is_equal(value_of(record, key), present_value(key, one)) for one in allowed)
                for key, allowed in (self.values or {}).items()
            )
        )


@dataclass(frozen=True)
class Query:
    """One group of filters over its environments (none: all of them). text: as it was given."""

    where: Where
    experiments: tuple[Experiment, ...]
    env_ids: tuple[str, ...] = ()
    text: str = ""

    def holds(self, record: Record) -> bool:
        """Whether it selects a run."""
        if not self.where.holds(record):
            return False
        env = text_of(record, self.where.env_key)
        if self.env_ids and env not in self.env_ids:
            return False
        return not self.experiments or any(
            experiment.holds(record, self.where) for experiment in self.experiments
        )


def select_run(record: Record, queries: Sequence[Query]) -> Record | None:
    """The run with the axis and legend of the first query that selects it; None if no query selects
    it; unchanged if there is no query."""
    if not queries:
        return record
    query = next((query for query in queries if query.holds(record)), None)
    if query is None:
        return None
    held = (one for one in query.experiments if one.holds(record, query.where))
    legend = next((one.legend for one in held), "")
    step = query.where.xaxis or record.facts.step
    return replace(record, facts=replace(record.facts, step=step, legend=legend))


def is_equal(found: Any, wanted: Any) -> bool:
    """Whether a config's value equals the requested one, also if one of them was stored as text."""
    if found is None:
        return wanted is None
    if isinstance(found, float) and isinstance(wanted, int | float):
        return math.isclose(found, wanted, rel_tol=1e-12)
    return bool(found == wanted or str(found) == str(wanted))


def value_of(record: Record, key: str) -> Any:
    """What a run's config has at a key; the seed also from where else it is known."""
    found = look_up(record.config, key)
    if found is None and key.partition(".")[0] == "seed":
        return record.facts.seed
    return found


def text_of(record: Record, key: str) -> str:
    """The name of a run's environment or experiment under a key."""
    found = look_up(record.config, key)
    if found is None and key in (ENV_KEY, EXP_KEY):
        place = place_of(record)
        return place.env if key == ENV_KEY else place.experiment
    return "" if found is None else str(found)


def server_filter(query: Query) -> dict[str, Any]:
    """The query as a filter for wandb's server; the caller filters the result once more."""
    where, conditions = query.where, list[dict[str, Any]]()
    if query.env_ids:
        conditions.append({f"config.{where.env_key}": {"$in": list(query.env_ids)}})
    if query.experiments:
        conditions.append({"$or": [run_filter(one, where) for one in query.experiments]})
    return {"$and": conditions} if conditions else {}


def run_filter(experiment: Experiment, where: Where) -> dict[str, Any]:
    each: list[dict[str, Any]] = [{"tags": {"$in": [tag]}} for tag in experiment.tags]
    if experiment.name:
        each.append({f"config.{where.exp_key}": experiment.name})
    if experiment.user:
        each.append({"username": experiment.user})
    for key, allowed in (experiment.values or {}).items():
        each.append({f"config.{key}": {"$in": list(allowed)}})
    return {"$and": each} if each else {}
