"""The proxy's scores of the reference answers, which evaluations of all runs with the same proxy
have in common: they are kept beside it, and read from there."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.code_digest import code_digest
from rlhf_lab.experiment.config import Config, plain
from rlhf_lab.models.devices import chosen
from rlhf_lab.rewards.model_options import EnsembleReward, ModelReward
from rlhf_lab.runs.disk import ENTRY, file_digest
from rlhf_lab.runs.reading import read_json
from rlhf_lab.training.stages.cache import cached
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import Group

STAGE = "reference_scores"
SCORES = "scores.json"


@dataclass(frozen=True)
class KnownReferences(Reward):
    """A reward that reads its scores of `references` from a cache, once they are in it.

    root: of the cache. key: all that decides these scores.
    """

    reward: Reward
    references: Sequence[Group]
    root: Path
    key: Mapping[str, Any]

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        """See Reward."""
        if groups is not self.references:
            return self.reward.score(groups)

        def make(folder: Path) -> None:
            text = json.dumps(self.reward.score(self.references))
            (folder / SCORES).write_text(text, encoding="utf-8")

        folder, _ = cached(self.root, STAGE, self.key, make)
        return [tuple(row) for row in read_json(folder / SCORES, list[list[float]])]


def with_known_references(
    config: Config,
    proxies: Sequence[str],
    tokenizer: Any,
    reward: Reward,
    references: Sequence[Group],
) -> Reward:
    """The run's reward, with known references where files of the cache decide its scores: of
    learned rewards on a CPU that read no models but the proxies that the pipeline trained.

    tokenizer: the policy's, by which the reward reads samples.
    """
    options = config.reward
    # Others may run code that no key knows.
    if not references or not proxies or type(options) not in (ModelReward, EnsembleReward):
        return reward
    root = Path(proxies[0]).parents[1]
    is_known = set(options.model_paths(proxies)) == set(proxies)
    is_on_cpu = chosen(config.generator.device, "generator.device").type == "cpu"
    if not is_known or not is_on_cpu or not os.access(root, os.W_OK):
        return reward
    key = {
        "code": code_digest(),
        "kernels": config.kernels.value,
        "threads": config.eval.threads,
        "reward": plain(options),
        "proxies": [file_digest(Path(proxy, ENTRY)) for proxy in proxies],
        "vocabulary": digest(sorted(tokenizer.get_vocab().items())),
        "references": digest([texts_of(group) for group in references]),
    }
    return KnownReferences(reward, references, root, key)


def texts_of(group: Group) -> list[Any]:
    """All that a reward model can read of a prompt and its answers."""
    example, tokens = group.prompt.example, group.prompt.tokens
    answers = [[sample.text, sample.tokens, sample.finish.value] for sample in group.samples]
    return [example.prompt, example.messages, tokens, answers]


def digest(values: Any) -> str:
    """SHA-256 of plain data."""
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()
