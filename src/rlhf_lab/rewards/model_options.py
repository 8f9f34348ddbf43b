"""Config option `reward=reward_model`: a learned reward model, the proxy that the policy sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlhf_lab.rewards import fields
from rlhf_lab.rewards.options import RewardOptions
from rlhf_lab.types import limits


@dataclass(frozen=True)
class LearnedReward(RewardOptions):
    """How a reward model reads samples, where it runs, and what samples get that were cut."""

    name: str = limits.name("reward_model")
    label: int = fields.label()
    chat: bool = fields.chat()
    missing_eos: float = fields.missing_eos()
    needs_eos: bool = fields.needs_eos()
    micro_rows: int = fields.micro_rows()
    device: str = fields.device()
    is_learned: ClassVar[bool] = True


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
    def num_proxies(self) -> int:
        return int(not self.path)

    def model_paths(self, proxies: Sequence[str]) -> list[str]:
        return [self.path or proxies[0]]
