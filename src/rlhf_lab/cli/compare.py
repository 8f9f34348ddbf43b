"""`rlhf-lab compare`: runs side by side: tables with intervals, and figures."""

from rlhf_lab.cli.analysis_command import analysis_command

COMMAND = analysis_command(
    "compare",
    "runs side by side: tables with intervals, and figures",
    "runs/demo",
    usage="RUNS... [--diff BASELINE] [--out FOLDER]",
    module="studies.compare",
)
