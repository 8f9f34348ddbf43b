"""Words and numbers of figures, tables and pages: metrics, settings, seeds, runs, intervals."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlhf_lab.runs.trackers.console import counted
from rlhf_lab_analysis.comparison.cell import Cell, part_label
from rlhf_lab_analysis.ranges import listed, ranges_text
from rlhf_lab_analysis.statistics.results import Estimate, Method, Options

WIN_RATE, GOLD, PROXY, KL = "gold/win_rate", "gold/mean", "proxy/mean", "kl/sft_k1"
UPDATES, WALL, DEVICE_HOURS, FLOPS = "x/updates", "x/wall_seconds", "x/device_hours", "x/flops"
VIRTUAL = "x/virtual_seconds"
COMPLETIONS, ACCURACY = "x/completions", "accuracy/mean"
LABELS = {
    WIN_RATE: "gold win-rate",
    GOLD: "gold reward",
    PROXY: "proxy reward",
    ACCURACY: "accuracy",
    KL: "KL to SFT (nats a sequence)",
    "ppl/sft_response": "perplexity under SFT",
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
    "nano_s": "0.3M",
    "nano_m": "1M",
    "nano_l": "4M",
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
MISSING = "–"  # noqa: RUF001
FEW = 3


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


def fixed(value: float, digits: int) -> str:
    """A number to some digits after the point, without the sign of a rounded zero."""
    if not math.isfinite(value):
        return {math.inf: "inf", -math.inf: "-inf"}.get(value, "")
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def number_text(value: float) -> str:
    """Three decimals for what is around 1, whole numbers as they are, else four digits."""
    if not math.isfinite(value):
        return MISSING if math.isnan(value) else str(value)
    if value and float(value).is_integer() and abs(value) < 1e9:
        return str(int(value))
    if value == 0 or 1e-3 <= abs(value) < 1000:
        return f"{value:.3f}"
    return f"{value:.4g}"


def estimate_text(estimate: Estimate) -> str:
    """Such as 0.512 [0.431, 0.604]."""
    point, low, high = map(number_text, (estimate.point, estimate.low, estimate.high))
    return f"{point} [{low}, {high}]"


def unique(texts: Iterable[str]) -> tuple[str, ...]:
    """Each text once, in order."""
    return tuple(dict.fromkeys(texts))


def first_few(texts: Sequence[str], noun: str = "") -> list[str]:
    """The first texts, and how many more there are: `and 4 more conditions`."""
    more = f"and {len(texts) - FEW} more {noun}".rstrip()
    return [*texts[:FEW], *([more] if len(texts) > FEW else [])]


def seeds_text(seeds: Sequence[int]) -> str:
    return f"seed{'' if len(seeds) == 1 else 's'} {ranges_text(seeds)}"


def seeds_of(cells: Sequence[Cell]) -> dict[str, tuple[int, ...]]:
    """The seeds of each condition, as `runs_text` reads them."""
    several = len({cell.sweep for cell in cells}) > 1
    return {
        f"{f'{cell.sweep}: ' if several else ''}{cell.condition} [{cell.env}]": cell.seeds
        for cell in cells
    }


def runs_text(cells: Mapping[str, tuple[int, ...]]) -> str:
    """How many seeds each condition has, and which; once if all have the same.

    cells: seeds by a condition's name, which ends in its environment: `ppo N=1 [tldr]`.
    """
    envs = dict.fromkeys(name.rpartition(" [")[2].removesuffix("]") for name in cells)
    runs = counted(sum(map(len, cells.values())), "run")
    total = f"{runs} of {counted(len(cells), 'condition')} in {listed(envs)}"
    by_seeds: dict[tuple[int, ...], list[str]] = {}
    for name, seeds in cells.items():
        named = name.rpartition(" [")[0] if len(envs) == 1 else name
        by_seeds.setdefault(seeds, []).append(named)
    if len(by_seeds) == 1:
        seeds = next(iter(by_seeds))
        return f"{total}, n = {len(seeds)}{' each' if len(cells) > 1 else ''} ({seeds_text(seeds)})"
    each = (
        f"n = {len(seeds)} ({seeds_text(seeds)}): {', '.join(first_few(names, 'conditions'))}"
        for seeds, names in by_seeds.items()
    )
    return f"{total}: {'; '.join(each)}"


def interval_text(options: Options, of_shares: bool = False) -> str:
    """of_shares: whether some numbers may be shares, whose t intervals are made on log odds."""
    is_changed = of_shares and options.method is Method.t
    text = f"{options.text} interval over seeds"
    return f"{text}, which is made on log odds for shares" if is_changed else text


def left_out_text(lines: Sequence[str]) -> tuple[str, ...]:
    """How many runs and conditions do not count, and the first of them; nothing if all do."""
    reasons = first_few([line.removeprefix("left out: ") for line in lines])
    return (f"{len(lines)} left out: {'; '.join(reasons)}",) if lines else ()
