"""`rlhf-lab fork`: go on from a round of a run in a new folder, with other settings."""

from rlhf_lab.cli import train
from rlhf_lab.cli.arguments import overrides_of_fork
from rlhf_lab.cli.command import RunCommand

COMMAND = RunCommand(
    "fork",
    "go on from a round of a run in a new folder, with other settings",
    "runs/RUN round=10 correction=truncated_is",
    usage="RUN round=R [key=value ...] [-m for a sweep] [--make-stages]",
    is_distributed=True,
    job=train.job,
    job_of_run=train.job_of_run,
    job_command=train.COMMAND.name,
    of_run=overrides_of_fork,
)
