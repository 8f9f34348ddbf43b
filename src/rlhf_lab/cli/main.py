"""The door: Hydra in, a checked Config out, an exit code."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from hydra_plugins.rlhf_lab_plugin.search_sweeper import SearchSweeper
from hydra_plugins.rlhf_lab_plugin.slurm_launcher import SlurmLauncher
from hydra_plugins.rlhf_lab_plugin.tracked_sweeper import TrackedSweeper
from rlhf_lab.cli import commands, report, timeline, wandb_sync
from rlhf_lab.cli.runs_table import show
from rlhf_lab.experiment import export, train
from rlhf_lab.experiment.arguments import is_option, refuse_undecodable
from rlhf_lab.experiment.checks import (
    check,
    check_trainers,
    require_readable_splits,
    require_working_rewards,
)
from rlhf_lab.experiment.config import Config, plain, register, typed
from rlhf_lab.experiment.evaluate import Evaluated
from rlhf_lab.experiment.evaluate import show as show_evaluations
from rlhf_lab.experiment.planning import planner
from rlhf_lab.experiment.planning.forecast import require_prompts, require_room
from rlhf_lab.runs.disk import FULL, fault_of, told
from rlhf_lab.runs.folder import config_hash, manifest_path
from rlhf_lab.runs.foreign.boundary import no_quiet_end
from rlhf_lab.runs.kernels import RestartNeeded
from rlhf_lab.runs.manifest import Replayed, Started, read_manifest
from rlhf_lab.runs.reading import checked as as_kind
from rlhf_lab.runs.secrets import masked, secret_in
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.job import content_of, unaddressed
from rlhf_lab.sweeps.launchers import launch_command, slurm
from rlhf_lab.sweeps.sweep import JobsFailed
from rlhf_lab.sweeps.words import PRIMARY, primary_config, quoted
from rlhf_lab.training.engines.broadcast_engine import STOP
from rlhf_lab.training.engines.distributed import main_rank, rank, world_size
from rlhf_lab.types.errors import StopRequested, UserError

INTERRUPTED = 130
BAD_INPUT = 2
FAILED = 1
# What sysexits.h calls a temporary failure: a scheduler should run the same command again.
REQUEUE = 75

REFUSALS = (UserError, HydraException, OmegaConfBaseException)
MULTIRUN = {"-m", "--multirun"}

ABOUT = {
    "data": "look at a task's rows: lengths, repeats, overlap of splits: rlhf-lab data task=gsm8k",
    "train": "train a policy (SFT, labels and proxy are made first, or found in the cache)",
    "sft": "fine-tune the policy on reference answers",
    "label": "sample pairs from the SFT policy and order them by the gold judge",
    "relabel": "order preference pairs by the judge: rlhf-lab relabel labels.path=FILE",
    "reward-model": "train the proxy reward model on the labelled pairs",
    "stages": "make SFT, labels and proxy of a run, and stop there",
    "evaluate": "judge the saved weights of runs: rlhf-lab evaluate RUN [RUN ...] [eval=full ...]",
    "pipeline": "SFT, labels, proxy, training and evaluation, each reported",
    "runs": "list the runs on disk: rlhf-lab runs [FOLDER]",
    "resume": "go on with a run that ended early: rlhf-lab resume RUN",
    "replay": "repeat a run's recorded schedule bit for bit: rlhf-lab replay RUN [output.dir=...]",
    "timeline": "draw who worked and who waited: rlhf-lab timeline RUN [--rounds A:B]",
    "serve": "a vLLM server for runs on any host: rlhf-lab serve generator.port=8100 [model=...]",
    "launch": "commands of a run over devices and nodes: rlhf-lab launch layout=1x8:7+1 [--run]",
    "export": "a run's policy with its model card, for transformers: rlhf-lab export RUN [FOLDER]",
    "sync": "send runs of tracker=wandb_offline: rlhf-lab sync [FOLDER|RUN ...] [--dry]",
    "report": "one page about runs, to read anywhere: rlhf-lab report RUNS... [--out report.html]",
    "plan": "predict other settings from a run's times: rlhf-lab plan RUN [mode=async ...]",
}


# Commands that take a run's folder, and the job that each becomes.
OF_RUN = {"evaluate": "evaluate", "resume": "train", "replay": "train"}
STAGES = ("sft", "label", "reward-model")
# What may change when a run is resumed: where it writes and whom it tells, not what it computes.
BESIDES = ("part", "output", "data", "tracker", "checkpoint", "eval", "engine")
REPLAYED = ("max_staleness", "at_bound", "ahead")
# Commands that several processes can share.
TRAINING = ("train", "pipeline", "resume", "replay")


def conf_folder() -> Path:
    """conf/ of the checkout that this package is installed from (editable installs)."""
    folder = Path(__file__).resolve().parents[3] / "conf"
    if not folder.is_dir():
        raise UserError(f"{folder} is missing: install rlhf_lab from a checkout (pip install -e .)")
    return folder


def job(command: str, cfg: DictConfig) -> None:
    """Run one command on one composed config: one job of a sweep, or the whole of it."""
    config, console = checked(cfg)
    is_run = command in ("train", "pipeline")
    if is_run or command in STAGES:
        require_room(config, is_run)
    if is_run:
        require_prompts(config)
        if config.eval.label:
            raise UserError(
                f"eval.label={config.eval.label}: a run's own evaluation has none; pass it to "
                "`rlhf-lab evaluate RUN`"
            )
        with main_rank(STOP):
            getattr(commands, command)(config, console, facts(command, cfg, config))
        return
    getattr(commands, command.replace("-", "_"))(config, console)


def checked(cfg: DictConfig) -> tuple[Config, Console]:
    """The config of a job, once nothing in it is refused, and where the job speaks."""
    config = typed(cfg)
    check(config)
    require_readable_splits(config)
    require_working_rewards(config)
    return config, Console(quiet=config.output.quiet)


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
            {k: v for k, v in unaddressed(resolved).items() if k not in BESIDES}
        ),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
    text = OmegaConf.to_yaml(cfg, resolve=True)
    return {"manifest": manifest, "config_yaml": text, "resolved": resolved}


def task_of(command: str) -> Callable[[DictConfig], None]:
    """A command as Hydra's task function, which sweepers ask for its command."""

    def run(cfg: DictConfig) -> None:
        with no_quiet_end():
            job(command, cfg)

    run.command = command  # type: ignore[attr-defined]
    return run


def usage() -> str:
    """The commands, and how options are given."""
    width = max(map(len, ABOUT))
    lines = [f"  {name:<{width}}  {about}" for name, about in ABOUT.items()]
    return "\n".join(
        [
            "rlhf-lab COMMAND [group=option ...] [key.subkey=value ...] [-m for a sweep]",
            "",
            *lines,
            "",
            "rlhf-lab COMMAND --help lists the groups and options, --cfg job shows the config.",
        ]
    )


def command_help(command: str) -> str:
    """The config groups and their options."""
    conf = conf_folder()
    groups = sorted(path for path in conf.iterdir() if path.is_dir() and path.name != "hydra")
    width = max(len(group.name) for group in groups)
    lines = [
        f"  {group.name:<{width}}  {' '.join(sorted(p.stem for p in group.glob('*.yaml')))}"
        for group in groups
    ]
    return "\n".join(
        [
            f"rlhf-lab {command}: {ABOUT[command]}",
            "",
            "Config groups (group=option):",
            *lines,
            "",
            "budget is mounted at run (budget@run=paper), the proxy's model at proxy",
            "(model@proxy=nano_m), the judge at judge (reward@judge=task_rule).",
            "Single values: run.updates_per_round=4 mode.max_staleness=2 algo.beta=0.2 seed=3.",
            "Sweeps: -m seed=1,2,3 mode=sync,async. All keys: docs/config.md, or --cfg job.",
        ]
    )


def of_run(command: str, arguments: list[str]) -> list[str]:
    """`RUN [overrides]` -> the run's primary config and its overrides, then the command's and the
    given ones.

    evaluate and resume work in the run's own folder, replay in another.
    """
    if not arguments or is_option(arguments[0]):
        raise UserError(f"rlhf-lab {command} needs a run's folder: {ABOUT[command]}")
    folder = Path(arguments[0])
    path = manifest_path(folder)
    manifest = read_manifest(path)
    own = as_kind(manifest, Started, path)["overrides"]
    # A sweep's file would start the sweep again.
    chosen = [*flags, "hydra.mode=RUN"] if (flags := manifest.get("primary_config")) else []
    if command == "replay":
        own = [text for text in own if not text.startswith(("mode=", "mode.", "output."))]
        bound = as_kind(manifest, Replayed, path)["mode_settings"]
        own += ["mode=replay", f"mode.schedule={quoted(folder)}"]
        own += [f"mode.{key}={value}" for key, value in bound.items()]
    else:
        own = [text for text in own if not text.startswith("output.dir=")]
        own.append(f"output.dir={quoted(folder)}")
    if command == "resume":
        own.append("output.resume=true")
    changed = {argument.split("=")[0] for argument in arguments[1:]}
    kept = [text for text in own if text.split("=")[0] not in changed]
    return [*chosen, *kept, *arguments[1:]]


def evaluate_each(folders: Sequence[str], overrides: Sequence[str]) -> int:
    """Judge several runs, each with its own config. One that fails is told, and the others go on;
    what is judged is written at once."""
    if MULTIRUN & set(overrides):
        raise UserError("rlhf-lab evaluate RUN RUN -m: sweep over one run at a time")
    judged: list[Evaluated] = []
    is_quiet: list[bool] = []
    failures: dict[str, Exception] = {}

    def judge(cfg: DictConfig) -> None:
        config, console = checked(cfg)
        is_quiet.append(config.output.quiet)
        console.say(f"run {config.output.dir}")
        judged.append(commands.evaluated(config, console))

    for folder in folders:
        try:
            launch(judge, of_run("evaluate", [folder, *overrides]))
        except Exception as error:
            failures[folder] = error
            if not isinstance(error, REFUSALS):
                traceback.print_exception(error)
            sys.stderr.write(f"rlhf-lab evaluate: {folder}: {message(error)}\n")
    show_evaluations(Console(quiet=all(is_quiet)), judged)
    if failures:
        sys.stderr.write(
            f"rlhf-lab evaluate: {len(failures)} of {len(folders)} runs failed: "
            f"{', '.join(failures)}\n"
        )
    was_refused = all(isinstance(error, REFUSALS) for error in failures.values())
    return (BAD_INPUT if was_refused else FAILED) if failures else 0


def export_run(arguments: list[str], console: Console) -> int:
    """Write a version of a run as a folder that transformers loads. Returns 0."""
    wanted = export.asked(arguments)

    def write(cfg: DictConfig) -> None:
        export.export(typed(cfg), wanted, console)

    launch(write, of_run("export", [str(wanted.run)]))
    return 0


def leading_folders(arguments: Sequence[str]) -> list[str]:
    """The runs that are named before the first option."""
    options = (place for place, text in enumerate(arguments) if is_option(text))
    return list(arguments[: next(options, len(arguments))])


def launch(task: Callable[[DictConfig], None], arguments: Sequence[str]) -> None:
    """Let Hydra compose the config of these overrides and hand it to the task."""
    register()
    # Hydra looks for plugins in folders, where an editable install has none.
    for plugin in (TrackedSweeper, SearchSweeper, SlurmLauncher):
        Plugins.instance().register(plugin)
    slurm.register()
    sys.argv = ["rlhf-lab", *arguments]
    wrap = hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name=PRIMARY)
    refused: list[Exception] = []

    @functools.wraps(task)
    def kept(cfg: DictConfig) -> None:
        try:
            task(cfg)
        except REFUSALS as error:
            if HydraConfig.get().mode is not RunMode.RUN:
                raise
            refused.append(error)  # Hydra would print all overrides before it raises this

    wrap(kept)()
    if refused:
        raise refused[0]


def composes(overrides: Sequence[str], num_trainers: int) -> None:
    """Refuse overrides that no run of so many trainers could start with."""

    def look(cfg: DictConfig) -> None:
        config, _ = checked(cfg)
        check_trainers(config, num_trainers)

    launch(look, list(overrides))


def launch_run(arguments: list[str], console: Console) -> int:
    """Print or run the commands of a run over devices and nodes."""
    return launch_command.show(arguments, console, composes)


def list_runs(arguments: list[str], console: Console) -> int:
    """A table of the runs in a folder."""
    return show(Path(arguments[0] if arguments else "runs"), console)


# Commands that no config is composed for, or not by their arguments alone.
WITHOUT_CONFIG: dict[str, Callable[[list[str], Console], int]] = {
    "export": export_run,
    "launch": launch_run,
    "plan": planner.show,
    "report": report.show,
    "runs": list_runs,
    "sync": wandb_sync.sync,
    "timeline": timeline.show,
}


def refuse_secrets(arguments: Sequence[str]) -> None:
    """Hydra repeats the overrides of a run that is refused, so they are looked at before it."""
    for text in arguments:
        refuse_undecodable(text)
        if found := secret_in(text):
            raise UserError(
                f"{masked(text.partition('=')[0])}: its value holds {found}, which would be "
                "written down: keep it in the environment and take it out"
            )


def run_command(command: str, arguments: list[str]) -> int:
    """Run one command; the caller turns exceptions into messages."""
    refuse_secrets(arguments)
    if "--help" in arguments or "-h" in arguments:
        sys.stdout.write(command_help(command) + "\n")
        return 0
    if command in WITHOUT_CONFIG:
        return WITHOUT_CONFIG[command](arguments, Console(quiet=False))
    folders = leading_folders(arguments) if command == "evaluate" else []
    if len(folders) > 1:
        return evaluate_each(folders, arguments[len(folders) :])
    if command in OF_RUN:
        arguments = of_run(command, arguments)
        command = OF_RUN[command]
    launch(task_of(command), arguments)
    return 0


def take_place(command: str, arguments: Sequence[str]) -> None:
    """Under torchrun: the first process goes on, the others follow it and end here. Only training
    has a use for several processes, and one run at a time."""
    if world_size() == 1:
        return
    if command not in TRAINING:
        raise UserError(
            f"rlhf-lab {command} with {world_size()} processes (WORLD_SIZE): only "
            f"{', '.join(TRAINING)} make use of them; start it without torchrun"
        )
    if MULTIRUN & set(arguments):
        raise UserError(
            f"rlhf-lab {command} {' '.join(sorted(MULTIRUN & set(arguments)))} with "
            f"{world_size()} processes (WORLD_SIZE): a sweep starts runs of one process each; "
            "start it without torchrun, or start every run with a torchrun of its own"
        )
    if rank() > 0:
        train.run_worker_rank()


def message(error: BaseException) -> str:
    """An error in a line, with the cause that Hydra keeps behind it, the key and what it may be;
    and with its notes, such as the job of a sweep."""
    cause = None if isinstance(error, UserError) else error.__cause__
    told = str(error) if cause is None else f"{error}: {cause}"
    notes = "; ".join(getattr(error, "__notes__", []))
    lines = (f"{told} ({notes})" if notes else told).splitlines()
    return masked(" ".join(line.strip() for line in lines if line.strip()))


def main() -> int:
    """Console script. 0: done. 2: input refused. 75: stopped by a signal, to be run again.
    130: interrupted. Other errors are raised."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises instead of printing and exiting
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(usage() + "\n")
        return 0
    command = arguments[0]
    if command not in ABOUT:
        sys.stderr.write(f"rlhf-lab: unknown command {command!r}\n\n{usage()}\n")
        return BAD_INPUT
    try:
        return ended(command, arguments[1:])
    except RestartNeeded as restart:
        sys.stdout.flush()
        words = [sys.executable, "-m", "rlhf_lab.cli.main", *arguments]
        os.execve(sys.executable, words, os.environ | restart.variables)


def ended(command: str, arguments: list[str]) -> int:
    """Run one command, and print in a line how it ended if it did not end well. Returns the exit
    code."""
    try:
        take_place(command, arguments)
        return run_command(command, arguments)
    except REFUSALS as error:
        if rank() == 0:
            sys.stderr.write(f"rlhf-lab {command}: {message(error)}\n")
        return BAD_INPUT
    except StopRequested:
        sys.stderr.write(
            f"rlhf-lab {command}: stopped by a signal; `rlhf-lab resume RUN` goes on\n"
        )
        return REQUEUE
    except OSError as error:
        if (fault := fault_of(error)) is None:
            raise
        # A note says what a run that had begun has kept.
        notes = "; ".join(getattr(error, "__notes__", []))
        text = f"{told(fault)}; {notes}" if notes else told(fault)
        sys.stderr.write(f"rlhf-lab {command}: {masked(text)}\n")
        return FAILED if notes or fault.errno in FULL else BAD_INPUT
    except JobsFailed as error:
        sys.stderr.write(f"rlhf-lab {command}: {error}\n")
        return FAILED
    except KeyboardInterrupt as interrupt:
        said = str(interrupt) or "what was written stays readable"
        sys.stderr.write(f"rlhf-lab {command}: interrupted; {said}\n")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
