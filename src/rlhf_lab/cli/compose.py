"""Overrides in, a job for each config that Hydra composes from them: what the Hydra commands share.

torch is loaded once a config is checked, so that what is refused is refused at once.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from hydra_plugins.rlhf_lab_plugin.search_sweeper import SearchSweeper
from hydra_plugins.rlhf_lab_plugin.shipped_sweeps import ShippedSweeps
from hydra_plugins.rlhf_lab_plugin.slurm_launcher import SlurmLauncher
from hydra_plugins.rlhf_lab_plugin.tracked_sweeper import TrackedSweeper
from rlhf_lab.cli.arguments import recorded_overrides
from rlhf_lab.cli.command import MULTIRUN, screen
from rlhf_lab.experiment.config.code import plugins_of
from rlhf_lab.experiment.config.config import Config, changed_keys, plain
from rlhf_lab.experiment.config.groups import conf_folder
from rlhf_lab.experiment.config.plugins import activate_for
from rlhf_lab.experiment.config.renamed_files import read_earlier_names
from rlhf_lab.experiment.config.schema import register
from rlhf_lab.experiment.config.suggestions import (
    no_flags,
    require_names,
    require_overlays,
    require_own_folders,
)
from rlhf_lab.experiment.config.typed import typed
from rlhf_lab.experiment.rules.checks import (
    check,
    check_stage,
    require_readable_splits,
    require_working_parts,
)
from rlhf_lab.experiment.rules.derived import precision
from rlhf_lab.models.devices import deterministic
from rlhf_lab.runs.renames import present_overrides
from rlhf_lab.runs.signals import begun
from rlhf_lab.runs.summaries import after_run, print_next
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.runs.trust import composing
from rlhf_lab.sweeps.job import content_of
from rlhf_lab.sweeps.launchers import slurm
from rlhf_lab.sweeps.override_text import PRIMARY, plain_override, primary_config
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from rlhf_lab.experiment.run.fork import Fork

Job = Callable[[DictConfig], None]
# The flag of Hydra that adds a folder to those of conf/, and others that stand for it here.
CONFIG_DIR, PATH_FLAGS = "--config-dir", ("-cd", "--config-path", "-cp")
REPLAYED = ("max_staleness", "when_stale", "extra_rounds")


def compose(job: Job, overrides: Sequence[str], command: str = "", run: Path | None = None) -> None:
    """Let Hydra compose the config of these overrides and run the job on it, or a sweep of jobs.

    command: what sweeps start for each of their jobs; "" for jobs that cannot be swept. run: whose
    overrides these are; None for the user's alone.
    """
    with composing(run), ExitStack() as reading:
        if not MULTIRUN & set(overrides):  # a sweep has a display of all of its jobs
            reading.enter_context(screen().phase("reading the config"))
        prepare_hydra(overrides)

        @functools.wraps(job)
        def begin(cfg: DictConfig) -> None:
            reading.close()
            job(cfg)

        run_job(begin, command)


def prepare_hydra(overrides: Sequence[str]) -> None:
    """Bring plugins, config and arguments to where Hydra looks for them."""
    activate_for(overrides)
    register()
    read_earlier_names()
    # Hydra looks for plugins in folders, where an editable install has none.
    for plugin in (TrackedSweeper, SearchSweeper, SlurmLauncher, ShippedSweeps):
        Plugins.instance().register(plugin)
    slurm.register()
    words = flags_first(present_overrides(overrides))
    sys.argv = ["rlhf-lab", *map(plain_override, words)]
    require_names(sys.argv[1:])


def run_job(job: Job, command: str) -> None:
    """Let Hydra run the job on the config of the arguments. Raises what it raises."""
    wrap = hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name=PRIMARY)
    raised: list[Exception] = []

    @functools.wraps(job)
    def task(cfg: DictConfig) -> None:
        try:
            loader = GlobalHydra.instance().config_loader()
            require_overlays(HydraConfig.get().runtime, loader)
            with deterministic(bool(cfg.get("deterministic"))):
                job(cfg)
        except Exception as error:
            if HydraConfig.get().mode is not RunMode.RUN:
                raise
            raised.append(error)  # Hydra would print all overrides before it raises this

    task.command = command  # type: ignore[attr-defined]
    wrap(task)()
    if raised:
        raise raised[0]


def flags_first(words: Sequence[str]) -> list[str]:
    """Flags before overrides, as Hydra's parser takes them, whatever their order was. The folder of
    --config-path is searched beside conf/, as that of --config-dir is. Refused is what the parser
    would answer with its own usage, without what was meant."""
    parser = get_args_parser()

    def refuse(message: str) -> NoReturn:
        raise UserError(no_flags(message))

    parser.error = refuse
    known = {name: action for action in parser._actions for name in action.option_strings}
    flags: list[str] = []
    overrides: list[str] = []
    values: Any = ()  # that the flag before may have; None for any
    for word in words:
        if values is None or word in values:
            flags.append(os.path.expanduser(word))
            values = ()
        elif word.startswith("-"):
            name, sign, value = word.partition("=")
            flag = CONFIG_DIR if name in PATH_FLAGS else name
            flags.append(f"{flag}{sign}{os.path.expanduser(value)}")
            action = known.get(name)
            values = () if sign or action is None or action.nargs == 0 else action.choices
        else:
            overrides.append(word)
            values = ()
    if flags and flags[-1] in known and known[flags[-1]].nargs == "?":
        flags.append("--")  # which ends a flag that may have a value
    if sum(word.partition("=")[0] == CONFIG_DIR for word in flags) > 1:
        raise UserError(f"{CONFIG_DIR} twice: pass one, and hydra.searchpath=[FOLDER] for others")
    found = parser.parse_args([*flags, *overrides])
    if found.multirun and found.cfg:
        raise UserError("-m with --cfg: a sweep has many configs; leave one of them out")
    require_own_folders(overrides)
    return [*flags, *overrides]


def checked(cfg: DictConfig, rules: Callable[[Config], Config] = check) -> tuple[Config, Console]:
    """The config of a job, once nothing in it is refused, and the console that it prints to.

    rules: the first check, which gives the config with the parts that are used. The order is that
    of cost: settings, rows, libraries, parts of the user's own, the lengths of prompts.
    """
    config = typed(cfg)
    console = Console(quiet=config.output.quiet)
    with console.phase("checking settings and data"):
        used = rules(config)
        require_readable_splits(config)
    with console.phase("loading torch and transformers"):
        import transformers.modeling_utils  # noqa: F401

        from rlhf_lab.models.hub_client import limit_hub

        limit_hub()
    with console.phase("checking rewards and prompts"):
        require_working_parts(used)
        from rlhf_lab.experiment.build.prompt_lengths import require_fit
        from rlhf_lab.experiment.build.vocabulary import require_known_prompts

        require_known_prompts(used, console.print)
        require_fit(config)
    begun()
    return config, console


def stage(cfg: DictConfig, judges: bool = True) -> tuple[Config, Console]:
    """The same for a stage of a run, which needs room on the disk, and no reward. judges: whether
    the judge orders pairs for it."""
    config, console = checked(cfg, functools.partial(check_stage, judges=judges))
    from rlhf_lab.experiment.planning.forecast import require_room

    require_room(config, is_run=False)
    return config, console


def start_run(
    command: str, run: Callable[[Config, Console, Mapping[str, Any]], Path], cfg: DictConfig
) -> Path:
    """Start a run, in the main process of those that torchrun may have started, and print what can
    be done with it. run: returns its folder, as this does."""
    config, console = checked(cfg)
    with console.phase("loading the trainer"):
        import rlhf_lab.experiment.run.lifecycle  # noqa: F401
        from rlhf_lab.experiment.planning.forecast import few_prompts, require_room
        from rlhf_lab.experiment.run.fork import fork_of
        from rlhf_lab.experiment.run.round_warnings import last_line
        from rlhf_lab.models.causal_lm import require_weights
        from rlhf_lab.training.engines.broadcast_engine import STOP
        from rlhf_lab.training.engines.distributed import main_rank

    require_room(config, is_run=True)
    if note := few_prompts(config):
        console.print(f"warning: {note}")
    require_weights(config.model)
    if config.eval.label:
        raise UserError(
            f"eval.label={config.eval.label}: a run's own evaluation has none; pass it to "
            "`rlhf-lab evaluate RUN`"
        )
    if config.eval.is_harness:
        raise UserError(
            f"eval={config.eval.name} eval.tasks={config.eval.tasks}: benchmarks run on a run's "
            "policy; pass them to `rlhf-lab evaluate RUN`"
        )
    fork = fork_of(config, config_of_run)
    with main_rank(STOP):
        folder = run(config, console, facts(command, cfg, config, fork))
    if not config.output.log:  # a sweep's job writes to a log
        print_next(console, after_run(folder))
    if line := last_line(folder, config):
        console.print(line)
    return folder


def config_of_run(folder: Path) -> Config:
    """The config that a run was started with, composed beside the one of this job."""
    overrides = [text for text in recorded_overrides(folder) if not text.startswith("output.")]
    loader = GlobalHydra.instance().config_loader()
    name = HydraConfig.get().job.config_name
    with composing(folder):  # its values are compared alone: no part of it is built
        cfg = loader.load_configuration(name, overrides=overrides, run_mode=RunMode.RUN)
    return typed(cfg)


def facts(command: str, cfg: DictConfig, config: Config, fork: Fork) -> dict[str, Any]:
    """What a run's folder records about its config, and the past of a fork."""
    import torch

    resolved = plain(config)
    manifest = {
        "command": command,
        "primary_config": primary_config(HydraConfig.get()),
        "overrides": list(HydraConfig.get().overrides.task),
        "working_folder": os.getcwd(),
        "seed": config.seed,
        "task": config.task.name,
        "algo": config.algo.name,
        "correction": config.correction.name,
        "mode": config.mode.name,
        "model": config.model.name,
        "num_rounds": config.run.num_rounds,
        "content": content_of(config),
        "changed": changed_keys(config),
        "log": config.output.log or None,
        "plugins": plugins_of(config),
        "mode_settings": {key: plain(getattr(config.mode, key)) for key in REPLAYED},
        "precision": precision(config),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
    if fork.facts is not None:
        manifest["fork"] = dict(fork.facts)
    text = OmegaConf.to_yaml(cfg, resolve=True)
    return {"manifest": manifest, "config_yaml": text, "resolved": resolved, "fork": fork}
