"""`rlhf-lab publication-tables`: tables of results in LaTeX, Markdown and CSV."""

from rlhf_lab.cli.analysis_command import analysis_command

COMMAND = analysis_command(
    "publication-tables",
    "tables of results in LaTeX, Markdown and CSV",
    "runs/own --out tables",
    usage="SOURCE... --out FOLDER [--only TABLE] [--baseline PART=VALUE] [--margin SIZE]",
    module="publication_tables.__main__",
)
