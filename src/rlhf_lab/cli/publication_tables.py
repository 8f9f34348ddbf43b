"""`rlhf-lab publication-tables`: tables of results in LaTeX, Markdown and CSV."""

from rlhf_lab.cli.analysis_command import analysis_command

COMMAND = analysis_command(
    "publication-tables",
    "tables of results in LaTeX, Markdown and CSV",
    "runs/own --out tables",
    usage="RUNS... --out FOLDER [--only TABLE ...] [--metric METRIC ...] [--baseline KEY=VALUE] "
    "[--margin SIZE] [--style FILE]",
    module="publication_tables.command",
)
