"""What a sweep is started with: its file, by the name of one that this package ships or by its
path, and the options of the sweeper, `hydra.sweeper.KEY=VALUE`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.types.errors import UserError

RERUNS = ("none", "failed")
OTHER_CODE = ("refuse", "keep")
SUFFIX = ".yaml"


@dataclass(frozen=True)
class SweeperOptions:
    """dry: print all jobs and stop. rerun: `failed` runs failed jobs again. extend: jobs may be
    added to an older sweep of the same settings. other_code: `keep` counts jobs that other code
    finished, and resumes those that it started. layout: of every job on Slurm, such as 2x8:8+8
    (`rlhf-lab launch`).
    """

    dry: bool = False
    rerun: str = "none"
    extend: bool = False
    other_code: str = "refuse"
    layout: str = ""

    def __post_init__(self) -> None:
        for key, known in (("rerun", RERUNS), ("other_code", OTHER_CODE)):
            if getattr(self, key) not in known:
                raise UserError(
                    f"hydra.sweeper.{key}={getattr(self, key)}: choose one of {', '.join(known)}"
                )


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
