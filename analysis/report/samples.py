"""Collect some samples of each condition: those that rounds were trained on, and judged ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.rollouts import RolloutSample, read_rollouts
from rlhf_lab.runs.trackers.console import counted
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import POLICY
from rlhf_lab_analysis.report.groups import Group
from rlhf_lab_analysis.report.series import even_indices, short

JUDGED = "samples.jsonl"
# Of a page, of a run, of a round, and of a text's characters.
MOST_RUNS, ROUNDS, SAMPLES, CHARACTERS = 24, 6, 4, 1200
# Samples with single tokens: the first runs of a page, the first of a round, tokens of a sample.
TOKEN_RUNS, TOKEN_SAMPLES, TOKENS = 4, 2, 256


class Range(NamedTuple):
    """A number that samples are found by. key: of a sample. step: of the field; "any" for what is
    no whole number, which is compared as it is shown."""

    name: str
    key: str
    step: str


# The template makes the fields, and the scripts read names and keys from these.
RANGES = (
    Range("reward", "reward", "any"),
    Range("tokens", "tokens", "1"),
    Range("turns", "num_turns", "1"),
)
CUT = " …"


def samples(groups: Sequence[Group], ranked: Sequence[int]) -> list[dict[str, Any]]:
    """Of the first conditions in `ranked` that have some: the samples of one run, by round."""
    found: list[dict[str, Any]] = []
    for place in ranked:
        if len(found) == MOST_RUNS:
            break
        if one := of_group(groups[place], len(found) < TOKEN_RUNS):
            found.append({"group": place, **one})
    return found


def of_group(group: Group, has_tokens: bool) -> dict[str, Any] | None:
    """The samples of the first seed that has some. has_tokens: whether with single tokens."""
    for seed in group.cell.seeds:
        folder = Path(str(group.cell.runs[seed]["place"]))
        if folder.is_dir() and (rounds := [*trained_on(folder, has_tokens), *judged(folder)]):
            return {"title": group.title, "seed": seed, "rounds": rounds}
    return None


def trained_on(folder: Path, has_tokens: bool) -> list[dict[str, Any]]:
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
        {
            "name": f"round {number}",
            "samples": [
                rollout(one, TOKENS if has_tokens and place < TOKEN_SAMPLES else 0)
                for place, one in enumerate(by_round[number][:SAMPLES])
            ],
        }
        for number in (numbers[place] for place in even_indices(len(numbers), ROUNDS))
    ]


def rollout(one: RolloutSample, num_tokens: int = TOKENS) -> dict[str, Any]:
    """A sample that a round was trained on, with its first `num_tokens` tokens. num_turns: the
    policy's, as in the metric episode/turns; only episodes have it."""
    of_episode = {"num_turns": one.num_turns} if one.num_turns else {}
    turns: list[dict[str, Any]] = []
    for row in one.turns:
        turns.append(turn(row, num_tokens, one.is_kept))
        num_tokens -= len(turns[-1].get("tokens", ()))
    return {
        "prompt": cut(one.prompt),
        # The texts of turns are all that there is of it.
        **({"turns": turns} if turns else {"response": cut(one.response)}),
        "number": one.round,
        "reward": short(one.reward),
        "tokens": one.tokens,
        **of_episode,
        "facts": [
            ["reward", short(one.reward)],
            ["version", one.version],
            ["lag", f"{counted(one.lag_updates, 'update')}, {counted(one.lag_rounds, 'round')}"],
            ["length", f"{counted(one.tokens, 'token')}, {one.finish}"],
            *(["turns", number] for number in of_episode.values()),
        ],
    }


def turn(row: Mapping[str, Any], num_tokens: int, is_kept: bool) -> dict[str, Any]:
    """A text of a sample with its first tokens. about: whose it is, in how many tokens, of which
    versions, and whether the loss reads them. tokens: texts; the policy's have log-probs, and one
    version or one each. text: what is behind them."""
    texts, text = row.get("token_texts", []), row["text"]
    shown = texts[:num_tokens]
    found: dict[str, Any] = {"writer": row["writer"], "about": about(row, is_kept)}
    if "reward" in row:
        found["reward"] = short(row["reward"])
    if shown:
        found["tokens"] = shown
        text = text_behind(text, "".join(shown), len(shown) < len(texts))
        if row["writer"] == POLICY:
            versions = row.get("versions", [])[:num_tokens]
            found["logps"] = [None if x is None else round(x, 3) for x in row["logps"][:num_tokens]]
            found["versions"] = versions or row["version"]
    return found | ({"text": cut(text)} if text else {})


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


def text_behind(text: str, shown: str, is_cut: bool) -> str:
    """What a text has behind the tokens that are shown. These are what was really written, with
    special tokens; a text that does not begin with them is cut off there."""
    if shown.startswith(text):
        return ""
    return text.removeprefix(shown) if text.startswith(shown) else CUT * is_cut


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
