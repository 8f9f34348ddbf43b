"""Overrides in, a job for each config that Hydra composes from them: what the Hydra commands share.

Imports all that a run needs, so the files of commands import it when they run.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from hydra_plugins.rlhf_lab_plugin.search_sweeper import SearchSweeper
from hydra_plugins.rlhf_lab_plugin.slurm_launcher import SlurmLauncher
from hydra_plugins.rlhf_lab_plugin.tracked_sweeper import TrackedSweeper
from rlhf_lab.cli.endings import REFUSALS
from rlhf_lab.experiment.checks import check, require_readable_splits, require_working_rewards
from rlhf_lab.experiment.config import Config, plain, typed
from rlhf_lab.experiment.config_schema import register
from rlhf_lab.experiment.former_files import read_former_names
from rlhf_lab.experiment.planning.forecast import require_prompts, require_room
from rlhf_lab.experiment.registry import conf_folder
from rlhf_lab.runs.folder import config_hash
from rlhf_lab.runs.foreign.boundary import no_quiet_end
from rlhf_lab.runs.former_names import present_overrides
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.job import content_of, without_addresses
from rlhf_lab.sweeps.launchers import slurm
from rlhf_lab.sweeps.override_text import PRIMARY, primary_config
from rlhf_lab.training.engines.broadcast_engine import STOP
from rlhf_lab.training.engines.distributed import main_rank
from rlhf_lab.types.errors import UserError

Job = Callable[[DictConfig], None]
# What may change when a run is resumed: where it writes and reports, not what it computes.
NOT_IDENTITY = ("part", "output", "data", "tracker", "checkpoint", "eval", "engine")
REPLAYED = ("max_staleness", "when_stale", "extra_rounds")


def compose(job: Job, overrides: Sequence[str], command: str = "") -> None:
    """Let Hydra compose the config of these overrides and run the job on it, or a sweep of jobs.

    command: what sweeps start for each of their jobs; "" for jobs that cannot be swept.
    """
    register()
    read_former_names()
    # Hydra looks for plugins in folders, where an editable install has none.
    for plugin in (TrackedSweeper, SearchSweeper, SlurmLauncher):
        Plugins.instance().register(plugin)
    slurm.register()
    sys.argv = ["rlhf-lab", *present_overrides(overrides)]
    wrap = hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name=PRIMARY)
    refused: list[Exception] = []

    @functools.wraps(job)
    def task(cfg: DictConfig) -> None:
        try:
            with no_quiet_end():
                job(cfg)
        except REFUSALS as error:
            if HydraConfig.get().mode is not RunMode.RUN:
                raise
            refused.append(error)  # Hydra would print all overrides before it raises this

    task.command = command  # type: ignore[attr-defined]
    wrap(task)()
    if refused:
        raise refused[0]


def checked(cfg: DictConfig) -> tuple[Config, Console]:
    """The config of a job, once nothing in it is refused, and the console that it prints to."""
    config = typed(cfg)
    check(config)
    require_readable_splits(config)
    require_working_rewards(config)
    return config, Console(quiet=config.output.quiet)


def stage(cfg: DictConfig) -> tuple[Config, Console]:
    """The same for a stage of a run, which needs room on the disk."""
    config, console = checked(cfg)
    require_room(config, is_run=False)
    return config, console


def start_run(
    command: str, run: Callable[[Config, Console, Mapping[str, Any]], object], cfg: DictConfig
) -> None:
    """Start a run, in the main process of those that torchrun may have started."""
    config, console = checked(cfg)
    require_room(config, is_run=True)
    require_prompts(config)
    if config.eval.label:
        raise UserError(
            f"eval.label={config.eval.label}: a run's own evaluation has none; pass it to "
            "`rlhf-lab evaluate RUN`"
        )
    if config.eval.tasks or config.eval.name == "harness":
        raise UserError(
            f"eval={config.eval.name} eval.tasks={config.eval.tasks}: benchmarks run on a run's "
            "policy; pass them to `rlhf-lab evaluate RUN`"
        )
    with main_rank(STOP):
        run(config, console, facts(command, cfg, config))


def facts(command: str, cfg: DictConfig, config: Config) -> dict[str, Any]:
    """What a run's folder records about its config."""
    resolved = plain(config)
    manifest = {
        "command": command,
        "primary_config": primary_config(HydraConfig.get()),
        "overrides": list(HydraConfig.get().overrides.task),
        "seed": config.seed,
        "task": config.task.name,
        "algo": config.algo.name,
        "correction": config.correction.name,
        "mode": config.mode.name,
        "model": config.model.name,
        "num_rounds": config.run.num_rounds,
        "config_hash": config_hash(resolved),
        "content": content_of(config),
        "log": config.output.log or None,
        "mode_settings": {key: plain(getattr(config.mode, key)) for key in REPLAYED},
        "identity": config_hash(
            {k: v for k, v in without_addresses(resolved).items() if k not in NOT_IDENTITY}
        ),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
    text = OmegaConf.to_yaml(cfg, resolve=True)
    return {"manifest": manifest, "config_yaml": text, "resolved": resolved}
