"""Options of the sweeper, `hydra.sweeper.KEY=VALUE`."""

from __future__ import annotations

from dataclasses import dataclass

from rlhf_lab.types.errors import UserError

RERUNS = ("none", "failed")
OTHER_CODE = ("refuse", "keep")


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
