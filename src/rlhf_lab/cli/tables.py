"""`rlhf-lab tables`: tracked runs as one tidy table, and what is wrong with them."""

from rlhf_lab.cli.analysis_command import analysis_command

COMMAND = analysis_command(
    "tables",
    "tracked runs as one tidy table, and what is wrong with them",
    "runs/own --out tables.parquet",
    usage="SOURCE... [--metric NAME] [--out FILE.parquet] [--export FOLDER]",
    module="tables.__main__",
)
