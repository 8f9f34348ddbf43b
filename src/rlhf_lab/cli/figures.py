"""`rlhf-lab figures`: all figures that runs allow, with their data and captions."""

from rlhf_lab.cli.analysis_command import analysis_command

COMMAND = analysis_command(
    "figures",
    "all figures that runs allow, with their data and captions",
    "runs/own --out figures",
    usage="RUNS... [--out FOLDER] [--only NAME ...] [--formats png,pdf,svg] [--list] "
    "[--with rliable|openrlbenchmark]",
    module="figures.__main__",
)
