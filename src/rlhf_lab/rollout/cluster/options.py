"""Config group `cluster`: the rates and the queue of a virtual cluster, in virtual seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError


class WeightUpdate(StrEnum):
    """How a generator takes over a new version: after all sequences that it writes have ended
    (drain), between two tokens with the cache of the old weights (in_flight), or between two tokens
    with everything read anew by the new weights (interrupt)."""

    drain = "drain"
    in_flight = "in_flight"
    interrupt = "interrupt"


class TakeOrder(StrEnum):
    """Which chunks a round is made of: those finished first, or the oldest prompts first."""

    completion = "completion"
    submission = "submission"


MOST_RATE = 1e12


@dataclass(frozen=True)
class ClusterOptions(limits.OptionGroup, key="cluster"):
    """Generators, trainer and queue of a virtual cluster, which mode=virtual trains on. All times
    are virtual: the machine that computes the samples has no part in them.

    The defaults are eight H100, seven of which train Qwen2.5-7B on rounds of 1,024 responses of
    2,048 tokens, as `rlhf_lab.experiment.planning.cluster_rates` predicts them. A nano run stands
    for them by row_scale, length_scale and prompt_scale.
    """

    name: str = limits.name("node_7_1")
    generators: int = limits.count(1, max=4096, about="Generators beside the trainer.")
    sequences: int = limits.count(
        110, max=10**6, about="Sequences that a generator decodes at the same time."
    )
    step_seconds: float = limits.number(
        0.0078, above=0, max=1e6, about="Virtual seconds of a decoding step of no sequence."
    )
    step_seconds_per_sequence: float = limits.number(
        3.65e-5, min=0, max=1e6, about="Virtual seconds that each sequence adds to a step."
    )
    prefill_tokens_per_second: float = limits.number(
        30_000.0,
        above=0,
        max=MOST_RATE,
        about="Tokens that a generator reads in a virtual second; its decoding waits meanwhile.",
    )
    round_seconds: float = limits.number(
        0.0, min=0, max=1e7, about="Virtual seconds of a round of training without its tokens."
    )
    train_tokens_per_second: float = limits.number(
        28_900.0,
        above=0,
        max=MOST_RATE,
        about="Tokens of prompts and responses that the trainer trains on in a virtual second.",
    )
    sync_seconds: float = limits.number(
        0.04,
        min=0,
        max=1e7,
        about="Virtual seconds of the trainer's lane to hand a new version over.",
    )
    load_seconds: float = limits.number(
        0.04,
        min=0,
        max=1e7,
        about="Virtual seconds in which a generator takes a version over and decodes nothing.",
    )
    weight_update: WeightUpdate = limits.option(
        WeightUpdate.drain,
        about=(
            "How a generator takes a new version over: once its sequences have ended, or between "
            "two tokens of them, with the old cache (in_flight) or all read anew (interrupt)."
        ),
        source="arXiv:2509.19128 (in_flight), arXiv:2505.24298 (interrupt)",
    )
    is_colocated: bool = limits.option(
        False,
        about="Whether generators pause while the trainer trains, on the same devices.",
        source="Kimi k1.5, arXiv:2501.12599",
    )
    order: TakeOrder = limits.option(
        TakeOrder.completion,
        about=(
            "Which finished chunks a round takes: those that were finished first, or in the order "
            "of their prompts."
        ),
    )
    row_scale: float = limits.number(
        10.0,
        min=1,
        max=1e6,
        about=(
            "Sequences of the cluster for each sample of the run: a small run stands for a large "
            "one whose rounds have so many times the samples."
        ),
    )
    length_scale: float = limits.number(
        85.0,
        above=0,
        max=1e6,
        about="Virtual tokens for each token of a response that is as long as its limit.",
    )
    prompt_scale: float = limits.number(
        4.0, above=0, max=1e6, about="Virtual tokens for each token of a prompt."
    )
    length_power: float = limits.number(
        1.0,
        min=0,
        max=8,
        about=(
            "Tail of the virtual lengths: a response of the share x of its limit counts as x to "
            "this power. 0 makes all equally long, 1 keeps lengths, more makes the tail heavier."
        ),
    )
    failure_seconds: float = limits.number(
        0.0,
        min=0,
        max=1e9,
        about=(
            "Mean virtual seconds of decoding from one failure of a generator to the next, drawn "
            "with the run's seed; what it was writing begins anew. 0 is never."
        ),
    )
    repair_seconds: float = limits.number(
        60.0, min=0, max=1e7, about="Virtual seconds until a failed generator works again."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.row_scale > self.sequences:
            raise UserError(
                f"cluster.row_scale={self.row_scale:g} with cluster.sequences={self.sequences}: a "
                "generator could not write a single sample; lower row_scale"
            )
        if self.follows_versions and self.length_power != 1:
            raise UserError(
                f"cluster.weight_update={self.weight_update.value} with cluster.length_power="
                f"{self.length_power:g}: the token at which new weights come is only known if "
                "virtual lengths are those of the samples; pass cluster.length_power=1, or "
                "cluster.weight_update=drain"
            )

    @property
    def follows_versions(self) -> bool:
        """Whether several versions may write one sample."""
        return self.weight_update is not WeightUpdate.drain

    def step(self, sequences: int) -> float:
        """Virtual seconds of a decoding step of so many samples."""
        return self.step_seconds + self.step_seconds_per_sequence * self.row_scale * sequences

    @property
    def rows(self) -> int:
        """Samples that a generator decodes at the same time."""
        return int(self.sequences / self.row_scale)

    def length(self, tokens: int, limit: int) -> int:
        """Decoding steps of a response of so many tokens, at least 1. limit: the response limit."""
        stretched = float(tokens)
        if self.length_power != 1:
            stretched = limit * (tokens / limit) ** self.length_power
        # Powers and products of floats miss whole numbers by a little.
        return max(1, math.ceil(round(self.length_scale * stretched, 6)))

    def prompt(self, tokens: int) -> float:
        """Virtual tokens of a prompt, in all sequences that it stands for."""
        return self.row_scale * self.prompt_scale * tokens

    def reading_seconds(self, tokens: float) -> float:
        """Virtual seconds in which a generator reads so many virtual tokens."""
        return tokens / self.prefill_tokens_per_second

    def training_seconds(self, tokens: float) -> float:
        """Virtual seconds of a round that trains on so many virtual tokens."""
        return self.round_seconds + tokens / self.train_tokens_per_second

    def written(self, steps: int) -> int:
        """Tokens of a sample that were written in so many decoding steps, where lengths are those
        of the samples."""
        return int(round(steps / self.length_scale, 6))
