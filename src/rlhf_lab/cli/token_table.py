"""The tokens of a kept sample as a table in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Any

from rlhf_lab.runs.folder import ROLLOUTS
from rlhf_lab.runs.rollouts import RolloutSample
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import OFFLINE, POLICY, lag_in_rounds

MISSING = "-"
COLUMNS = ("place", "writer", "log-prob", "version", "lag", "token")
LINE = "{:>6}  {:<11}  {:>8}  {:>7}  {:>3}  {}"


def token_lines(sample: RolloutSample, width: int) -> Iterator[str]:
    """A line for each token behind the prompt, its place from 0: who wrote it, and of the policy's
    the log-prob, the version that wrote it, and its lag in rounds. Raises UserError for a sample
    that was kept without tokens."""
    if not sample.turns or any("token_texts" not in turn for turn in sample.turns):
        raise UserError(
            f"--tokens: {sample.uid} of round {sample.round} was kept without tokens, by an "
            f"earlier version: {ROLLOUTS} of a new run has them"
        )
    yield LINE.format(*COLUMNS)
    cells = (one for turn in sample.turns for one in token_cells(turn, sample.round))
    for place, one in enumerate(cells):
        yield LINE.format(place, *one)[:width]


def token_cells(turn: Mapping[str, Any], round_: int) -> Iterator[tuple[object, ...]]:
    """The cells of each token of a text: writer, log-prob, version, lag and the token, quoted."""
    writer, texts = turn["writer"], [quoted(text) for text in turn["token_texts"]]
    if writer != POLICY:
        for text in texts:
            yield writer, MISSING, MISSING, MISSING, text
        return
    versions = turn.get("versions") or repeat(turn.get("version"), len(texts))
    for text, logp, version in zip(texts, turn["logps"], versions, strict=True):
        lag = MISSING if version == OFFLINE else lag_in_rounds(round_, version)
        yield writer, MISSING if logp is None else f"{logp:.4f}", version, lag, text


def quoted(text: str) -> str:
    """The text in quotes, with what a terminal obeys or does not show as escapes."""
    return repr(text)
