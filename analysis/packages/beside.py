"""What a package makes of runs: a table with its numbers beside ours, and files that it draws."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from rlhf_lab.types.errors import UserError

DIGITS = 4


@dataclass(frozen=True)
class Beside:
    """title, note: what the package computed, and how. data: its numbers and ours, a row for each
    condition. drawn: paths of the files that it drew."""

    name: str
    title: str
    note: str
    data: pd.DataFrame
    drawn: tuple[Path, ...] = ()

    @property
    def rows(self) -> list[list[str]]:
        """The cells as a page shows them."""
        return [
            [f"{cell:.{DIGITS}f}" if isinstance(cell, float) else str(cell) for cell in row]
            for row in self.data.itertuples(index=False)
        ]

    def write(self, folder: Path) -> Path:
        """Write the table as NAME.csv."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.csv"
        self.data.to_csv(path, index=False, lineterminator="\n")
        return path


def require(package: str) -> None:
    """Raises UserError if a package is not installed."""
    if find_spec(package) is None:
        raise UserError(f"--with {package}: it is not installed: pip install 'rlhf-lab[analysis]'")
