"""Collect some samples of each condition: those that rounds were trained on, and judged ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.rollouts import RolloutSample, read_rollouts
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import POLICY
from rlhf_lab_analysis.report.groups import Group
from rlhf_lab_analysis.report.series import even_indices, short
from rlhf_lab_analysis.tables.table import count

JUDGED = "samples.jsonl"
# Of a page, of a run, of a round, and of a text's characters.
MOST_RUNS, ROUNDS, SAMPLES, CHARACTERS = 24, 6, 4, 1200
CUT = " …"


def samples(groups: Sequence[Group], ranked: Sequence[int]) -> list[dict[str, Any]]:
    """Of the first conditions in `ranked` that have some: the samples of one run, by round."""
    found: list[dict[str, Any]] = []
    for place in ranked:
        if len(found) == MOST_RUNS:
            break
        if one := of_group(groups[place]):
            found.append({"group": place, **one})
    return found


def of_group(group: Group) -> dict[str, Any] | None:
    """The samples of the first seed that has some."""
    for seed in group.cell.seeds:
        folder = Path(str(group.cell.runs[seed]["place"]))
        if folder.is_dir() and (rounds := [*trained_on(folder), *judged(folder)]):
            return {"title": group.title, "seed": seed, "rounds": rounds}
    return None


def trained_on(folder: Path) -> list[dict[str, Any]]:
    """Samples of evenly chosen rounds, the first and the last among them. A damaged file has none:
    the run's findings name it."""
    try:
        rows = read_rollouts(folder)
    except UserError:
        return []
    by_round: dict[int, list[RolloutSample]] = {}
    for row in rows:
        by_round.setdefault(row.round, []).append(row)
    numbers = list(by_round)
    return [
        {"name": f"round {number}", "samples": [rollout(one) for one in by_round[number][:SAMPLES]]}
        for number in (numbers[place] for place in even_indices(len(numbers), ROUNDS))
    ]


def rollout(one: RolloutSample) -> dict[str, Any]:
    """num_turns: the policy's, as in the metric episode/turns; only episodes have it."""
    num_turns = sum(row["writer"] == POLICY for row in one.turns)
    of_episode = {"num_turns": num_turns} if one.turns else {}
    return {
        "prompt": cut(one.prompt),
        "response": cut(one.response),
        "turns": [turn(row) for row in one.turns],
        "reward": short(one.reward),
        "length": one.tokens,
        "tokens": one.tokens,
        **of_episode,
        "facts": [
            ["reward", short(one.reward)],
            ["version", one.version],
            ["lag", f"{count(one.lag_updates, 'update')}, {count(one.lag_rounds, 'round')}"],
            ["length", f"{count(one.tokens, 'token')}, {one.finish}"],
            *(["turns", number] for number in of_episode.values()),
        ],
    }


def turn(row: Mapping[str, Any]) -> dict[str, Any]:
    """A text of an episode. about: what is shown where a reader points at it."""
    found = {"writer": row["writer"], "text": cut(row["text"])}
    if "reward" not in row:
        return found
    first, last = row["version"], row["newest_version"]
    by = f"version {first}" if first == last else f"versions {first} to {last}"
    logps = " ".join(f"{logp:.2f}" for logp in row["logps"])
    about = f"{count(len(row['logps']), 'token')} of {by}; log-probs {logps}"
    return found | {"reward": short(row["reward"]), "about": cut(about)}


def judged(folder: Path) -> list[dict[str, Any]]:
    """Samples of the last evaluation, beside the references."""
    try:
        rows = read_rows(folder / JUDGED)
    except UserError:
        return []
    shown = [found for row in rows[:SAMPLES] if (found := evaluated(row))]
    return [{"name": "last evaluation", "samples": shown}] if shown else []


def evaluated(row: Mapping[str, Any]) -> dict[str, Any] | None:
    if not isinstance(row.get("prompt"), str) or not isinstance(row.get("sample"), str):
        return None
    names = {"gold": "gold score", "reference_gold": "reference's gold score"}
    facts = [[text, short(row[key])] for key, text in names.items() if is_number(row.get(key))]
    text, gold = row["sample"], row.get("gold")
    found = {
        "prompt": cut(row["prompt"]),
        "response": cut(text),
        "facts": facts,
        "reward": short(gold) if is_number(gold) else None,
        "length": len(text),
    }
    reference = row.get("reference")
    return found | ({"reference": cut(reference)} if isinstance(reference, str) else {})


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def cut(text: str) -> str:
    return text if len(text) <= CHARACTERS else text[: CHARACTERS - len(CUT)] + CUT
