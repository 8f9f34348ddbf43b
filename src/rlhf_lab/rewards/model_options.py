"""Config option `reward=reward_model`: a learned reward model, the proxy that the policy sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlhf_lab.rewards import fields
from rlhf_lab.rewards.options import RewardOptions
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example


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
    is_learned: ClassVar[bool] = True
    # The key of the paths of its models.
    paths_key: ClassVar[str] = "path"

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
        from rlhf_lab.rewards.encoding import chat_encoder

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
