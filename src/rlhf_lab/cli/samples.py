"""`rlhf-lab samples`: texts that a run was trained on, with reward, version and lag; with --tokens
each token.
"""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.runs.folder import ROLLOUTS, manifest_path
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.runs.output import printable
from rlhf_lab.runs.rollouts import read_rollouts
from rlhf_lab.runs.schema import RolloutSample
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.runs.verification import changes_of
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import OFFLINE, POLICY, lag_in_rounds

MISSING = "-"
TOKEN_COLUMNS = ("place", "writer", "log-prob", "version", "lag", "token")
TOKEN_LINE = "{:>6}  {:<11}  {:>8}  {:>7}  {:>3}  {}"
INDENT = "  "
ORDERS: Mapping[str, Callable[[RolloutSample], float]] = {
    "round": lambda one: one.round,
    "reward": lambda one: one.reward,
    "length": lambda one: one.tokens,
}


def token_lines(sample: RolloutSample, width: int) -> Iterator[str]:
    """A line for each token behind the prompt, its place from 0: who wrote it, and of the policy's
    the log-prob, the version that wrote it, and its lag in rounds. Raises UserError for a sample
    that was kept without tokens."""
    if not sample.turns or any("token_texts" not in turn for turn in sample.turns):
        raise UserError(
            f"--tokens: {sample.uid} of round {sample.round} was kept without tokens, by an "
            f"earlier version: {ROLLOUTS} of a new run has them"
        )
    yield TOKEN_LINE.format(*TOKEN_COLUMNS)
    cells = (one for turn in sample.turns for one in token_cells(turn, sample.round))
    for place, one in enumerate(cells):
        yield TOKEN_LINE.format(place, *one)[:width]


def token_cells(turn: Mapping[str, Any], round_: int) -> Iterator[tuple[object, ...]]:
    """The cells of each token of a text: writer, log-prob, version, lag and the token, quoted."""
    # With what a terminal obeys or does not show as escapes.
    writer, texts = turn["writer"], [repr(text) for text in turn["token_texts"]]
    if writer != POLICY:
        for text in texts:
            yield writer, MISSING, MISSING, MISSING, text
        return
    versions = turn.get("versions") or repeat(turn.get("version"), len(texts))
    for text, logp, version in zip(texts, turn["logps"], versions, strict=True):
        lag = MISSING if version == OFFLINE else lag_in_rounds(round_, version)
        yield writer, MISSING if logp is None else f"{logp:.4f}", version, lag, text


@dataclass(frozen=True)
class SampleChoice:
    """Which samples are shown. round: None for all. text: that prompt or response must contain.
    sort: the order, of which the last ones are shown, or with is_first the first ones."""

    round: int | None = None
    text: str = ""
    sort: str = "round"
    count: int = 4
    is_first: bool = False

    def of(self, samples: Sequence[RolloutSample]) -> Sequence[RolloutSample]:
        """The chosen ones of these samples, in order."""
        found = [one for one in samples if self.text in one.prompt or self.text in one.response]
        found.sort(key=lambda one: ORDERS[self.sort](one))
        return found[: self.count] if self.is_first else found[-self.count :]


def sample_lines(
    run: Path, choice: SampleChoice, width: int, has_tokens: bool = False
) -> Iterator[str]:
    """Samples of a run as lines of at most `width` characters, with has_tokens as tables of their
    tokens; first a line if the file is not what the run wrote. Raises UserError if there are
    none."""
    manifest = read_manifest(manifest_path(run))
    samples = read_rollouts(run)
    yield from changes_of(run, ROLLOUTS, manifest)
    if not samples:
        raise UserError(
            f"{run} has no {ROLLOUTS}: a run keeps samples from its first round on, unless "
            "tracker.samples=0"
        )
    if choice.round is not None:
        rounds = sorted({one.round for one in samples})
        samples = [one for one in samples if one.round == choice.round]
        if not samples:
            raise UserError(
                f"--round {choice.round}: {run} has samples of {rounds[0]} to {rounds[-1]}"
            )
    chosen = choice.of(samples)
    if not chosen:
        raise UserError(f"--contains {choice.text!r}: none of {len(samples)} samples has this text")
    for sample in chosen:
        if has_tokens:
            yield from textwrap.wrap(numbers_of(sample), width, subsequent_indent=INDENT)
            yield from token_lines(sample, width)
        else:
            yield from lines_of(sample, width)
        yield ""


def lines_of(sample: RolloutSample, width: int) -> Iterator[str]:
    """A sample as lines: its numbers, the prompt and the response."""
    yield from textwrap.wrap(numbers_of(sample), width, subsequent_indent=INDENT)
    for title, text in (("prompt", sample.prompt), ("response", sample.response)):
        yield f"{INDENT}{title}:"
        for line in printable(text).splitlines() or [""]:
            yield from textwrap.wrap(
                line, width, initial_indent=2 * INDENT, subsequent_indent=2 * INDENT
            ) or [""]


def numbers_of(sample: RolloutSample) -> str:
    """Reward, credit, age and length of a sample in one sentence."""
    kept = "" if sample.is_kept else ", not trained on"
    end = "ended" if sample.finish == "eos" else "cut at the limit"
    return (
        f"round {sample.round}, {sample.uid}, sample {sample.sample}: reward {sample.reward:.4g}, "
        f"credit {sample.credit:.4g}{kept}, version {sample.version}, lag {sample.lag_rounds} "
        f"rounds ({sample.lag_updates} updates), {sample.tokens} tokens, {end}"
    )


def natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: pass a whole number")
    return int(text)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--round", type=natural, metavar="R", help="only samples of this round")
    parser.add_argument(
        "--contains", default="", metavar="TEXT", help="only samples with this in prompt or answer"
    )
    parser.add_argument(
        "--sort", choices=sorted(ORDERS), default="round", help="order of the samples (round)"
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--last",
        type=natural,
        metavar="N",
        help="show the last N of the order (4; with --tokens 1)",
    )
    shown.add_argument("--first", type=natural, metavar="N", help="show the first N")
    parser.add_argument(
        "--tokens",
        action="store_true",
        help="print a table of the tokens: writer, log-prob, version and lag of each",
    )


def show(options: argparse.Namespace, console: Console) -> int:
    is_first = options.first is not None
    default = 1 if options.tokens else 4
    count = options.first if is_first else default if options.last is None else options.last
    if count < 1:
        raise UserError(f"--{'first' if is_first else 'last'} 0 shows nothing: pass 1 or more")
    choice = SampleChoice(options.round, options.contains, options.sort, count, is_first)
    width = max(40, shutil.get_terminal_size().columns)
    for line in sample_lines(options.run, choice, width, options.tokens):
        console.print(line)
    return 0


SAMPLES = OptionsCommand(
    "samples",
    "print samples that a run was trained on, with reward, version and lag",
    "runs/RUN --round 8",
    usage="RUN [--round R] [--contains TEXT] [--sort reward] [--first N | --last N] [--tokens]",
    completes="folders",
    add_options=add_options,
    action=show,
)
