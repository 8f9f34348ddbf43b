"""Parse Open RL Benchmark's filters, in the syntax of its README, into typed queries.

    ?we=ENTITY&wpn=PROJECT&ceik=ENV_KEY&cen=EXP_KEY&metric=NAME&xaxis=KEY     where, and what
    EXP_NAME?tag=A&tag=B&user=U&seed=1&seed=2&KEY=VALUE&cl=Legend             one experiment

In its offline mode, tag= given twice finds nothing, user= drops all other conditions and config
filters do nothing (openrlbenchmark 0.3.1). Here all of them hold at once: every tag, the user, and
for each config key one of its values.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.filters import ENV_KEY, EXP_KEY, Experiment, Query, Where

SOURCE_KEYS = ("we", "wpn", "ceik", "cen", "metric", "metrics", "xaxis")


def parse_query(texts: Sequence[str], env_ids: Sequence[str] = ()) -> Query:
    """The query of a group of filter strings. Raises UserError on an invalid one."""
    if not texts or not texts[0].startswith("?"):
        begins = texts[0] if texts else ""
        raise UserError(
            f"--filters {begins!r}: a group begins with where its runs are: pass "
            "'?we=ENTITY&wpn=PROJECT' first, or '?' for any"
        )
    experiments = tuple(parse_experiment(text) for text in texts[1:])
    text = " ".join([*(f"'{text}'" for text in texts), *(f"in {env}" for env in env_ids)])
    return Query(parse_where(texts[0]), experiments, tuple(env_ids), text)


def parse_where(text: str) -> Where:
    """`?we=...&wpn=...`. Raises UserError on a key that it does not have."""
    given = pairs(text.partition("?")[2], text)
    if unknown := sorted(set(given) - set(SOURCE_KEYS)):
        raise UserError(
            f"--filters {text!r}: {unknown[0]} is not one of {', '.join(SOURCE_KEYS)}: put what "
            "runs are to be chosen by behind an experiment, as in 'EXP?seed=1'"
        )
    one = {key: values[0] for key, values in given.items()}
    return Where(
        entity=one.get("we", ""),
        project=one.get("wpn", ""),
        env_key=one.get("ceik", ENV_KEY),
        exp_key=one.get("cen", EXP_KEY),
        metrics=(*given.get("metric", ()), *given.get("metrics", ())),
        xaxis=one.get("xaxis", ""),
    )


def parse_experiment(text: str) -> Experiment:
    """`EXP?tag=...&seed=...&cl=...`; the name is everything before the first question mark."""
    name, _, query = text.partition("?")
    given = pairs(query, text)
    tags, users = given.pop("tag", ()), given.pop("user", ())
    legends = given.pop("cl", ())
    if len(users) > 1:
        raise UserError(f"--filters {text!r}: a run has one user: pass user= once")
    return Experiment(
        name=name,
        tags=tags,
        user=users[0] if users else "",
        legend=legends[0].replace("\\n", "\n") if legends else "",
        values={key: tuple(literal(value) for value in texts) for key, texts in given.items()},
    )


def pairs(query: str, text: str) -> dict[str, tuple[str, ...]]:
    """The values of each key. Raises UserError on what is no pair."""
    try:
        found = parse_qs(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        raise UserError(f"--filters {text!r}: {error}: pass key=value pairs joined by &") from error
    return {key: tuple(values) for key, values in found.items()}


def literal(text: str) -> Any:
    """A value as Python would read it, else the text: `1` is a number, `grpo` is not."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
