"""The door to analysis.report, which the packages that train know nothing of."""

from __future__ import annotations

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

# What the extra brings; any other missing module is an error of ours.
BROUGHT = ("matplotlib", "pandas", "pyarrow", "scipy", "wandb", "tensorboard")


def show(arguments: list[str], console: Console) -> int:
    """Write the page of `rlhf-lab report RUNS...`. Raises UserError without the extra."""
    try:
        from analysis.report.command import run
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in BROUGHT:
            raise
        raise UserError(
            f"it needs the package {error.name}: pip install 'rlhf-lab[analysis]'"
        ) from error
    return run(arguments, console)
