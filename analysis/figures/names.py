"""How metrics, axes and parts are called in figures, with their units."""

from __future__ import annotations

WIN_RATE, GOLD, PROXY, KL = "gold/win_rate", "gold/mean", "proxy/mean", "kl/sft_k1"
UPDATES, WALL, DEVICE_HOURS, FLOPS = "x/updates", "x/wall_seconds", "x/device_hours", "x/flops"
COMPLETIONS, ACCURACY = "x/completions", "accuracy/mean"
LABELS = {
    WIN_RATE: "gold win-rate",
    GOLD: "gold reward",
    PROXY: "proxy reward",
    ACCURACY: "accuracy",
    KL: "KL to SFT (nats a sequence)",
    "x/rounds": "rounds",
    UPDATES: "updates",
    "x/prompts": "prompts",
    COMPLETIONS: "completions",
    "x/generated_tokens": "generated tokens",
    "x/trained_tokens": "trained tokens",
    FLOPS: "FLOPs",
    WALL: "wall-clock of training (s)",
    DEVICE_HOURS: "device-hours",
    "updates_per_round": "updates a round, N",
    "max_staleness": "staleness bound, S (rounds)",
    "passes": "passes, T",
    "group_size": "samples a prompt, K",
    "algo": "algorithm",
    "mode": "mode",
    "model": "policy",
    "proxy": "proxy model",
    "optim.schedule_per": "learning rate moves per",
}


# Keys of the config in words: before their value, and where they have none.
SPOKEN = {
    "optim.schedule_per": ("rate per ", "rate per update"),
    "mode.lag_probabilities": ("P(lag)=", "one lag"),
    "reward.combine": ("ensemble, ", "one proxy"),
}
SHORT = {KL: "KL to SFT (nats)", WALL: "wall-clock (s)"}


# Parts of names of what lies from 0 to 1.
SHARES = ("win_rate", "accuracy", "share of runs", "probability of")
# A gap of two shares is none itself.
GAPS = "gap/"


def is_share(name: str) -> bool:
    """Whether values of that name lie from 0 to 1."""
    return not name.startswith(GAPS) and any(part in name for part in SHARES)


def short(name: str) -> str:
    """The same for the side of a panel, which has less room."""
    return SHORT.get(name, label(name))


def label(name: str) -> str:
    """A metric, axis or part in words; its own name where there are none."""
    return LABELS.get(name, name)
