"""The artifacts of the stages, each cached under the hash of the settings and the code that made
it: the SFT policy, labels, proxies."""

from __future__ import annotations

import functools
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from rlhf_lab.experiment.artifacts.keys import ArtifactKeys, Key, given_labels, pairs_to_relabel
from rlhf_lab.experiment.artifacts.labels import (
    as_read,
    copy_labels,
    make_labels,
    make_relabelled,
    read_pairs,
    require_one_vocabulary,
)
from rlhf_lab.experiment.artifacts.models import (
    STRENGTH,
    make_initial,
    make_reward_model,
    make_sft,
    make_step_model,
    make_strength,
)
from rlhf_lab.experiment.artifacts.products import RunProducts, UsedProducts
from rlhf_lab.experiment.build.policy import PolicyLoader, Sources
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.rules.derived import has_references, pairs_file, trains_on_labels
from rlhf_lab.experiment.rules.tasks import require_one_turn
from rlhf_lab.models.options import PretrainedModel, ScratchModel
from rlhf_lab.rewards.options import num_proxies
from rlhf_lab.runs.reading import read_json
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.pair_sources import forget_rows
from rlhf_lab.training.stages.cache import cached, product_folder, verify

METRICS = "metrics.json"
Make = Callable[[Path], dict[str, float]]


@dataclass(frozen=True)
class Artifact:
    """A stage's folder, its metrics, and whether it was found in the cache."""

    folder: Path
    metrics: dict[str, float]
    was_cached: bool


class Artifacts:
    """Makes what a run needs, on demand. Everything is a function of the config.

    of_run: what a run was made from before, which is taken in preference to the cache. used: what
    was found or made.
    """

    def __init__(
        self,
        config: Config,
        console: Console,
        loader: PolicyLoader | None = None,
        of_run: RunProducts | None = None,
    ) -> None:
        self.used = UsedProducts()
        self._of_run = of_run or RunProducts()
        config = config.for_stages
        self._config = config
        self._console = console
        self._loader = loader or PolicyLoader(console)
        self._keys = ArtifactKeys(config)
        self._root = Path(config.output.cache)

    def of(self, config: Config) -> Artifacts:
        """The artifacts of another config in the same run."""
        return Artifacts(config, self._console, self._loader, self._of_run)

    def sources(self) -> Sources:
        """The policy a run starts from, the proxies it is scored by, and the pairs if fixed."""
        proxies = self.proxies()
        return Sources(
            self.policy(self._config.model),
            tuple(str(proxy.folder) for proxy in proxies),
            self.pairs(),
            self._quality(proxies),
        )

    def _quality(self, proxies: Sequence[Artifact]) -> dict[str, float]:
        """Held-out loss of SFT and mean held-out accuracy of the proxies, of those that are
        trained here."""
        found, model = {}, self._config.model
        if model.begins_by_stage and has_references(self._config):
            found["stage/sft_loss"] = self.sft(model).metrics["validation_loss"]
        accuracies = [one.metrics["accuracy"] for one in proxies if "accuracy" in one.metrics]
        if accuracies:
            found["stage/proxy_accuracy"] = statistics.fmean(accuracies)
        return found

    def folders(self) -> list[Path]:
        """Where the artifacts that a run needs are or will be, in the order in which they are
        made."""
        config, num = self._config, num_proxies(self._config.reward)
        keys: list[tuple[str, Key]] = []
        for model in (config.model, config.proxy) if num else (config.model,):
            if model.begins_by_stage:
                keys.append(self._keys.start(model))
        if num or trains_on_labels(config):
            keys.append(("labels", self._keys.labels()))
        keys += [("reward_model", self._keys.reward_model(member)) for member in range(num)]
        return list(dict.fromkeys(product_folder(self._root, stage, key) for stage, key in keys))

    def proxies(self) -> list[Artifact]:
        """The reward models that the run's reward needs, one for each member of an ensemble."""
        return [self.reward_model(member) for member in range(num_proxies(self._config.reward))]

    def pairs(self) -> str:
        """The file of fixed pairs, '' if the run samples its own."""
        if trains_on_labels(self._config):
            return str(self.labels().folder / "train.jsonl")
        return pairs_file(self._config)[0]

    def policy(self, model: ScratchModel | PretrainedModel) -> PretrainedModel:
        """Models of random weights, and base models with model.sft, go through SFT; others are
        taken as they are."""
        if isinstance(model, ScratchModel):
            return PretrainedModel(name=model.name, path=str(self.start(model).folder))
        return model.saved_in(str(self.start(model).folder)) if model.begins_by_stage else model

    def start(self, model: ScratchModel | PretrainedModel) -> Artifact:
        """The policy that a model begins as, by SFT if there are references."""
        if isinstance(model, ScratchModel) and not has_references(self._config):
            return self.initial(model)
        return self.sft(model)

    def initial(self, model: ScratchModel) -> Artifact:
        """A policy of random weights, as a folder that transformers loads."""
        make = functools.partial(make_initial, self._config, model)
        return self._cached("initial", self._keys.initial(model), make)

    def sft(self, model: ScratchModel | PretrainedModel) -> Artifact:
        """A policy fine-tuned on references, as a folder that transformers loads."""
        make = functools.partial(make_sft, self._config, self._console, model)
        return self._cached("sft", self._keys.sft(model), make)

    def labels(self) -> Artifact:
        """Gold-labelled pairs of SFT samples: train.jsonl and held_out.jsonl."""
        return self._cached("labels", self._keys.labels(), self._make_labels)

    def relabel(self) -> Artifact:
        """The pairs of labels.path, or else of generator.path, in the order of the judge."""
        pairs = pairs_to_relabel(self._config)
        make = functools.partial(make_relabelled, self._config, self._console, pairs)
        return self._cached("relabel", self._keys.relabel(pairs), make)

    def reward_model(self, member: int = 0) -> Artifact:
        """A proxy, as a folder that transformers loads. Members of an ensemble differ in the draw
        of the head and in the order of the pairs."""
        make = functools.partial(self._make_reward_model, member)
        return self._cached("reward_model", self._keys.reward_model(member), make)

    def step_model(self) -> Artifact:
        """A process reward model, as a folder for `reward=steps`."""

        def make(folder: Path) -> dict[str, float]:
            return make_step_model(self._config, self._console, self._proxy_start(), folder)

        return self._cached("step_model", self._keys.step_model(), make)

    def held_out_pairs(self) -> Sequence[dict[str, Any]]:
        """The labelled pairs that no proxy was trained on, as tokens of the proxy, which are the
        policy's. Raises UserError if they are not."""
        start = self._proxy_start()
        require_one_vocabulary(self._config, self.policy, start[1])
        return self._pairs("held_out", start)

    def strength(self) -> Artifact:
        """How strongly voters prefer the chosen answer of each training pair: mean and std. The
        voters are proxies on the labels as they are, shared with an ensemble of such."""
        return self._cached("strength", self._keys.strength(), self._make_strength)

    def _cached(self, stage: str, key: Key, make: Make) -> Artifact:
        def make_with_metrics(folder: Path) -> None:
            with self._console.phase(f"preparing the stage {stage}"):
                metrics = make(folder)
            (folder / METRICS).write_text(json.dumps(metrics, indent=1), encoding="utf-8")

        in_cache = product_folder(self._root, stage, key)
        if recorded := self._of_run.find(stage, key, in_cache):
            with self._console.phase(f"verifying {recorded}"):
                verify(recorded)
            folder, was_cached = recorded, True
        else:
            if not in_cache.exists():
                self._of_run.require_permission(stage, in_cache)
            folder, was_cached = cached(
                self._root, stage, key, make_with_metrics, self._console.print
            )
        self.used.add(stage, key, folder)
        metrics = read_json(folder / METRICS, dict[str, float])
        return Artifact(folder, metrics, was_cached)

    def _make_labels(self, folder: Path) -> dict[str, float]:
        config = self._config
        if config.labels.path:
            metrics = copy_labels(given_labels(config), self._console, folder)
            forget_rows()
            return metrics
        require_one_turn(config, "labels")
        model, tokenizer = self._loader.read(self.policy(config.model), config.seed)
        return make_labels(config, self._console, model, tokenizer, folder)

    def _make_reward_model(self, member: int, folder: Path) -> dict[str, float]:
        config = self._config
        start = self._proxy_start()
        pairs = self._pairs("train", start), self._pairs("held_out", start)
        strength_P = None
        if config.reward_model.strength_members:
            strength = read_json(self.strength().folder / STRENGTH, dict[str, list[float]])
            strength_P = torch.tensor(strength["mean"])
        return make_reward_model(config, self._console, member, start, pairs, strength_P, folder)

    def _make_strength(self, folder: Path) -> dict[str, float]:
        options = self._config.reward_model
        config = replace(self._config, reward_model=options.voter)
        voters = Artifacts(config, self._console, self._loader)
        members = [voters.reward_model(member) for member in range(options.strength_members)]
        pairs = self._pairs("train", self._proxy_start())
        return make_strength(self._config, [member.folder for member in members], pairs, folder)

    def _proxy_start(self) -> tuple[Any, Any]:
        """The model that a proxy is trained from, and its tokenizer."""
        return self._loader.read(self.policy(self._config.proxy), self._config.seed, "proxy.path")

    def _pairs(self, name: str, start: tuple[Any, Any]) -> Sequence[dict[str, Any]]:
        """The labelled pairs of a part, as tokens of the proxy."""
        if not self._config.labels.path:
            require_one_vocabulary(self._config, self.policy, start[1])
        rows = read_pairs(self.labels().folder / f"{name}.jsonl")
        return as_read(rows, start, self._config)
