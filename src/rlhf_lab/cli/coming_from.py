"""The table of docs/coming_from.md: python -m rlhf_lab.cli.coming_from docs/coming_from.md"""

from __future__ import annotations

import sys
from pathlib import Path

from rlhf_lab.experiment.other_names import page_table

BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


def with_table(page: str) -> str:
    """A page with the table between its marks."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{chr(10).join(page_table())}\n{END}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text(encoding="utf-8")), encoding="utf-8")
