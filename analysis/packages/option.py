"""The option `--with PACKAGE` of report and figures."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.packages.beside import Beside
from rlhf_lab_analysis.packages.by_open_rl_benchmark import by_open_rl_benchmark
from rlhf_lab_analysis.packages.by_rliable import by_rliable
from rlhf_lab_analysis.sources.record import Record

PACKAGES = ("rliable", "openrlbenchmark")


def add_with(parser: argparse.ArgumentParser) -> None:
    """Declare the option, which may be repeated."""
    parser.add_argument(
        "--with",
        dest="packages",
        action="append",
        default=[],
        choices=PACKAGES,
        help="also the numbers of this package itself, beside ours (repeat)",
    )


def beside(
    packages: Sequence[str],
    selection: Selection,
    records: Sequence[Record],
    metric: str,
    folder: Path | None = None,
) -> Iterator[Beside]:
    """What the named packages make of the runs. records: those of the selection's tables. folder:
    for their drawings. Raises UserError as the packages' functions do."""
    if "rliable" in packages:
        yield from by_rliable(selection, metric, folder)
    if "openrlbenchmark" in packages:
        yield from by_open_rl_benchmark(records, metric, folder)
