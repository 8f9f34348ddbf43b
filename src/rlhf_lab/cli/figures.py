"""`rlhf-lab figures`: the figures of the paper that runs allow."""

from rlhf_lab.cli.analysis_command import analysis_command

COMMAND = analysis_command(
    "figures",
    "the figures of the paper that runs allow, with their numbers",
    "runs/own --out figures",
    usage="RUNS... [--out FOLDER] [--only NAME ...] [--formats png,pdf,svg] [--drift METRIC] "
    "[--style FILE] [--with rliable|openrlbenchmark] [--list]",
    module="plots.paper_command",
)
