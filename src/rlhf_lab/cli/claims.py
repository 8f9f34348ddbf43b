"""`rlhf-lab claims`: which claims of papers hold, at which scale, and from which runs."""

from rlhf_lab.cli.analysis_command import analysis_command

COMMAND = analysis_command(
    "claims",
    "which claims of papers hold, at which scale, and from which runs",
    "runs/off_policy_ladder_nano",
    usage="[SOURCE...] [--only NAME] [--claims FOLDER]",
    module="benchmark.claims",
)
