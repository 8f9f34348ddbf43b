"""A mirror of the metrics at Weights & Biases, or in a folder for `rlhf-lab sync` to send later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rlhf_lab.types.data import Metrics
from rlhf_lab.types.errors import UserError

# A run waits no longer than this for a server that does not answer, before its first step.
INIT_SECONDS = 60.0
# The folder in a run's folder that wandb writes to.
FILES = "wandb"
# The axis that Open RL Benchmark reads unless told otherwise: optimizer updates.
STEP = "global_step"
UPDATES = "total/updates"


@dataclass(frozen=True)
class WandbOptions:
    """Where a run appears, and under which name. Empty texts leave the choice to wandb."""

    mode: Literal["online", "offline"]
    project: str
    entity: str = ""
    group: str = ""
    name: str = ""
    tags: tuple[str, ...] = ()
    id: str = ""
    job_type: str = ""


class WandbTracker:
    """One wandb run whose files are in `folder`/wandb. The config is the run's, in plain data."""

    def __init__(self, options: WandbOptions, folder: Path, config: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError as error:
            raise UserError(
                f"tracker.wandb={options.mode} needs the package wandb: "
                "pip install 'rlhf-lab[wandb]', or choose tracker=jsonl"
            ) from error
        self._teardown = wandb.teardown
        try:
            self._run = wandb.init(
                mode=options.mode,
                project=options.project,
                entity=options.entity or None,
                group=options.group or None,
                name=options.name or None,
                id=options.id or None,
                resume="allow" if options.id else None,
                tags=list(options.tags),
                job_type=options.job_type or None,
                dir=str(folder),
                config=dict(config),
                settings=wandb.Settings(silent=True, console="off", init_timeout=INIT_SECONDS),
            )
        except wandb.Error as error:
            raise UserError(
                f"tracker.wandb={options.mode}: {error}: run `wandb login`, or choose "
                "tracker=wandb_offline and send the run later with `rlhf-lab sync`"
            ) from error

    def log(self, metrics: Metrics, step: int) -> None:
        updates = {STEP: metrics[UPDATES]} if UPDATES in metrics else {}
        self._run.log({**updates, **metrics}, step=step)

    def close(self) -> None:
        self._run.finish()
        # In offline mode finish returns before the service has written the file.
        self._teardown()
