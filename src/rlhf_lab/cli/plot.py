"""`rlhf-lab plot`: one figure of any runs."""

from rlhf_lab.cli.analysis_command import analysis_command

COMMAND = analysis_command(
    "plot",
    "one figure of any runs: curves, ends, differences, a front",
    "runs -y win_rate",
    usage="RUNS... [-y METRIC ...] [-x AXIS ...] [--diff BASELINE] [--by KEY ...] "
    "[--facet KEY ...] [--ends|--front|--heat|--timeline] [--style FILE] [--out PATH]",
    module="plots.command",
)
