"""The typed config: the frozen dataclass of a whole run, and how it is made from a composed one.

Hydra composes the tree from conf/; `live` turns it into the parts' frozen dataclasses, which check
themselves. Nothing below this module sees a config object.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any, get_type_hints

from rlhf_lab.evaluation.options import EvalOptions
from rlhf_lab.models.options import PretrainedModel, ScratchModel
from rlhf_lab.rewards.shaping import ShapingOptions
from rlhf_lab.rollout.cluster.options import ClusterOptions
from rlhf_lab.rollout.generators.episode_options import EpisodeOptions
from rlhf_lab.rollout.generators.options import GeneratorOptions
from rlhf_lab.rollout.mode import Mode
from rlhf_lab.runs.identity import Settings, flat
from rlhf_lab.runs.kernels import Kernels
from rlhf_lab.runs.trackers.options import TrackerOptions
from rlhf_lab.tasks.audit import DataOptions
from rlhf_lab.training.checkpoint_options import CheckpointOptions
from rlhf_lab.training.engines.options import EngineOptions
from rlhf_lab.training.optim import Optim
from rlhf_lab.training.stages.labels import LabelOptions
from rlhf_lab.training.stages.options import RewardModelOptions, SFTOptions
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.run_options import RunOptions

# Key of the name of a part's class in its plain values.
PART = "part"
# Why a fork cannot change a setting.
OF_STAGES = "the policy or the proxy of round 0 was made with it"
OF_PROCESS = "the shared rounds are repeated in the same process, which has one setting of it"
# Nodes that no option of a group is chosen for.
NODES = ("sft", "labels", "reward_model", "data", "shaping", "episodes", "fork", "output")


@dataclass(frozen=True)
class OutputOptions:
    """Where a run writes and how much it prints."""

    root: str = limits.option("runs", about="Folder below which new runs get folders.")
    dir: str = limits.option(
        "",
        about=(
            "The run's folder; empty makes a new one below root, named after the run and the time."
        ),
    )
    resume: bool = limits.option(
        False, about="Whether the run in dir is continued, if there is one that ended early."
    )
    log: str = limits.option(
        "", about="File that the run's output goes to, for `rlhf-lab runs`; a sweep sets it."
    )
    cache: str = limits.option(
        ".cache/rlhf_lab",
        about="Folder of the stages' results, each under the hash of what produced it.",
    )
    quiet: bool = limits.option(False, about="Whether the run prints nothing but errors.")


@dataclass(frozen=True, kw_only=True)
class Config(limits.OptionGroup):
    """A whole run, resolved and checked: its fields are the nodes of the config, in their order."""

    seed: int = limits.seed(
        1,
        about="Keys all randomness of a run.",
        fork="it keys prompts, samples and shuffles of the shared rounds",
    )
    stage_seed: int = limits.seed(
        0,
        about=(
            "Keys the randomness of the stages (SFT, labels, reward models), so that several seeds "
            "can share one policy to start from and one proxy; 0 takes seed."
        ),
        fork=OF_STAGES,
    )
    kernels: Kernels = limits.option(
        Kernels.native,
        about=(
            "CPU kernels: the fastest ones of the processor, or those whose bits do not depend on "
            "the processor (x86 with AVX2, CPU only)."
        ),
        fork=OF_PROCESS,
    )
    deterministic: bool = limits.option(
        False,
        about=(
            "Whether a GPU computes with kernels that give equal bits each time, as a CPU's always "
            "do; slower, and operations without such a kernel are errors."
        ),
        fork=OF_PROCESS,
    )
    plugins: list[str] = limits.collection(
        list,
        about=(
            "Modules with parts of your own, besides installed ones (docs/extending.md); those of "
            "the working folder can be imported."
        ),
    )
    run: RunOptions = limits.node(
        "it decides the prompts of each round, also of those that are shared"
    )
    algo: Any = limits.node(limits.LATER)
    correction: Any = limits.node(limits.LATER)
    mode: Mode = limits.node(limits.LATER)
    cluster: ClusterOptions = limits.node(
        "its events decided which version wrote what in the shared rounds"
    )
    task: Any = limits.node("the prompts of the shared rounds are drawn from it")
    model: ScratchModel | PretrainedModel = limits.node("the shared rounds train this model")
    proxy: ScratchModel | PretrainedModel = limits.node(OF_STAGES)
    reward: Any = limits.node(limits.LATER)
    judge: Any
    generator: GeneratorOptions = limits.node(limits.LATER)
    engine: EngineOptions = limits.node(limits.LATER)
    optim: Optim = limits.node(limits.LATER)
    eval: EvalOptions
    tracker: TrackerOptions
    checkpoint: CheckpointOptions
    sft: SFTOptions = limits.node(OF_STAGES)
    labels: LabelOptions = limits.node(OF_STAGES)
    reward_model: RewardModelOptions = limits.node(OF_STAGES)
    data: DataOptions
    shaping: ShapingOptions = limits.node(limits.LATER)
    episodes: EpisodeOptions = limits.node(limits.LATER)
    fork: ForkOptions
    output: OutputOptions

    @property
    def for_stages(self) -> Config:
        """The config that keys the stages: its seed is that of the stages."""
        return dataclasses.replace(self, seed=self.stage_seed or self.seed, stage_seed=0)


# Reading annotations takes ten times as long as all else of a config's hash.
type_hints = functools.cache(get_type_hints)


def changed(part: Any, declared: Any = None) -> Any:
    """The values of a part that differ from the defaults of its class, as `plain` gives them: an
    option that is added with a default that changes nothing changes no hash. The name of a part is
    always among them, unless its class is `declared`: names distinguish classes."""
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        found = {}
        hints = type_hints(type(part))
        for column in dataclasses.fields(part):
            value = getattr(part, column.name)
            is_kind = column.name == "name" and type(part) is not declared
            if is_kind or not is_default(column, value):
                inner = changed(value, hints[column.name])
                if inner or not dataclasses.is_dataclass(value):
                    found[column.name] = inner
        return found
    if isinstance(part, dict):
        return {name: changed(value) for name, value in part.items()}
    return plain(part)


def is_default(column: dataclasses.Field[Any], value: Any) -> bool:
    """Whether a field has this value where none is given."""
    if column.default_factory is not dataclasses.MISSING:
        return bool(value == column.default_factory())
    return bool(value == column.default)


def settings_of(config: Config) -> Settings:
    """The settings of a run, and which of them are changed."""
    values = {key: value for key, value in flat(plain(config)).items() if not is_part(key)}
    return Settings(values, changed_keys(config))


def changed_keys(config: Config) -> list[str]:
    """The keys whose values differ from their defaults."""
    return [*flat(changed(config))]


def is_part(key: str) -> bool:
    """Whether a key of `plain` is that of a class's name."""
    return key.rpartition(".")[2] == PART


def plain(part: Any) -> Any:
    """A part as JSON-able data, enums by value, with the name of its class."""
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        values = {f.name: plain(getattr(part, f.name)) for f in dataclasses.fields(part)}
        return {PART: type(part).__name__} | values
    if isinstance(part, dict):
        return {name: plain(value) for name, value in part.items()}
    return getattr(part, "value", part)


@dataclass(frozen=True)
class ForkOptions(limits.OptionGroup, key="fork"):
    """The run and the round that this one continues; `rlhf-lab fork RUN round=R` sets them."""

    parent: str = limits.option(
        "", about="Folder of the run that this one is a fork of; empty for a run that is no fork."
    )
    round: int = limits.count(
        0,
        min=0,
        about="Rounds that a fork shares with its parent; its settings hold from this one on.",
    )
    without_rows: list[int] = limits.collection(
        list,
        min=0,
        max=limits.MOST,
        about=(
            "Rows of the batch of round `fork.round`, in the order of its prompts and of their "
            "samples, that no update is made from; they still count in the baselines of others."
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.without_rows and not self.parent:
            raise UserError(
                "fork.without_rows without fork.parent: rows are left out of one round of a fork, "
                "as `rlhf-lab fork RUN round=10 fork.without_rows=[0,1]` does"
            )
        if self.round and not self.parent:
            raise UserError(
                f"fork.round={self.round} without fork.parent: name the run, as "
                f"`rlhf-lab fork RUN round={self.round}` does"
            )

    @property
    def is_on(self) -> bool:
        return bool(self.parent)
