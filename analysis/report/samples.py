"""Collect some samples of each condition: those that rounds were trained on, and judged ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.rollouts import read_rollouts
from rlhf_lab.runs.schema import RolloutSample
from rlhf_lab.runs.trackers.console import counted
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import POLICY
from rlhf_lab_analysis.report.groups import Group
from rlhf_lab_analysis.report.series import even_indices, short

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
        {"name": f"round {number}", "samples": list(map(rollout, by_round[number][:SAMPLES]))}
        for number in (numbers[place] for place in even_indices(len(numbers), ROUNDS))
    ]


def rollout(one: RolloutSample) -> dict[str, Any]:
    """A sample that a round was trained on; of an episode the texts of its turns."""
    turns = [turn(row, one.is_kept) for row in one.turns]
    return {
        "prompt": cut(one.prompt),
        **({"turns": turns} if turns else {"response": cut(one.response)}),
        "reward": short(one.reward),
        "tokens": one.tokens,
        "facts": [
            ["reward", short(one.reward)],
            ["version", one.version],
            ["lag", f"{counted(one.lag_updates, 'update')}, {counted(one.lag_rounds, 'round')}"],
            ["length", f"{counted(one.tokens, 'token')}, {one.finish}"],
            *([["turns", one.num_turns]] if one.num_turns else []),
        ],
    }


def turn(row: Mapping[str, Any], is_kept: bool) -> dict[str, Any]:
    """A text of a sample. about: whose it is, in how many tokens, of which versions, and whether
    the loss reads them."""
    reward = {"reward": short(row["reward"])} if "reward" in row else {}
    text = cut(row["text"])
    return {"writer": row["writer"], "about": about(row, is_kept), "text": text, **reward}


def about(row: Mapping[str, Any], is_kept: bool) -> str:
    """A line over a text: `policy, 2 tokens of version 3, in the loss`."""
    if row["writer"] != POLICY:
        size = [counted(len(row["token_texts"]), "token")] if "token_texts" in row else []
        return ", ".join([row["writer"], *size, "masked from the loss"])
    first, last = row.get("version"), row.get("newest_version")
    by = f" of version {first}" if first == last else f" of versions {first} to {last}"
    loss = "in the loss" if is_kept else "not trained on"
    written = f"{counted(len(row['logps']), 'token')}{'' if first is None else by}"
    return f"{row['writer']}, {written}, {loss}"


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
        "characters": len(text),
    }
    reference = row.get("reference")
    return found | ({"reference": cut(reference)} if isinstance(reference, str) else {})


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def cut(text: str) -> str:
    return text if len(text) <= CHARACTERS else text[: CHARACTERS - len(CUT)] + CUT
