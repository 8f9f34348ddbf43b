"""`rlhf-lab resume`: go on with a run that ended early, in its folder."""

from rlhf_lab.cli import train
from rlhf_lab.cli.arguments import overrides_to_resume
from rlhf_lab.cli.command import RunCommand

COMMAND = RunCommand(
    "resume",
    "go on with a run that ended early",
    "runs/RUN",
    usage="RUN [key=value ...] [--make-stages]",
    is_distributed=True,
    job=train.job,
    job_of_run=train.job_of_run,
    job_command=train.COMMAND.name,
    of_run=overrides_to_resume,
)
