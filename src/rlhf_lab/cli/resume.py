"""`rlhf-lab resume`: go on with a run that ended early, in its folder."""

from __future__ import annotations

from rlhf_lab.cli import train
from rlhf_lab.cli.arguments import overrides_again, run_folder
from rlhf_lab.cli.command import HydraCommand


def overrides(arguments: list[str]) -> list[str]:
    """RUN [overrides] as the overrides of the run that goes on."""
    folder = run_folder(COMMAND, arguments)
    return overrides_again(folder, arguments[1:], "output.resume=true")


COMMAND = HydraCommand(
    "resume",
    "go on with a run that ended early",
    "runs/RUN",
    is_distributed=True,
    job=train.job,
    job_command=train.COMMAND.name,
    usage="RUN [key=value ...]",
    overrides=overrides,
)
