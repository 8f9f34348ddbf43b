"""What decides each artifact of a config: the settings and the code that are hashed for its
folder in the cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from rlhf_lab.experiment.artifacts.products import BY_ENGINE, ON_DEVICE
from rlhf_lab.experiment.build.engine import is_alone, stage_device, stage_engine
from rlhf_lab.experiment.build.evaluator import transformers_sampling
from rlhf_lab.experiment.config.code import code_digest, digests
from rlhf_lab.experiment.config.config import Config, changed
from rlhf_lab.experiment.rules.derived import has_references, pair_columns
from rlhf_lab.models.options import PretrainedModel, ScratchModel
from rlhf_lab.rewards.options import named_parts, parts
from rlhf_lab.runs.identity import hash_of
from rlhf_lab.tasks.pair_sources import GivenPairs, digest_of, given_pairs
from rlhf_lab.tasks.pairs import PairColumns
from rlhf_lab.training.engines.ranks import world_size
from rlhf_lab.training.stages.options import RewardModelOptions, SFTOptions
from rlhf_lab.training.stages.step_labels import step_rows

Key = dict[str, Any]
# Options of an engine that change no bits of what it trains, or that stages do not have.
NOT_OF_STAGES = ("device", "gradient_checkpointing", "share_prompts", "threads", "micro_rows")
Model = ScratchModel | PretrainedModel


@dataclass(frozen=True)
class ArtifactKeys:
    """The cache keys of a config's artifacts, as plain data."""

    config: Config

    def sft(self, model: Model) -> Key:
        return self._key(
            task=self._task(),
            model=changed(model.whole),
            **self._trained(self.config.sft.for_model(model.is_pretrained)),
        )

    def initial(self, model: ScratchModel) -> Key:
        return self._key(task=self.config.task.name, model=changed(model.whole))

    def labels(self) -> Key:
        config = self.config
        if config.labels.path:
            return self._key(pairs=labels_digest(config))
        return self._key(
            *named_parts("judge", config.judge),
            start=self._start(config.model),
            task=self._task(),
            generator=changed(transformers_sampling(config)),
            judge=changed(config.judge),
            judge_code=[code for part in parts(config.judge) for code in part.code_digests()],
            options=changed(config.labels),
        )

    def relabel(self, pairs: GivenPairs) -> Key:
        judge, task = changed(self.config.judge), self._task()
        judges = named_parts("judge", self.config.judge)
        return self._key(*judges, pairs=pairs.digest, judge=judge, task=task)

    def reward_model(self, member: int) -> Key:
        return self._key(
            labels=self.labels(),
            start=self._start(self.config.proxy),
            **self._trained(self._reward_model),
            member=member,
        )

    def step_model(self) -> Key:
        path = Path(self.config.reward_model.steps)
        return self._key(
            rows=hash_of({"rows": [row for _, row in step_rows(path)]}),
            start=self._start(self.config.proxy),
            **self._trained(self._reward_model),
        )

    def strength(self) -> Key:
        options = self._reward_model
        return self._key(
            labels=self.labels(),
            start=self._start(self.config.proxy),
            **self._trained(options.voter),
            members=options.strength_members,
        )

    @property
    def _reward_model(self) -> RewardModelOptions:
        """The options of the proxy that is trained."""
        return self.config.reward_model.for_model(self.config.proxy.is_pretrained)

    def _trained(self, stage: SFTOptions | RewardModelOptions) -> Key:
        """The options of a stage that trains, and of its engine what decides its bits."""
        options = {name: value for name, value in changed(stage).items() if name != "micro_rows"}
        return {"options": options, **engine_key(self.config, stage)}

    def _task(self) -> Key:
        """The task's settings, and for users' own files what is in them."""
        task = self.config.task
        key: Key = changed(task)
        return key | {"content": task.content()}

    def start(self, model: Model) -> tuple[str, Key]:
        """Stage and key of the policy that a model begins as: by SFT if there are references."""
        if isinstance(model, ScratchModel) and not has_references(self.config):
            return "initial", self.initial(model)
        return "sft", self.sft(model)

    def _start(self, model: Model) -> Key:
        """Cache key of the stage's initial model."""
        if model.begins_by_stage:
            return self.start(model)[1]
        key: Key = changed(model.whole)
        return key

    def _key(self, *judges: tuple[str, Any], **settings: Any) -> Key:
        """judges: those that take part, whose code may be a plugin's, as the task's may."""
        config = self.config
        key: Key = {"seed": config.seed, "kernels": config.kernels.value, "code": code_digest()}
        if config.deterministic:
            key["deterministic"] = True
        own = digests([("task", config.task), *judges])
        return key | device_key(config) | settings | ({"own_code": own} if own else {})


def engine_key(config: Config, stage: SFTOptions | RewardModelOptions) -> dict[str, Any]:
    """What of the engine decides a stage's bits, for its key; nothing for whole steps on a CPU."""
    if is_alone(config, stage.micro_rows):
        return {}
    engine = stage_engine(config, stage).options
    kept = {k: v for k, v in changed(engine).items() if k not in NOT_OF_STAGES}
    code = {"own_code": own} if (own := digests([("engine", engine)])) else {}
    return {BY_ENGINE: kept | code | {"micro_rows": engine.micro_rows, "processes": world_size()}}


def device_key(config: Config) -> Key:
    """The kind of device whose kernels decide bits; nothing on a CPU."""
    device = stage_device(config)
    if device.type == "cpu":
        return {}
    major, minor = torch.cuda.get_device_capability(device)
    return {ON_DEVICE: f"{device.type} {major}.{minor}"}


def given_labels(config: Config) -> GivenPairs:
    """The user's labels, labels.path."""
    return given_pairs(*labels_of(config))


def labels_digest(config: Config) -> str:
    """The digest of the user's labels."""
    return digest_of(*labels_of(config))


def labels_of(config: Config, path: str = "") -> tuple[str, int, str, PairColumns]:
    """The arguments of `given_pairs`: the pairs of labels.path, or those at the path of
    generator.path, with the column by which accuracy is measured."""
    labels = config.labels
    columns = replace(pair_columns(config), kept=config.reward_model.accuracy_by)
    key = "generator.path" if path else "labels.path"
    return path or labels.path, labels.held_out_pairs, key, columns


def pairs_to_relabel(config: Config) -> GivenPairs:
    """The pairs of labels.path, or else of generator.path."""
    path = "" if config.labels.path else config.generator.pairs_path
    return given_pairs(*labels_of(config, path))
