"""Reward models as config options: one model, or several as one (an ensemble, arXiv:2310.02743)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from rlhf_lab.rewards import fields
from rlhf_lab.rewards.options import RewardContext, RewardOptions
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.precision import Precision
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import Example, Group


@dataclass(frozen=True)
class LearnedReward(RewardOptions):
    """How a reward model reads samples, where it runs, and what samples get that were cut."""

    name: str = limits.name("reward_model")
    tokenizer: str = fields.tokenizer()
    label: int = fields.label()
    chat: bool = fields.chat()
    missing_eos: float = fields.missing_eos()
    needs_eos: bool = fields.needs_eos()
    micro_rows: int = fields.micro_rows()
    device: str = fields.device()
    dtype: Precision = fields.dtype()
    is_learned: ClassVar[bool] = True

    @property
    def named(self) -> list[str]:
        """The models that the user named."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokenizer and not self.named:
            raise UserError(
                f"reward.tokenizer={self.tokenizer} without reward.{self.paths_key}: reward models "
                "that the pipeline trains have the policy's tokenizer; leave it out, or name a "
                "model"
            )

    def require_working(self, key: str, example: Example) -> None:
        # With torch, which options are made without.
        from rlhf_lab.models.reward_model import chosen_label, open_reward_model
        from rlhf_lab.rewards.model import chat_encoder

        place = f"{key}.{self.paths_key}"
        for path in self.named:
            model, tokenizer = open_reward_model(path, place, self.tokenizer)
            chosen_label(model, path, self.label, place)
            if self.chat:
                chat_encoder(tokenizer, path, place)


@dataclass(frozen=True)
class ModelReward(LearnedReward):
    """A classification model reads prompt and response and scores them."""

    path: str = limits.option(
        "",
        about=(
            "Hub name or folder of the reward model; empty takes the proxy that the pipeline "
            "trains."
        ),
    )

    @property
    def named(self) -> list[str]:
        return [self.path] if self.path else []

    @property
    def num_proxies(self) -> int:
        return int(not self.path)

    def model_paths(self, proxies: Sequence[str]) -> list[str]:
        return [self.path or proxies[0]]

    def build(self, context: RewardContext) -> Reward:
        # With torch, which options are made without.
        from rlhf_lab.rewards.model import build_member

        return build_member(self, self.path or context.proxies[0], context)


class Combine(StrEnum):
    """How the members' scores of a sample become one (arXiv:2310.02743, equations 2 to 4)."""

    mean = "mean"
    worst = "worst"
    uncertainty = "uncertainty"


@dataclass(frozen=True)
class EnsembleReward(LearnedReward):
    """Several reward models as one."""

    name: str = limits.name("ensemble")
    combine: Combine = limits.option(
        Combine.mean,
        about=(
            "Score over members: the mean, the lowest, or the mean minus uncertainty_coef times "
            "the variance."
        ),
        source="arXiv:2310.02743, eq. 2 to 4",
    )
    members: int = limits.count(
        4,
        min=0,
        max=1000,
        about=(
            "Proxies that the pipeline trains, each with a head and an order of pairs of its own; "
            "not used with paths."
        ),
    )
    paths: list[str] = limits.collection(
        list,
        about=(
            "Hub names or folders of the members; empty takes the proxies that the pipeline trains."
        ),
    )
    uncertainty_coef: float = limits.coefficient(
        1.0,
        about="Weight of the variance over members, with combine=uncertainty.",
        source="arXiv:2310.02743, eq. 4",
    )

    paths_key: ClassVar[str] = "paths"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size < 2:
            raise UserError(
                f"an ensemble of {self.size}: pass reward.members=2 or more (or two or more "
                "reward.paths), or choose reward=reward_model"
            )

    @property
    def size(self) -> int:
        return len(self.paths) or self.members

    @property
    def named(self) -> list[str]:
        return self.paths

    @property
    def num_proxies(self) -> int:
        return 0 if self.paths else self.members

    def model_paths(self, proxies: Sequence[str]) -> list[str]:
        return self.paths or list(proxies[: self.members])

    def build(self, context: RewardContext) -> EnsembleScorer:
        from rlhf_lab.rewards.model import build_member

        paths = self.model_paths(context.proxies)
        return EnsembleScorer(self, [build_member(self, path, context) for path in paths])


class EnsembleScorer(Reward):
    """Scores by all members."""

    def __init__(self, options: EnsembleReward, members: Sequence[Reward]) -> None:
        self._options = options
        self._members = members

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        rows = [member.score(groups) for member in self._members]
        return [
            tuple(self._combined(scores) for scores in zip(*of_group, strict=True))
            for of_group in zip(*rows, strict=True)
        ]

    def _combined(self, scores: Sequence[float]) -> float:
        if self._options.combine is Combine.worst:
            return min(scores)
        mean = statistics.fmean(scores)
        if self._options.combine is Combine.mean:
            return mean
        return mean - self._options.uncertainty_coef * statistics.pvariance(scores, mean)
