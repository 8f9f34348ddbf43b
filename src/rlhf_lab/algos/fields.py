"""Fields that several algorithms have, each with its range and description."""

from __future__ import annotations

from enum import StrEnum

from rlhf_lab.algos.vocabulary_kl import Direction
from rlhf_lab.types import limits
from rlhf_lab.types.data import Reduction


class RatioOf(StrEnum):
    """What the importance weight is of: whole responses (A-LoL), single tokens (A-LoL sequence), or
    nothing (A-LoL reference free)."""

    sequence = "sequence"
    token = "token"
    none = "none"


def kl_in_reward(default: float, source: str = "") -> float:
    """The penalty on KL that is part of the reward."""
    about = (
        "Reward subtracted for each nat of KL to the reference policy, estimated by the log-ratio "
        "of the sampled tokens (k1); 0 is no penalty."
    )
    return limits.number(default, least=0, most=100, about=about, source=source)


def kl_target() -> float:
    """What an adaptive penalty on KL aims at."""
    about = (
        "KL to the reference in nats per sequence towards which kl_coef is adapted after each "
        "round; 0 keeps kl_coef fixed."
    )
    source = "arXiv:1909.08593, section 2.2"
    return limits.number(0.0, least=0, most=1e6, about=about, source=source)


def kl_horizon() -> int:
    """How slowly an adaptive penalty on KL moves."""
    about = "Samples over which kl_coef adapts to kl_target; more make it slower."
    source = "arXiv:1909.08593, section 2.2"
    return limits.count(10_000, most=10**12, about=about, source=source)


def kl_in_loss(default: float, source: str = "") -> float:
    """The penalty on KL that is a term of the loss."""
    about = (
        "Weight in the loss of KL(policy || reference) per token, by the k3 estimator; 0 is no "
        "penalty."
    )
    return limits.number(default, least=0, most=100, about=about, source=source)


def clip(default: float, of: str = "token") -> float:
    """PPO's clip of a ratio."""
    about = (
        f"The {of} ratio of policy to proximal policy earns nothing outside 1 - clip to 1 + clip."
    )
    return limits.share(default, about=about, source="arXiv:1707.06347, eq. 7")


def clip_low(default: float, of: str = "token", source: str = "") -> float:
    """The lower side of a clip with two bounds."""
    about = f"The {of} ratio of policy to proximal policy earns nothing below 1 - clip_low."
    return limits.share(default, about=about, source=source)


def clip_high(default: float, of: str = "token", source: str = "") -> float:
    """The upper side of a clip with two bounds."""
    about = f"The {of} ratio of policy to proximal policy earns nothing above 1 + clip_high."
    return limits.number(default, least=0, most=100, about=about, source=source)


def epsilon(of: str = "group") -> float:
    """What keeps a division by a standard deviation finite."""
    about = f"Added to the standard deviation of the {of}'s rewards before it divides them."
    return limits.number(1e-4, least=1e-12, most=1, about=about)


def gamma(default: float = 1.0) -> float:
    """The discount of generalised advantage estimation."""
    about = "Discount of later rewards per step of generalised advantage estimation; 1 is none."
    return limits.share(default, about=about, source="arXiv:1506.02438")


def lam(default: float = 0.95) -> float:
    """Lambda of generalised advantage estimation."""
    about = (
        "Lambda of generalised advantage estimation: 0 trusts the value model alone, 1 the "
        "sampled rewards alone."
    )
    return limits.share(default, about=about, source="arXiv:1506.02438")


def lam_alpha(default: float = 0.0) -> float:
    """Lambda of advantages by the length of the response."""
    about = (
        "Lambda of a response's advantages is 1 - 1 / (lam_alpha * its length), at least 0; 0: "
        "algo.lam, whatever the length."
    )
    source = "0.05 for answers of thousands of tokens: arXiv:2504.05118; 1.5: arXiv:2607.07508"
    return limits.number(default, least=0, most=1e6, about=about, source=source)


def value_lam(default: float = -1.0) -> float:
    """Lambda of the targets of values."""
    about = "Lambda of the returns that values learn, where it is not that of the advantages."
    also = {-1: "for that of the advantages"}
    source = "1: arXiv:2503.01491"
    return limits.number(default, least=0, most=1, also=also, about=about, source=source)


def value_clip(default: float = 0.2) -> float:
    """How far values may move within a round."""
    about = (
        "Points of reward that a value may move from what it was at the round's start before its "
        "loss improves no further; 0 does not clip."
    )
    return limits.number(default, least=0, most=1e6, about=about, source="arXiv:2403.17031")


def value_coef(default: float = 0.1) -> float:
    """The weight of the value model's loss."""
    return limits.number(
        default, least=0, most=1e3, about="Weight of the value loss beside the policy loss."
    )


def beta(about: str, source: str = "") -> float:
    """The temperature of preference losses."""
    return limits.number(0.1, least=1e-6, most=100, about=about, source=source)


def reduction(default: Reduction) -> Reduction:
    """How the loss of tokens becomes the loss of an update."""
    about = (
        "How token losses become one number: a mean over each response and then over responses, a "
        "mean over all tokens of the update, a mean over each prompt's tokens and then over "
        "prompts, or a sum divided by rows times response limit."
    )
    source = "prompt_mean: arXiv:2510.13786; per_limit: arXiv:2503.20783, section 3.2"
    return limits.option(default, about=about, source=source)


def value_baseline() -> bool:
    """Where A-LoL's baseline comes from."""
    return limits.option(
        False,
        about="Whether a value model of the prompt is the baseline, not the mean of the group.",
        source="arXiv:2305.14718",
    )


def value_rounds() -> int:
    """How long A-LoL's baseline is learned before it is frozen."""
    return limits.count(
        0,
        least=0,
        about=(
            "Rounds at the start in which only the value model learns, from samples of the policy "
            "as it begins; then it is frozen and the policy learns. 0: both learn in every round."
        ),
        source="arXiv:2305.14718",
    )


def priority() -> bool:
    """A-LoL's sampling by advantage."""
    return limits.option(
        False,
        about=(
            "Whether a sample also weighs its advantage over the mean positive one: what sampling "
            "in proportion to advantages does in expectation."
        ),
        source="arXiv:2305.14718",
    )


def reference_kl() -> float:
    """A-LoL's penalty on KL."""
    return limits.number(
        0.0,
        least=0,
        most=100,
        about=(
            "Weight in the loss of log(policy / reference) of whole responses; A-LoL KL has it "
            "with ratio_of=none."
        ),
        source="arXiv:2305.14718",
    )


def teacher() -> str:
    """What a policy is distilled from."""
    return limits.option(
        "",
        about=(
            "Teacher: a hub name, with @REVISION if wanted, or a folder of save_pretrained, of the "
            "policy's vocabulary. It takes the place of the reference."
        ),
    )


def direction(default: Direction) -> Direction:
    """Which KL to the teacher."""
    return limits.option(
        default,
        about=(
            "Which KL to the teacher: reverse by the sampled token alone (sampled), or a sum over "
            "tokens with the policy's probabilities (reverse) or the teacher's (forward)."
        ),
        source="arXiv:2606.24143",
    )


def top_k() -> int:
    """How much of a teacher's distribution is read."""
    return limits.count(
        0,
        least=0,
        about=(
            "Tokens over which kl=reverse and kl=forward sum, the teacher's most likely ones "
            "before each token; 0 is the whole vocabulary."
        ),
        source="arXiv:2606.24143",
    )
