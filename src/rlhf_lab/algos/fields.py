"""Fields that several algorithms have, each with its range and description."""

from __future__ import annotations

from rlhf_lab.types import limits
from rlhf_lab.types.data import Reduction


def kl_in_reward(default: float, source: str = "") -> float:
    """The penalty on KL that is part of the reward."""
    about = (
        "Reward subtracted for each nat of KL to the reference policy, estimated by the log-ratio "
        "of the sampled tokens (k1); 0 is no penalty."
    )
    return limits.number(default, min=0, max=100, about=about, source=source)


def kl_in_loss(default: float, source: str = "") -> float:
    """The penalty on KL that is a term of the loss."""
    about = (
        "Weight in the loss of KL(policy || reference) per token, by the k3 estimator; 0 is no "
        "penalty."
    )
    return limits.number(default, min=0, max=100, about=about, source=source)


def clip(default: float, of: str = "token") -> float:
    about = (
        f"The {of} ratio of policy to proximal policy earns nothing outside 1 - clip to 1 + clip."
    )
    return limits.share(default, about=about, source="arXiv:1707.06347, eq. 7")


def clip_low(default: float, of: str = "token", source: str = "") -> float:
    about = f"The {of} ratio of policy to proximal policy earns nothing below 1 - clip_low."
    return limits.share(default, about=about, source=source)


def clip_high(default: float, of: str = "token", source: str = "") -> float:
    about = f"The {of} ratio of policy to proximal policy earns nothing above 1 + clip_high."
    return limits.number(default, min=0, max=100, about=about, source=source)


def epsilon(of: str = "group") -> float:
    """What keeps a division by a standard deviation finite."""
    about = f"Added to the standard deviation of the {of}'s rewards before it divides them."
    return limits.number(1e-4, min=1e-12, max=1, about=about)


def lam_alpha(default: float = 0.0) -> float:
    about = (
        "Lambda of a response's advantages is 1 - 1 / (lam_alpha * its length), at least 0; 0: "
        "algo.lam, whatever the length."
    )
    source = "0.05 for answers of thousands of tokens: arXiv:2504.05118; 1.5: arXiv:2607.07508"
    return limits.number(default, min=0, max=1e6, about=about, source=source)


def value_lam(default: float = -1.0) -> float:
    about = "Lambda of the returns that values learn, where it is not that of the advantages."
    also = {-1: "for that of the advantages"}
    source = "1: arXiv:2503.01491"
    return limits.number(default, min=0, max=1, also=also, about=about, source=source)


def beta(about: str, source: str = "") -> float:
    return limits.number(0.1, min=1e-6, max=100, about=about, source=source)


def reduction(default: Reduction) -> Reduction:
    """How the loss of tokens becomes the loss of an update."""
    about = (
        "How token losses become one number: a mean over each response and then over responses, a "
        "mean over all tokens of the update, a mean over each prompt's tokens and then over "
        "prompts, or a sum divided by rows times response limit."
    )
    source = "prompt_mean: arXiv:2510.13786; per_limit: arXiv:2503.20783, section 3.2"
    return limits.option(default, about=about, source=source)
