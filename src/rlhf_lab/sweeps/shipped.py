"""The sweeps that this package ships, and how a person names one of them or a file of their own."""

from __future__ import annotations

import difflib
from pathlib import Path

from rlhf_lab.types.errors import UserError

SUFFIX = ".yaml"


def sweeps_folder() -> Path:
    """The folder sweeps/, which a checkout has at its top level and an installed package here."""
    return (Path(__file__).parent / "files").resolve()


def questions() -> dict[str, str]:
    """The first line of each sweep's file, the question that it answers, by the sweep's name."""
    files = sorted(sweeps_folder().glob(f"*{SUFFIX}"))
    return {path.stem: question_in(path.read_text(encoding="utf-8")) for path in files}


def question_in(text: str) -> str:
    """The sentences of the comment that a file begins with, up to the first question mark."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# "))
    comment = " ".join(lines)
    return comment[: comment.find("?") + 1] or comment


def sweep_file(name: str) -> Path:
    """The file of a shipped sweep's name, or of a path that ends in .yaml. Raises UserError."""
    if name.endswith(SUFFIX):
        path = Path(name)
        if not path.is_file():
            raise UserError(f"{name} is no file (this is {Path.cwd()}): pass the path of a sweep")
        return path.resolve()
    known = list(questions())
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3)
        meant = f"did you mean {', '.join(close)}?" if close else "`rlhf-lab sweep` lists them"
        raise UserError(
            f"{name} is no sweep of this package: {meant} A file of your own is named by its path, "
            f"with {SUFFIX}"
        )
    return sweeps_folder() / f"{name}{SUFFIX}"
