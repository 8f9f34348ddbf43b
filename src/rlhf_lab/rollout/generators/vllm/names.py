"""Names that a server and a run share."""

from __future__ import annotations

import os

# Set by whoever starts servers and trainers of one job; empty: any server will do.
RUN_ID = "RLHF_LAB_RUN_ID"
SERVED = "rlhf_lab"
# Where a server takes prompts as tokens.
GENERATE = "/inference/v1/generate"


def run_id() -> str:
    """The id that the job's servers and trainers share."""
    return os.environ.get(RUN_ID, "")


def of_run(version: str) -> str:
    """A version's name at a server: RUN/12, or 12 without a run id."""
    return f"{run_id()}/{version}" if run_id() else version


def within_run(name: str) -> str:
    """A version's name in this run; a name of another run stays as it is."""
    return name.removeprefix(f"{run_id()}/") if run_id() else name


def served_model() -> str:
    """The model name of a server of this run."""
    return of_run(SERVED) if run_id() else ""
