"""`rlhf-lab replay`: repeat a run's recorded schedule in a new folder."""

from rlhf_lab.cli import train
from rlhf_lab.cli.arguments import overrides_of_replay
from rlhf_lab.cli.command import RunCommand

COMMAND = RunCommand(
    "replay",
    "repeat a run's recorded schedule bit for bit",
    "runs/RUN output.dir=runs/again",
    usage="RUN [key=value ...] [--make-stages]",
    is_distributed=True,
    job=train.job,
    job_of_run=train.job_of_run,
    job_command=train.COMMAND.name,
    of_run=overrides_of_replay,
)
