"""`rlhf-lab samples`: texts that a run was trained on, with reward, version and lag."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path

from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.runs.folder import ROLLOUTS, manifest_path
from rlhf_lab.runs.rollouts import RolloutSample, read_rollouts
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

INDENT = "  "


def sample_lines(run: Path, round_: int | None, last: int, width: int) -> Iterator[str]:
    """The last samples of a run, or of one of its rounds, as lines of at most `width` characters.
    Raises UserError if there are none."""
    manifest_path(run)
    samples = read_rollouts(run)
    if not samples:
        raise UserError(
            f"{run} has no {ROLLOUTS}: a run keeps samples from its first round on, unless "
            "tracker.samples=0"
        )
    if round_ is not None:
        rounds = sorted({one.round for one in samples})
        samples = [one for one in samples if one.round == round_]
        if not samples:
            raise UserError(f"--round {round_}: {run} has samples of {rounds[0]} to {rounds[-1]}")
    for sample in samples[-last:]:
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


def printable(text: str) -> str:
    """The text with control characters escaped: a model can write those that a terminal obeys."""
    return "".join(
        one if one.isprintable() or one == "\n" else one.encode("unicode_escape").decode()
        for one in text
    )


def natural(text: str) -> int:
    """A whole number from 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: pass a whole number")
    return int(text)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--round", type=natural, metavar="R", help="only samples of this round")
    parser.add_argument(
        "--last", type=natural, default=4, metavar="N", help="how many samples are shown (4)"
    )


def show(options: argparse.Namespace, console: Console) -> int:
    """Print the samples. Returns 0."""
    if options.last < 1:
        raise UserError("--last 0 shows nothing: pass 1 or more")
    width = max(40, shutil.get_terminal_size().columns)
    for line in sample_lines(options.run, options.round, options.last, width):
        console.print(line)
    return 0


COMMAND = OptionsCommand(
    "samples",
    "print samples that a run was trained on, with reward, version and lag",
    "runs/RUN --round 8",
    usage="RUN [--round R] [--last N]",
    add_options=add_options,
    action=show,
)
