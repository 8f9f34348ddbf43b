"""The four numbers that decide off-policyness, and the budget they divide."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.prompt_options import PromptOptions


class ReturnScaling(StrEnum):
    """What credit is divided by, besides what the algorithm does: nothing, or the range of returns
    between two percentiles."""

    none = "none"
    percentile = "percentile"


class ReplayChoice(StrEnum):
    """Which groups of earlier rounds are repeated: any alike, recent ones more often (by 1 / age in
    rounds), or those whose rewards differ more (by their standard deviation)."""

    uniform = "uniform"
    recency = "recency"
    advantage = "advantage"


@dataclass(frozen=True)
class RunOptions(PromptOptions, key="run"):
    """How much is trained, and how much of it on samples of one round (N, T, K; S is
    mode.max_staleness)."""

    updates: int = limits.count(
        256, about="Optimizer updates of the whole run, N * T in each round.", fork=limits.LATER
    )
    groups_per_update: int = limits.count(64, about="Prompts of one update (a minibatch).")
    updates_per_round: int = limits.count(
        1,
        about="N: minibatches of samples that one round generates.",
        source="arXiv:2410.18252",
        fork="it decides how many prompts a round has, and how rounds are counted",
    )
    passes: int = limits.count(
        1,
        about="T: passes over the samples of a round.",
        source="arXiv:2410.18252",
        fork="it decides how rounds are counted, so that the fork's round is another one",
    )
    group_size: int = limits.count(
        2,
        max=10**6,
        about="K: responses generated per prompt.",
        source="arXiv:2410.18252",
        fork="samples of the shared rounds, and of chunks on their way, have groups of it",
    )
    oversample: float = limits.number(
        0.0,
        min=1,
        max=100,
        also={0: "to leave it to the algorithm"},
        about=(
            "Groups generated for each that is trained on: those with unequal rewards are taken "
            "first, in order; 0 leaves it to the algorithm (1 for all but dapo)."
        ),
        fork="it decides how many prompts a round has",
    )
    buffer_rounds: int = limits.count(
        0,
        min=0,
        about=(
            "Rounds whose groups are kept to be trained on again; 0 trains on the groups of each "
            "round once. Needs run.fresh_share below 1."
        ),
        source="arXiv:2604.08706",
    )
    fresh_share: float = limits.number(
        1.0,
        above=0,
        max=1,
        about=(
            "Share of a round's groups that are generated for it; the others are repeated from the "
            "last run.buffer_rounds rounds. Early rounds are smaller, as there is less to repeat."
        ),
        source="arXiv:2604.08706",
    )
    replay_sampling: ReplayChoice = limits.option(
        ReplayChoice.uniform,
        about=(
            "Which groups are repeated: any alike (uniform), by 1 / age in rounds (recency), or by "
            "the standard deviation of their rewards (advantage)."
        ),
        source="arXiv:2604.08706",
        fork=limits.LATER,
    )
    offline_share: float = limits.number(
        0.0,
        min=0,
        below=1,
        about=(
            "Share of a round's prompts that have fixed pairs of answers instead of samples; the "
            "run's reward scores them. Needs run.group_size=2."
        ),
    )
    offline_pairs: str = limits.option(
        "",
        about=(
            "The pairs of run.offline_share, as for labels.path; of a folder or hub name the train "
            "part is read. Empty takes the pairs of the label stage."
        ),
    )
    mask_truncated: bool = limits.option(
        False,
        about=(
            "Samples that reach the response limit without the end token are not trained on. The "
            "baselines of others still count them; pairs are chosen among the others, if there are "
            "two. Not for losses that compare all samples of a group."
        ),
        source="overlong filtering of arXiv:2503.14476, section 3.4; arXiv:2508.08221",
        fork=limits.LATER,
    )
    return_scaling: ReturnScaling = limits.option(
        ReturnScaling.none,
        about=(
            "Percentile divides credit by the moving average of the range of returns from the 5th "
            "to the 95th percentile, if that is above 1; for algorithms that do not standardise."
        ),
        source="DreamerV3, arXiv:2301.04104",
        fork=limits.LATER,
    )
    return_decay: float = limits.share(
        0.99,
        about="Share of the average range of return_scaling=percentile that a round keeps.",
        source="DreamerV3, arXiv:2301.04104",
        fork=limits.LATER,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        per_round = self.updates_per_round * self.passes
        if self.updates % per_round:
            below = max(1, self.updates // per_round) * per_round
            raise UserError(
                f"run.updates={self.updates} is not divisible by run.updates_per_round * "
                f"run.passes = {per_round}: choose {below} or "
                f"{below + per_round}"
            )
        self._check_replay()

    def _check_replay(self) -> None:
        """Raise UserError for a buffer that repeats nothing, or less than a round needs."""
        given = f"run.buffer_rounds={self.buffer_rounds} run.fresh_share={self.fresh_share:g}"
        if not self.buffer_rounds and self.fresh_share == 1:
            return
        if not self.buffer_rounds or not self.groups_replayed:
            raise UserError(
                f"{given}: nothing would be repeated of {self.groups_per_round} groups in a round; "
                "pass both, such as run.buffer_rounds=4 run.fresh_share=0.5, or neither"
            )
        held = self.buffer_rounds * self.groups_fresh
        if held < self.groups_replayed:
            raise UserError(
                f"{given}: a round repeats {self.groups_replayed} groups, and the buffer holds "
                f"{held} at most; pass run.buffer_rounds="
                f"{-(-self.groups_replayed // self.groups_fresh)} or a larger run.fresh_share"
            )

    @property
    def optimizer_steps_per_round(self) -> int:
        """N * T: how much older a sample gets when it waits for one round."""
        return self.updates_per_round * self.passes

    @property
    def num_rounds(self) -> int:
        return self.updates // self.optimizer_steps_per_round

    @property
    def groups_per_round(self) -> int:
        """Groups trained on in a round."""
        return self.groups_per_update * self.updates_per_round

    @property
    def groups_fresh(self) -> int:
        """Groups of a round that are generated for it and trained on."""
        return max(1, round(self.groups_per_round * self.fresh_share))

    @property
    def groups_replayed(self) -> int:
        """Groups of a round that earlier rounds have trained on; fewer while the buffer fills."""
        return self.groups_per_round - self.groups_fresh

    @property
    def groups_generated(self) -> int:
        """Groups written for a round."""
        return math.ceil(self.groups_fresh * max(1.0, self.oversample))

    @property
    def groups_repeated(self) -> int:
        """Prompts of a round that prompts=replay may draw again."""
        return math.floor(self.groups_generated * self.repeat_share)
