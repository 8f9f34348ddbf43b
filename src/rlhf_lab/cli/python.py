"""Runs from Python: `rlhf_lab.train("algo=grpo", reward=function, data=rows)` (docs/python.md).

What runs is what `rlhf-lab train` runs, in this process: the same checks, the same bits.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlhf_lab.cli.analysis import extra_needed
from rlhf_lab.cli.arguments import overrides_to_resume, refuse_secrets, without_flag
from rlhf_lab.cli.command import MULTIRUN
from rlhf_lab.cli.exit_codes import message, refusals
from rlhf_lab.cli.train import TRAIN, start
from rlhf_lab.runs import folder
from rlhf_lab.runs.given import name_of_function, path_of_rows
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.kernels import RestartNeeded
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.runs.trust import FLAG, trusting
from rlhf_lab.training.engines.ranks import world_size
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure
    from omegaconf import DictConfig


@dataclass(frozen=True)
class Run:
    """A run's folder, and its rows as data frames (pip install 'rlhf-lab[analysis]')."""

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))

    @property
    def state(self) -> str:
        """finished, paused, running, interrupted or failed, as the manifest has it."""
        return str(read_manifest(folder.manifest_path(self.path))["state"])

    @property
    def metrics(self) -> pandas.DataFrame:
        """A row for each round (docs/tracking.md)."""
        return frame(self.path / "metrics.jsonl")

    @property
    def evaluations(self) -> pandas.DataFrame:
        """A row for each version that was judged (docs/evaluation.md)."""
        return frame(self.path / "evals.jsonl")

    @property
    def samples(self) -> pandas.DataFrame:
        """The last version's samples of the evaluation, with the reference answers."""
        return frame(self.path / "samples.jsonl")

    def resume(self, *overrides: str) -> Run:
        """Continue a run that ended early. Returns when it ends."""
        return resume(self.path, *overrides)


def train(
    *overrides: str,
    reward: Callable[..., Any] | None = None,
    data: Iterable[Mapping[str, Any]] | None = None,
) -> Run:
    """Train a policy in this process, with the overrides of `rlhf-lab train`. Returns when it ends.

    reward: a function in one of the forms of reward=function (docs/rewards.md). data: rows of
    task=prompts, a list of dictionaries or a datasets.Dataset. Raises UserError for what the
    command refuses, before the first step.
    """
    words: list[str] = []
    if data is not None:
        words += unless_chosen("task=prompts", overrides)
        words.append(f"task.path={path_of_rows(data)}")
    if reward is not None:
        words += unless_chosen("reward=function", overrides)
        words.append(f"reward.path={name_of_function(reward)}")
    return started([*words, *overrides], None)


def resume(path: Path | str, *overrides: str) -> Run:
    """Continue a run that ended early, in its folder. Returns when it ends."""
    return started([str(path), *overrides], overrides_to_resume)


def plot(runs: Any, *arguments: Any, **options: Any) -> Figure:
    """A figure of runs: see rlhf_lab_analysis.plots.command.plot, which has the arguments."""
    with extra_needed():
        made = import_module("rlhf_lab_analysis.plots.command")
    figure: Figure = made.plot(runs, *arguments, **options)
    return figure


def started(words: list[str], of_run: Callable[[Path, Sequence[str]], list[str]] | None) -> Run:
    """Run the command `train` on these words. of_run: see HydraCommand."""
    if flags := MULTIRUN & set(words):
        raise UserError(f"{' '.join(sorted(flags))}: Python starts one run; use rlhf-lab sweep")
    if world_size() > 1:
        raise UserError("WORLD_SIZE is above 1: under torchrun start `rlhf-lab train` itself")
    refuse_secrets(words)
    found: list[Path] = []

    def job(cfg: DictConfig) -> None:
        from rlhf_lab.cli.compose import start_run

        found.append(start_run(TRAIN.name, start, cfg))

    rest, is_trusted = without_flag(words, FLAG)
    with as_command(), trusting(is_trusted):
        replace(TRAIN, job=job, of_run=of_run).run(rest)
    return Run(found[0])


@contextmanager
def as_command() -> Iterator[None]:
    """Arguments and environment as the command has them while the block runs, and afterwards the
    threads of torch as the program has set them. What is refused is raised as UserError."""
    arguments, setting = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else None
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    except RestartNeeded as restart:
        raise UserError(
            f"kernels are chosen when torch is loaded: start Python with {restart}"
        ) from restart
    except refusals() as error:
        raise UserError(message(error)) from error
    finally:
        sys.argv = arguments
        if torch:
            torch.set_num_threads(threads)
        if setting is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = setting


def unless_chosen(word: str, overrides: Sequence[str]) -> list[str]:
    """The override of a group, unless one of the overrides chooses its option already."""
    group = word.partition("=")[0]
    return [] if any(text.startswith(f"{group}=") for text in overrides) else [word]


def frame(path: Path) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError as error:
        raise UserError(
            "data frames need pandas: pip install 'rlhf-lab[analysis]', or read "
            f"{path} with rlhf_lab.runs.jsonl.read_rows"
        ) from error
    return pandas.DataFrame(list(read_rows(path)))
