"""The stages in order, each cached under the hash of the settings and the code that made it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import rlhf_lab
from rlhf_lab.experiment import build
from rlhf_lab.experiment.checks import check_context, response_tokens, trains_on_labels
from rlhf_lab.experiment.config import Config, plain
from rlhf_lab.models.causal_lm import load_policy, load_tokenizer, save_policy
from rlhf_lab.models.devices import chosen, torch_threads
from rlhf_lab.models.pretrained import PretrainedModel
from rlhf_lab.models.reward_model import load_reward_model, reward_model_from, save_reward_model
from rlhf_lab.models.scratch import ScratchModel
from rlhf_lab.rewards.build import model_paths, num_proxies, parts
from rlhf_lab.rewards.function import FunctionReward, code_of
from rlhf_lab.rewards.rule import RuleReward
from rlhf_lab.rollout.generators.pairs import PairsSampling
from rlhf_lab.runs.folder import config_hash
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.reading import read_json
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.pairs import SIDES, with_tokens
from rlhf_lab.tasks.references import reference_sample
from rlhf_lab.training.stages.cache import cached, place
from rlhf_lab.training.stages.calibration import write_calibration
from rlhf_lab.training.stages.labels import sample_pairs, write_labels
from rlhf_lab.training.stages.relabel import (
    GivenPairs,
    given_pairs,
    known_examples,
    write_relabelled,
)
from rlhf_lab.training.stages.reward_model import pair_gaps, tokens_of, train_reward_model
from rlhf_lab.training.stages.sft import train_sft
from rlhf_lab.training.stages.strength import described, vote
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Split

METRICS = "metrics.json"
STRENGTH = "strength.json"


@dataclass(frozen=True)
class Artifact:
    """A stage's folder, its metrics, and whether it was found in the cache."""

    folder: Path
    metrics: dict[str, float]
    was_cached: bool


class Artifacts:
    """Makes what a run needs, on demand. Everything is a function of the config."""

    def __init__(self, config: Config, console: Console) -> None:
        self._config = config
        self._console = console
        self._device = chosen(config.engine.device, "engine.device")
        self._root = Path(config.output.cache)

    def sources(self) -> build.Sources:
        """The policy a run starts from, the proxies it is scored by, and the pairs if fixed."""
        proxies = tuple(str(product.folder) for product in self.proxies())
        return build.Sources(self.policy(self._config.model), proxies, self.pairs())

    def folders(self) -> list[Path]:
        """Where the products that a run needs are or will be, in the order in which they are
        made."""
        config, num = self._config, num_proxies(self._config.reward)
        keys: list[tuple[str, dict[str, Any]]] = []
        for model in (config.model, config.proxy) if num else (config.model,):
            if isinstance(model, ScratchModel):
                keys.append(("sft", self._sft_key(model)))
        if num or trains_on_labels(config):
            keys.append(("labels", self._labels_key()))
        keys += [("reward_model", self._reward_model_key(member)) for member in range(num)]
        return list(dict.fromkeys(place(self._root, stage, key) for stage, key in keys))

    def proxies(self) -> list[Artifact]:
        """The reward models that the run's reward needs, one for each member of an ensemble."""
        return [self.reward_model(member) for member in range(num_proxies(self._config.reward))]

    def pairs(self) -> str:
        """The file of fixed pairs, '' if the run samples its own."""
        part = self._config.generator
        if not isinstance(part, PairsSampling):
            return ""
        return part.path or str(self.labels().folder / "train.jsonl")

    def policy(self, model: ScratchModel | PretrainedModel) -> PretrainedModel:
        """Models trained from nothing go through SFT; pretrained ones are taken as they are."""
        if isinstance(model, PretrainedModel):
            return model
        return PretrainedModel(name=model.name, path=str(self.sft(model).folder))

    def sft(self, model: ScratchModel | PretrainedModel) -> Artifact:
        """A policy fine-tuned on references, as a folder that transformers loads."""
        return self._cached("sft", self._sft_key(model), functools.partial(self._make_sft, model))

    def labels(self) -> Artifact:
        """Gold-labelled pairs of SFT samples: train.jsonl and held_out.jsonl."""
        return self._cached("labels", self._labels_key(), self._make_labels)

    def relabel(self) -> Artifact:
        """The pairs of labels.path, or else of generator.path, in the order of the judge."""
        config = self._config
        key, path = self._given()
        pairs = given_pairs(path, config.labels.held_out_pairs, key)
        made_of = self._key(
            pairs=config_hash({"parts": pairs.parts()}),
            judge=plain(config.judge),
            task=plain(config.task),
        )
        return self._cached("relabel", made_of, functools.partial(self._make_relabelled, pairs))

    def reward_model(self, member: int = 0) -> Artifact:
        """A proxy, as a folder that transformers loads. Members of an ensemble differ in the draw
        of the head and in the order of the pairs."""
        make = functools.partial(self._make_reward_model, member)
        return self._cached("reward_model", self._reward_model_key(member), make)

    def strength(self) -> Artifact:
        """How strongly voters prefer the chosen answer of each training pair: mean and std. The
        voters are proxies on the labels as they are, shared with an ensemble of such."""
        options = self._config.reward_model
        key = self._key(
            labels=self._labels_key(),
            start=self._start_key(self._config.proxy),
            options=plain(options.voter),
            members=options.strength_members,
        )
        return self._cached("strength", key, self._make_strength)

    def _key(self, **parts: Any) -> dict[str, Any]:
        kernels = self._config.kernels.value
        return {"seed": self._config.seed, "kernels": kernels, "code": code_digest()} | parts

    def _reward_model_key(self, member: int) -> dict[str, Any]:
        return self._key(
            labels=self._labels_key(),
            start=self._start_key(self._config.proxy),
            options=plain(self._config.reward_model),
            member=member,
        )

    def _sft_key(self, model: Any) -> dict[str, Any]:
        config = self._config
        return self._key(
            task=plain(config.task), model=plain(model.whole), options=plain(config.sft)
        )

    def _start_key(self, model: Any) -> dict[str, Any]:
        return plain(model.whole) if isinstance(model, PretrainedModel) else self._sft_key(model)

    def _given(self) -> tuple[str, str]:
        """Option and path of the user's pairs."""
        part = self._config.generator
        path = self._config.labels.path
        if not path and isinstance(part, PairsSampling) and part.path:
            return "generator.path", part.path
        return "labels.path", path

    def _given_labels(self) -> GivenPairs:
        options = self._config.labels
        return given_pairs(options.path, options.held_out_pairs, "labels.path")

    def _labels_key(self) -> dict[str, Any]:
        config = self._config
        if config.labels.path:
            return self._key(pairs=config_hash({"parts": self._given_labels().parts()}))
        return self._key(
            start=self._start_key(config.model),
            task=plain(config.task),
            generator=plain(build.sampling(config)),
            judge=plain(config.judge),
            judge_code=[code_of(p) for p in parts(config.judge) if isinstance(p, FunctionReward)],
            options=plain(config.labels),
        )

    def _cached(
        self, stage: str, key: dict[str, Any], make: Callable[[Path], dict[str, float]]
    ) -> Artifact:
        def make_with_metrics(folder: Path) -> None:
            (folder / METRICS).write_text(json.dumps(make(folder), indent=1), encoding="utf-8")

        folder, was_cached = cached(self._root, stage, key, make_with_metrics, self._console.print)
        metrics = read_json(folder / METRICS, dict[str, float])
        return Artifact(folder, metrics, was_cached)

    def _make_sft(self, model: Any, folder: Path) -> dict[str, float]:
        config = self._config
        policy, tokenizer = load_policy(model, config.task.tokenizer(), config.seed)
        check_context(config, policy)
        policy.to(self._device)
        train = build.prompts(config, tokenizer, Split.train, "sft")
        held_out = build.prompts(config, tokenizer, Split.validation, "sft", shuffle=False)
        num = min(256, len(held_out))
        with self._console.stage(f"sft {model.name}", total=config.sft.steps) as bar:
            metrics = train_sft(
                policy,
                tokenizer,
                train,
                [held_out[index] for index in range(num)],
                response_tokens(config),
                config.sft,
                bar,
            )
        save_policy(policy, tokenizer, folder)
        return metrics

    def _make_relabelled(self, pairs: GivenPairs, folder: Path) -> dict[str, float]:
        config, threads = self._config, self._config.labels.threads
        tokenizer, examples = None, {}
        if paths := model_paths(config.judge, ()):
            tokenizer = load_tokenizer(PretrainedModel("judge", paths[0]), None, "judge.path")
        if any(isinstance(part, RuleReward | FunctionReward) for part in parts(config.judge)):
            examples = known_examples(config.task, [*pairs.train, *pairs.held_out])
        judge = build.reward(config.judge, config, tokenizer, (), threads)
        metrics: dict[str, float] = {}
        total = len(pairs.train) + len(pairs.held_out)
        with self._console.stage("relabel", total=total) as bar:
            for name, rows in pairs.parts():
                path = folder / f"{name}.jsonl"
                measured = write_relabelled(path, rows, judge, tokenizer, examples, bar)
                metrics |= {f"{name}_{key}": value for key, value in measured.items()}
        return metrics

    def _make_given_labels(self, folder: Path) -> dict[str, float]:
        metrics = {}
        for name, rows in self._given_labels().parts():
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
            metrics[f"{name}_pairs"] = float(len(rows))
        return metrics

    def _make_labels(self, folder: Path) -> dict[str, float]:
        config, options = self._config, self._config.labels
        if options.path:
            return self._make_given_labels(folder)
        model, tokenizer = load_policy(self.policy(config.model), None, config.seed)
        sampling = replace(config.generator, threads=options.threads)
        generator = build.generator(
            replace(config, generator=sampling), model, tokenizer, "labels", options.temperature
        )
        judge = build.reward(config.judge, config, tokenizer, (), options.threads)
        weights = Weights(0, dict(model.named_parameters()))
        metrics: dict[str, float] = {}
        total = options.pairs + options.held_out_pairs
        with self._console.stage("label", total=total) as bar:
            for name, split, num in (
                ("train", Split.train, options.pairs),
                ("held_out", Split.validation, options.held_out_pairs),
            ):
                stream = build.prompts(config, tokenizer, split, "labels")
                chosen = [stream[index] for index in range(num)]
                groups = sample_pairs(generator, weights, chosen, 256, bar)
                path = folder / f"{name}.jsonl"
                measured = write_labels(path, groups, judge, options, config.seed)
                metrics |= {f"{name}_{key}": value for key, value in measured.items()}
        return metrics

    def _make_reward_model(self, member: int, folder: Path) -> dict[str, float]:
        config, options = self._config, self._config.reward_model
        seed = stable_hash(config.seed, "member", member) & (2**63 - 1) if member else config.seed
        start, tokenizer = load_policy(self.policy(config.proxy), None, config.seed, "proxy.path")
        pairs, held_out = (self._pairs(name, start, tokenizer) for name in ("train", "held_out"))
        strength_P = None
        if options.strength_members:
            found = read_json(self.strength().folder / STRENGTH, dict[str, list[float]])
            strength_P = torch.tensor(found["mean"])
        model = reward_model_from(start, seed).to(self._device)
        stream = build.prompts(config, tokenizer, Split.train, "reward_model")
        limit = response_tokens(config)
        references = [
            [*stream[index].tokens, *reference_sample(stream[index], tokenizer, limit).tokens]
            for index in range(512)
        ]
        kept = len(pairs) - int(options.drop_share * len(pairs))
        steps = kept // options.batch * options.epochs
        title = f"reward model {config.proxy.name}" + (f" {member + 1}" if member else "")
        with self._console.stage(title, total=steps) as bar:
            trained = train_reward_model(
                model, pairs, held_out, references, options, seed, bar, strength_P
            )
        save_reward_model(model, tokenizer, folder, trained.offset)
        write_calibration(folder, trained.bins)
        return trained.metrics | {"offset": trained.offset}

    def _pairs(self, name: str, start: Any, tokenizer: Any) -> list[dict[str, Any]]:
        """The labelled pairs of a part, as tokens of the proxy."""
        rows = read_pairs(self.labels().folder / f"{name}.jsonl")
        if path := self._config.labels.path:
            return [within_context(with_tokens(row, tokenizer), start, path) for row in rows]
        self._check_vocabulary(tokenizer)
        return rows

    def _make_strength(self, folder: Path) -> dict[str, float]:
        options = self._config.reward_model
        config = replace(self._config, reward_model=options.voter)
        voters = Artifacts(config, self._console)
        members = [voters.reward_model(member) for member in range(options.strength_members)]
        policy = self.policy(self._config.proxy)
        start, tokenizer = load_policy(policy, None, self._config.seed, "proxy.path")
        pairs = self._pairs("train", start, tokenizer)
        with torch_threads(options.threads):
            gap_MP = torch.stack(
                [
                    pair_gaps(load_reward_model(str(member.folder))[0], pairs, options.batch)
                    for member in members
                ]
            )
        mean_P, std_P = vote(gap_MP)
        found = {"mean": mean_P.tolist(), "std": std_P.tolist()}
        (folder / STRENGTH).write_text(json.dumps(found), encoding="utf-8")
        return described(pairs, mean_P) | {"strength_std": float(std_P.mean())}

    def _check_vocabulary(self, tokenizer: Any) -> None:
        policy_tokenizer = load_tokenizer(self.policy(self._config.model), None)
        if policy_tokenizer.get_vocab() != tokenizer.get_vocab():
            raise UserError(
                f"proxy={self._config.proxy.name} and model={self._config.model.name} have "
                "different vocabularies: the pairs are stored as tokens of the policy; choose "
                "model@proxy of the same family"
            )


def within_context(row: dict[str, Any], model: Any, path: str) -> dict[str, Any]:
    """The row, refused if the reward model cannot read it whole."""
    context = getattr(model.config, "max_position_embeddings", None)
    longest = max(len(tokens_of(row, side)) for side in SIDES)
    if context is not None and longest > context:
        raise UserError(
            f"labels.path={path}: the pair of the prompt {row['prompt'][:60]!r} has {longest} "
            f"tokens, more than the reward model's context of {context}: shorten or delete the row"
        )
    return row


def read_pairs(path: Path) -> list[dict[str, Any]]:
    """The labelled pairs of a product that `cached` has verified."""
    return read_rows(path)


@functools.cache
def code_digest() -> str:
    """Digest of the package's sources and of the libraries that decide bits: new code, new key."""
    digest = hashlib.sha256()
    root = Path(rlhf_lab.__file__).parent
    for part in (
        "experiment",
        "models",
        "rewards",
        "rollout/generators",
        "tasks",
        "training",
        "types",
    ):
        for path in sorted((root / part).rglob("*.py")):
            digest.update(path.read_bytes())
    for library in ("torch", "transformers", "tokenizers", "numpy"):
        digest.update(version(library).encode())
    for extra in ("reasoning-gym", "math-verify"):
        with contextlib.suppress(PackageNotFoundError):
            digest.update(f"{extra}=={version(extra)}".encode())
    return digest.hexdigest()[:16]
