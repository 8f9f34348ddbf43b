"""`rlhf-lab replay`: repeat a run's recorded schedule in a new folder."""

from __future__ import annotations

from rlhf_lab.cli import train
from rlhf_lab.cli.arguments import overrides_of_replay, run_folder
from rlhf_lab.cli.command import HydraCommand


def overrides(arguments: list[str]) -> list[str]:
    """RUN [overrides] as the overrides of the replay."""
    return overrides_of_replay(run_folder(COMMAND, arguments), arguments[1:])


COMMAND = HydraCommand(
    "replay",
    "repeat a run's recorded schedule bit for bit",
    "runs/RUN output.dir=runs/again",
    is_distributed=True,
    job=train.job,
    job_command=train.COMMAND.name,
    usage="RUN [key=value ...]",
    overrides=overrides,
)
