"""Metrics, options and settings in the words of figures, tables and pages."""

from __future__ import annotations

import re
from typing import Any

from rlhf_lab_analysis.comparison.families import NANO
from rlhf_lab_analysis.sources.conditions import LETTERS

WIN_RATE, GOLD, PROXY, KL = "gold/win_rate", "gold/mean", "proxy/mean", "kl/sft_k1"
# Measures of how far a policy is from SFT, any of which figures can have as their axis of drift.
DRIFTS = (KL, "ppl/sft_paper", "ppl/sft_response")
UPDATES, WALL, DEVICE_HOURS, FLOPS = "x/updates", "x/wall_seconds", "x/device_hours", "x/flops"
VIRTUAL = "x/virtual_seconds"
COMPLETIONS, ACCURACY = "x/completions", "accuracy/mean"
LABELS = {
    WIN_RATE: "gold win-rate",
    GOLD: "gold reward",
    PROXY: "proxy reward",
    ACCURACY: "accuracy",
    "reward/mean": "training reward",
    KL: "KL to SFT (nats a sequence)",
    "ppl/sft_response": "perplexity under SFT",
    "ppl/sft_paper": "perplexity under SFT, as in the paper",
    "x/rounds": "rounds",
    UPDATES: "updates",
    "x/prompts": "prompts",
    COMPLETIONS: "completions",
    "x/generated_tokens": "generated tokens",
    "x/trained_tokens": "trained tokens",
    FLOPS: "FLOPs",
    WALL: "wall-clock of training (s)",
    DEVICE_HOURS: "device-hours",
    VIRTUAL: "wall-clock of the virtual cluster (virtual s)",
    "updates_per_round": "updates a round, N",
    "max_staleness": "staleness bound, S (rounds)",
    "passes": "passes, T",
    "group_size": "samples a prompt, K",
    "algo": "algorithm",
    "mode": "mode",
    "model": "policy",
    "proxy": "proxy model",
    "optim.schedule_per": "learning rate moves per",
    "optim.lr": "learning rate",
}
# For the side of a panel, which has less room, and for heads of columns in tables and files.
SHORT = {KL: "KL to SFT (nats)", WALL: "wall-clock (s)", VIRTUAL: "virtual time (virtual s)"}
HEADS = {
    KL: "KL to SFT, nats", WALL: "wall-clock, s", VIRTUAL: "wall-clock, virtual s",
    GOLD: "gold score", PROXY: "proxy score",
}  # fmt: skip
# Names of options as the field writes them. Names that are not here stay as they are.
WORDS = {
    "ppo": "PPO",
    "rloo": "RLOO",
    "proximal_rloo": "proximal RLOO",
    "online_dpo": "online DPO",
    "online_ipo": "online IPO",
    "online_slic": "online SLiC",
    "best_of_n": "best-of-N",
    "grpo": "GRPO",
    "dr_grpo": "Dr. GRPO",
    "gspo": "GSPO",
    "dapo": "DAPO",
    "cispo": "CISPO",
    "copg": "CoPG",
    "asymre": "AsymRE",
    "vcpo": "VCPO",
    "tba": "TBA",
    "reinforce": "REINFORCE",
    "reinforce_plus_plus": "REINFORCE++",
    "remax": "ReMax",
    "lite_ppo": "Lite PPO",
    "ma_ppo": "MA-PPO",
    "sao": "SAO",
    "mdpo": "MDPO",
    "distill": "on-policy distillation",
    "dppo": "DPPO",
    "m2po": "M2PO",
    "a3po": "A-3PO",
    "icepop": "IcePop",
    "kpop": "KPop",
    "estr": "ESTR",
    "partial_turns": "one version per turn",
    "task_rule": "reward of the task's rule",
    "reward_model": "reward model",
    "truncated_is": "truncated importance weights",
    "sequence_is": "importance weights of sequences",
    "tldr_nano": "TL;DR nano",
    "ask_nano": "questions nano",
    "ess_scaled": "learning rate scaled by ESS",
    "fp8_e4m3": "FP8 (E4M3)",
    **{name: f"{millions}M" for name, millions in NANO.items()},
}
# Settings by the last word of their key: the words with a value, and those of the values that are
# none of it.
PHRASES: dict[str, tuple[str, dict[str, str]]] = {
    "lr": ("learning rate {}", {}),
    "schedule_per": ("rate per {}", {"none": "rate per update"}),
    "round_weights": ("weights in {}", {"none": "weights not rounded"}),
    "lora_rank": ("LoRA of rank {}", {"0": "no LoRA"}),
    "max_staleness": ("S={}", {}),
    "when_stale": ("{}", {"none": ""}),
    "lag_probabilities": ("P(lag)={}", {"none": "one lag"}),
    "lam": ("lambda {}", {}),
    "combine": ("ensemble, {}", {"none": "one proxy"}),
    "length_power": ("tail of power {}", {"0": "no tail", "none": "no tail"}),
    "mask_truncated": ("cut episodes left out", {"none": "cut episodes kept"}),
    "max_gradient_cosine": ("cosine up to {}", {"none": "no projection"}),
    "over_provision": ("{} times the samples", {"none": "no surplus"}),
    "buffer_rounds": ("buffer of {} rounds", {"none": "no buffer"}),
    "extra_rounds": ("{} extra rounds", {}),
    "kl": ("{} KL", {}),
    "order": ("in order of {}", {"none": ""}),
    "replay": ("replay by {}", {"none": "no replay"}),
    "tool_sigma": ("tail of tools {}", {"0": "no tail of tools", "none": "no tail of tools"}),
    "tool_deadline": ("{} s for tools", {"0": "no limit for tools", "none": "no limit for tools"}),
    "top_k": ("top {} tokens", {"0": "all tokens"}),
}
SETTING = re.compile(r"(?<![\w.-])((?:[a-z]+\.)*)([a-z][a-z0-9_]*)=([^\s,;]+)")
SWEEP = re.compile(r"\((\w*_\w+)\)$")
WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*")
# Parts of names of what lies from 0 to 1; a gap of two shares is none itself.
SHARES = ("win_rate", "tie_rate", "eos_rate", "accuracy", "share of runs", "probability of")
GAPS = "gap/"
# Beginnings of names of what has no negative values. A KL is one, though its estimates may be less.
NEVER_NEGATIVE = (
    *("x/", "seconds/", "total/", "kl/", "ppl/", "lag/", "ratio/", "sample/length"),
    *("update/entropy", "update/grad_norm"),
)


def in_words(text: str) -> str:
    """A label with the names of options as the field writes them, settings as `learning rate
    0.001`, and a sweep in parentheses at its end as `sweep adapters nano`."""
    text = SWEEP.sub(lambda found: f"(sweep {found[1].replace('_', ' ')})", text)
    text = SETTING.sub(lambda found: setting_phrase(found[2], found[3]) or found[0], text)
    return WORD.sub(lambda found: WORDS.get(found[0], found[0]), text)


def setting_phrase(key: str, value: str) -> str:
    """A value of a setting in words; empty where there are none for its key."""
    phrase, without = PHRASES.get(key, ("", {}))
    value = value.removesuffix(".0")
    return without.get(value, phrase.format(value))


def is_share(name: str) -> bool:
    """Whether values of that name lie from 0 to 1."""
    return not name.startswith(GAPS) and any(part in name for part in SHARES)


def is_never_negative(name: str) -> bool:
    """Whether values of that name lie from 0 on."""
    return is_share(name) or name.startswith(NEVER_NEGATIVE)


def label(name: str) -> str:
    """A metric, axis or setting in words with its unit; its own name where there are none."""
    return LABELS.get(name, name)


def short_label(name: str) -> str:
    """The same where there is less room."""
    return SHORT.get(name, label(name))


def head(name: str) -> str:
    """The same for the head of a column."""
    return HEADS.get(name, label(name))


def setting_text(key: str, value: Any) -> str:
    """A value of a setting: `N=4`, `sync`, `no correction`."""
    name = key.rpartition(".")[2]
    if value is None or value is False:
        return PHRASES.get(name, ("", {}))[1].get("none", f"no {key}")
    return setting_phrase(name, str(value)) or part_label(key, value) or f"no {key}"


def part_label(name: str, value: Any) -> str:
    """A part as a word of a label: `N=4`, `sync`; nothing for none."""
    if value is None or (name == "correction" and value == "none"):
        return ""
    if name in LETTERS:
        return f"{LETTERS[name]}={value}"
    return f"{name}={value}" if "." in name else str(value)
