"""The options of group `run` that decide which prompts a round draws."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError

POOL = "after online difficulty filtering, arXiv:2504.03380"
REPLAY = "Prompt Replay, arXiv:2603.21177"


class PromptChoice(StrEnum):
    """Which prompts a round draws: the next ones of the stream, those among them that are neither
    always nor never solved, or again those of earlier rounds whose pass rate is nearest to 1/2."""

    stream = "stream"
    pool = "pool"
    replay = "replay"


@dataclass(frozen=True)
class PromptOptions(limits.OptionGroup, key="run"):
    """Which prompts a round draws, by the results of earlier rounds."""

    prompts: PromptChoice = limits.option(
        PromptChoice.stream,
        about=(
            "Prompts of a round: the next ones (stream), without those always or never solved of "
            "late (pool), or in part again those solved about half of the time (replay)."
        ),
        source=f"{POOL}; {REPLAY}",
    )
    pass_rate_window: int = limits.count(
        1,
        max=1024,
        about=(
            "Latest groups of a prompt whose mean reward is its pass rate; prompts=pool leaves "
            "nothing out that has had fewer."
        ),
    )
    rest_rounds: int = limits.count(
        64,
        about=(
            "Rounds that prompts=pool leaves a prompt out for after a group, if its pass rate is "
            "then 0 or 1."
        ),
        source=POOL,
    )
    repeat_share: float = limits.number(
        0.5,
        above=0,
        below=1,
        about="Largest share of a round's prompts that prompts=replay draws again.",
        source=REPLAY,
    )
    cooldown_rounds: int = limits.count(
        5,
        about="Rounds after which prompts=replay may draw a prompt again.",
        source=REPLAY,
    )
    max_repeats: int = limits.count(
        5,
        about="How often prompts=replay draws one prompt again in a run.",
        source=REPLAY,
    )
    min_pass_rate: float = limits.share(
        0.24,
        about="Smallest pass rate of a prompt that prompts=replay draws again.",
        source=REPLAY,
    )
    max_pass_rate: float = limits.share(
        0.7,
        about="Largest pass rate of a prompt that prompts=replay draws again.",
        source=REPLAY,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_pass_rate > self.max_pass_rate:
            raise UserError(
                f"run.min_pass_rate={self.min_pass_rate:g} with "
                f"run.max_pass_rate={self.max_pass_rate:g}: no pass rate is between them; "
                "pass run.min_pass_rate=0.24 run.max_pass_rate=0.7"
            )

    @property
    def remembers_prompts(self) -> bool:
        """Whether results of earlier rounds decide what is drawn."""
        return self.prompts is not PromptChoice.stream
