"""Former names of options: what they are called now, and where files still have them.

Overrides and YAML files with former names are accepted for one release, with a warning. Configs
that runs recorded are read under the present names. Hashes over settings are recorded with runs,
sweeps and cached stages and compared later: they are taken over the names that the settings were
first recorded under, so that a new name changes no hash; a key that was added since is left out of
them where it has the value that changes nothing.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlhf_lab.runs.former_options import present_options, with_options

KEYS = {"mode.at_bound": "mode.when_stale", "mode.ahead": "mode.extra_rounds"}
GROUPS = {"budget@run": "run", "budget": "run"}
VALUES = {"mode.weights": {"newest": "latest", "newest_in_sequence": "latest_per_token"}}
# Classes whose name is recorded with their values, by their present name.
CLASSES = {"RunOptions": "Recipe", "Kimi": "MDPO"}
# Keys that were added after 0.1, with their defaults.
ADDED: dict[str, Any] = {
    "deterministic": False,
    "stage_seed": 0,
    "eval.last_prompts": 0,
    "eval.every": 0,
    "eval.device": "auto",
    "tracker.samples": 2,
    "eval.tasks": [],
    "eval.tasks_folder": "",
    "eval.fewshot": -1,
    "sft.micro_rows": 0,
    "reward_model.micro_rows": 0,
    "engine.versions": "host",
    "tracker.probe_every": 0,
    "tracker.changed_share": False,
    "engine.tf32": False,
    "generator.dtype": "auto",
    "generator.round_weights": "none",
    "generator.data_parallel_size": 1,
    "eval.max_new_tokens": 0,
    "algo.kl_target": 0.0,
    "algo.kl_horizon": 10_000,
    "algo.whiten_advantages": True,
    "algo.whiten_rewards": False,
    "algo.shared_trunk": False,
    "algo.reference_decay": 1.0,
    "run.mask_truncated": False,
    "reward_model.accuracy_by": "",
    "reward_model.steps": "",
    "reward_model.step_separator": "\\n",
    "reward_model.held_out_steps": 0.1,
    "run.buffer_rounds": 0,
    "run.fresh_share": 1.0,
    "run.replay": "uniform",
    "run.prompts": "stream",
    "run.pass_groups": 1,
    "run.rest_rounds": 64,
    "run.repeat_share": 0.5,
    "run.cooldown_rounds": 5,
    "run.most_repeats": 5,
    "run.pass_least": 0.24,
    "run.pass_most": 0.7,
    "run.offline_share": 0.0,
    "run.offline_pairs": "",
    "correction.level": "token",
    "run.return_scaling": "none",
    "run.return_decay": 0.99,
    "shaping.symlog": False,
    "generator.scores": "",
    "algo.value_baseline": False,
    "algo.priority": False,
    "algo.reference_kl": 0.0,
    "algo.symlog_values": False,
    "algo.termination": "fixed",
    "algo.macro_value": "first",
    "reward.device": "auto",
    "judge.device": "auto",
    "reward.style": "auto",
    "judge.style": "auto",
    "reward.workers": 0,
    "judge.workers": 0,
    "reward.needs_eos": True,
    "judge.needs_eos": True,
    "optim.gradient_cosine": False,
    "optim.max_gradient_cosine": 1.0,
    "algo.clip_higher": 0.0,
    "algo.deviation": "group",
    **{
        f"{stage}.{name}": default
        for stage in ("sft", "reward_model")
        for name, default in (
            ("schedule", "one_cycle"),
            ("warmup_share", -1.0),
            ("eps", 1e-8),
            ("weight_decay", 0.0),
            ("max_grad_norm", 1.0),
            ("max_response_tokens", 0),
            ("max_tokens", 0),
        )
    },
    "sft.epochs": 0,
    "labels.prompt_column": "prompt",
    "labels.chosen_column": "chosen",
    "labels.rejected_column": "rejected",
    "labels.held_out_split": "held_out",
    "reward_model.head_std": 0.0,
    "reward_model.normalize": True,
    "algo.kl_coef": 0.0,
    "algo.kl_in": "auto",
    "algo.kl_estimator": "auto",
    "algo.value_rounds": 0,
    "algo.lam_alpha": 0.0,
    "algo.value_lam": -1.0,
    "algo.value_bins": 0,
    "algo.value_least": -10.0,
    "algo.value_most": 10.0,
    "algo.value_spread": 0.75,
    "task.progress_weight": 0.0,
    "episodes.episode_seconds": 0.0,
    "episodes.decode_ahead": 0,
    "checkpoint.keep_every": 0,
    "mode.over_provision": 1.0,
    "mode.segment_turns": 0,
    "model.add_bos": "auto",
    "proxy.add_bos": "auto",
    "model.sft": False,
    "proxy.sft": False,
    "task.chat_arguments": {},
    "task.long_references": "cut_with_end",
    "reward.special_tokens": False,
    "judge.special_tokens": False,
    "reward.tokenizer": "",
    "judge.tokenizer": "",
    "fork.parent": "",
    "fork.round": 0,
    "fork.without_rows": [],
}
# Options of a group that had the key from the beginning.
HAD: dict[str, tuple[str, ...]] = {
    "generator.dtype": ("vllm", "vllm_server"),
    "algo.kl_coef": (
        *("ppo", "ma_ppo", "mdpo", "reinforce", "reinforce_plus_plus", "remax", "rloo"),
        *("proximal_rloo", "grpo", "dr_grpo", "best_of_n"),
    ),
} | {
    f"algo.{key}": ("ppo",)
    for key in (
        *("kl_target", "kl_horizon", "whiten_advantages", "whiten_rewards"),
        *("shared_trunk", "reference_decay"),
    )
}
# Defaults that became `by the device`, with the former ones, which they still are on a CPU.
BY_DEVICE: dict[str, tuple[Any, Any]] = {
    "engine.dtype": ("auto", "float32"),
    "engine.micro_tokens": (-1, 0),
    "generator.enforce_eager": (None, True),
}
# Defaults that became `by the model`, with the former ones, which they still are for random
# weights. Runs train no pretrained policy before RLHF; a proxy may be one, whose node has a path.
BY_MODEL: dict[str, tuple[Any, Any]] = {"sft.lr": (0.0, 3e-3), "reward_model.lr": (0.0, 1e-3)}

# Nodes that were added after 0.1, with a node, keys of it, and whether a value of any key has them
# used. Otherwise they have their defaults (checks refuse others) and are left out.
ADDED_NODES: dict[str, tuple[str, tuple[str, ...], Callable[[Any], bool]]] = {
    "cluster": ("mode", ("executor",), lambda executor: executor == "virtual"),
    "fork": ("fork", ("parent",), bool),
    # Without either it decides only what follows where an environment hangs.
    "episodes": ("episodes", ("tool_seconds", "decode_ahead"), bool),
}

# Keys that decide nothing by themselves, and which hashes therefore leave out.
UNHASHED = ("plugins",)

FIRST_KEYS = {present: former for former, present in KEYS.items()}
FIRST_GROUPS = {"run": "budget@run"}
FIRST_VALUES = {
    key: {present: former for former, present in values.items()} for key, values in VALUES.items()
}
OVERRIDE = re.compile(r"([+~]*)([^=]+)(=.*)?", re.DOTALL)
WORD = re.compile(r"\w+")
# A term of a reward has the keys of a reward, a task of a mixture those of a task.
TERM = re.compile(r"\.(terms|tasks)\.[^.]+")


def present_key(key: str) -> str:
    """A key or a group by its present name."""
    return KEYS.get(key, GROUPS.get(key, key))


def present_value(key: str, value: Any) -> Any:
    """A value of a key, or a text with several values, by its present name."""
    return renamed_value(VALUES.get(key, {}), value)


def renamed_value(names: Mapping[str, str], value: Any) -> Any:
    if not names or not isinstance(value, str):
        return value
    return WORD.sub(lambda found: names.get(found[0], found[0]), value)


def present_override(text: str) -> str:
    """An override, `mode.ahead=2` or `+mode.weights=newest`, by its present names."""
    return override_in(text, KEYS | GROUPS, VALUES)


def first_override(text: str) -> str:
    """An override under the names that sweeps were first recorded by."""
    return override_in(text, FIRST_KEYS | FIRST_GROUPS, FIRST_VALUES)


def override_in(text: str, keys: Mapping[str, str], values: Mapping[str, Mapping[str, str]]) -> str:
    if not (found := OVERRIDE.fullmatch(text)):
        return text
    sign, key, rest = found.groups()
    return f"{sign}{keys.get(key, key)}{renamed_value(values.get(key, {}), rest) or ''}"


def present_overrides(texts: Sequence[str]) -> list[str]:
    """Overrides that a person gave, by their present names; a former one is warned of."""
    plain = [warned(text, present_override(text)) for text in texts]
    keys = {text.lstrip("+").partition("=")[0] for text in plain}
    found = present_options(plain, lambda group, key: f"{group}.{key}" in keys)
    return [warned(former, present) for former, present in zip(plain, found, strict=True)]


def warned(former: str, present: str, where: str = "") -> str:
    """The present text, with a warning if the former one is another."""
    if former != present:
        warn(f"{where}{former} is now {present}: the former name works for one release")
    return present


@functools.cache
def warn(text: str) -> None:
    """Print a warning, once a process."""
    sys.stderr.write(f"rlhf-lab: {text}\n")


def present_config(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A recorded config, nested or with dotted keys, by its present names."""
    return with_options(renamed(config, KEYS, VALUES, prefix), prefix, is_former=True)


def renamed(
    config: Mapping[str, Any],
    keys: Mapping[str, str],
    values: Mapping[str, Mapping[str, str]],
    prefix: str = "",
) -> dict[str, Any]:
    """A config with other names for keys and values, whose nodes stay where they are."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            found[name] = renamed(value, keys, values, f"{prefix}{name}.")
            continue
        if key in keys:
            name = name.removesuffix(last_part(key)) + last_part(keys[key])
        found[name] = renamed_value(values.get(key, {}), value)
    return found


def last_part(key: str) -> str:
    return key.rpartition(".")[2]


def as_first_recorded(values: Any) -> Any:
    """Plain values under the names that they were first recorded by."""
    if isinstance(values, Mapping):
        used = without_unused(values).items()
        hashed = {name: value for name, value in used if name not in UNHASHED}
        found = with_first_classes(with_former_defaults(without_added(hashed)))
        found = with_options(found, "", is_former=False)
        return renamed(found, FIRST_KEYS, FIRST_VALUES)
    return values


def without_unused(values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values without the nodes of ADDED_NODES that decide nothing: earlier runs lack them."""
    return {name: value for name, value in values.items() if is_used(name, values)}


def is_used(name: str, values: Mapping[str, Any]) -> bool:
    """Whether a node of a config decides anything, as far as ADDED_NODES knows."""
    if name not in ADDED_NODES:
        return True
    node, keys, has_use = ADDED_NODES[name]
    found = values.get(node)
    return not isinstance(found, Mapping) or any(has_use(found.get(key)) for key in keys)


def without_added(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Plain values without the keys of ADDED that have their default."""
    return {
        name: without_added(value, f"{prefix}{name}.") if isinstance(value, Mapping) else value
        for name, value in values.items()
        if (key := TERM.sub("", f"{prefix}{name}")) not in ADDED
        or value != ADDED[key]
        or values.get("name") in HAD.get(key, ())
    }


def with_former_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values in which a part that names no GPU has the former defaults for BY_DEVICE. The
    machine has no say in it: a hash is the same wherever it is taken."""
    found = dict(values)
    for key, (present, former) in BY_DEVICE.items():
        part, _, name = key.partition(".")
        node = found.get(part)
        if not isinstance(node, Mapping) or name not in node or node[name] != present:
            continue
        if not str(node.get("device", "")).startswith("cuda"):
            found[part] = {**node, name: former}
    return with_former_rates(found)


def with_former_rates(values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values with the former defaults of BY_MODEL, where the model has random weights."""
    found = dict(values)
    proxy = found.get("proxy")
    for key, (present, former) in BY_MODEL.items():
        part, _, name = key.partition(".")
        node = found.get(part)
        if not isinstance(node, Mapping) or name not in node or node[name] != present:
            continue
        if part == "sft" or not (isinstance(proxy, Mapping) and "path" in proxy):
            found[part] = {**node, name: former}
    return found


def with_first_classes(values: Any) -> Any:
    """Plain values with the former names of classes."""
    if isinstance(values, Mapping):
        found = {name: with_first_classes(value) for name, value in values.items()}
        if (part := found.get("part")) in CLASSES:
            found["part"] = CLASSES[part]
        return found
    return [with_first_classes(one) for one in values] if isinstance(values, list) else values
