"""`rlhf-lab report`: one page about runs, to read anywhere."""

from rlhf_lab.cli.analysis_command import analysis_command

COMMAND = analysis_command(
    "report",
    "one page about runs, to read anywhere",
    "runs --out report.html",
    usage="RUNS... [--out report.html] [--title TEXT] [--metric NAME] [--margin NUMBER]",
    module="report.command",
)
