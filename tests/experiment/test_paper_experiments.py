"""Every number of the paper's experiments, compared with a table made by hand from its sources."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from rlhf_lab.experiment.config.groups import option_files
from rlhf_lab.experiment.config.typed import typed
from rlhf_lab.experiment.rules.checks import check
from tests.support.composed import composed

pytestmark = pytest.mark.usefixtures("costly")

# Tables of hyper-parameters and the published code of arXiv:2410.18252; see docs/experiments.md.
SHARED: dict[str, Any] = {
    "mode.name": "async",
    "mode.max_staleness": 1,
    "algo.name": "online_dpo",
    "algo.beta": 0.1,
    "run.updates_per_round": 1,
    "run.passes": 1,
    "generator.temperature": 0.7,
    "task.max_prompt_tokens": 512,
    "optim.lr": 3e-6,
    "optim.schedule": "linear",
    "optim.schedule_per": "update",
    "optim.warmup_updates": 0,
    "optim.beta1": 0.9,
    "optim.beta2": 0.999,
    "optim.eps": 1e-8,
    "optim.weight_decay": 0.0,
    "eval.samples": 1,
}
TLDR = SHARED | {
    "task.path": "vwxyzjn/summarize_from_feedback_tldr_3_filtered_oai_preprocessing_1706381144",
    "task.max_response_tokens": 53,
    "run.updates": 256,
    "run.groups_per_update": 512,
    "run.group_size": 2,
    "reward.missing_eos": -1.0,
    "reward.needs_eos": True,
    "optim.max_grad_norm": 0.0,
    "eval.split": "validation",
    "eval.prompts": 6447,
    "eval.temperature": 0.01,
    "eval.max_new_tokens": 128,
    "eval.snapshots": 4,
    "judge.path": "cleanrl/EleutherAI_pythia-6.9b-deduped__reward__tldr",
    "judge.needs_eos": False,
}
EXPERIMENTS: dict[str, dict[str, Any]] = {
    **{
        f"tldr_{size}": TLDR
        | {
            "model.path": f"mnoukhov/pythia{size}-sft-tldr",
            "reward.path": f"mnoukhov/pythia{size}-rm-tldr6.9b",
        }
        for size in ("410m", "1b", "2.8b")
    },
    "gsm8k_rho1b": SHARED
    | {
        "model.path": "realtreetune/rho-1b-sft-GSM8K",
        "task.path": "openai/gsm8k",
        "task.template": "[MATH_TASK] Problem:\n{question}\n\nSolution:",
        "task.max_response_tokens": 512,
        "run.updates": 512,
        "run.groups_per_update": 252,
        "run.group_size": 4,
        "task.verify": "exact",
        "reward.name": "task_rule",
        # No penalty of answers without end token.
        "shaping.missing_eos": "keep",
        "optim.max_grad_norm": 1.0,
        "eval.split": "test",
        "eval.prompts": 1319,
        "eval.temperature": 0.01,
        "eval.max_new_tokens": 512,
        "eval.snapshots": 4,
    },
    "no_robots_8b": SHARED
    | {
        "model.path": "allenai/open_instruct_dev",
        "model.revision": (
            "costa_finetune_tulu3_8b_norobot__meta-llama_Meta-Llama-3.1-8B__42__1725559869"
        ),
        "reward.path": (
            "vwxyzjn/reward_modeling__allenai_open_instruct_dev@reward_modeling__1__1725760619"
        ),
        "task.path": "HuggingFaceH4/no_robots",
        "algo.beta": 0.03,
        "task.max_response_tokens": 1024,
        "run.updates": 390,
        "run.groups_per_update": 256,
        "run.group_size": 2,
        "reward.missing_eos": -10.0,
        "engine.name": "deepspeed",
        "engine.stage": 3,
        "optim.lr": 8e-7,
        "optim.max_grad_norm": 1.0,
        "judge.model": "gpt-4o",
        "eval.split": "test",
        "eval.prompts": 500,
        "eval.snapshots": 1,
    },
}
# Published configs sft_pythia*.yml and rm_pythia*.yml, and the model cards; then N+ (details 4, 9,
# 10, 11 and 15, and its code).
STAGES: dict[str, dict[str, dict[str, Any]]] = {
    "tldr_sft": {
        "async_rlhf": {
            "sft.lr": 1e-5,
            "sft.schedule": "cosine",
            "sft.warmup_share": 0,
            "sft.epochs": 1,
            "sft.batch": 128,
            "sft.loss_on": "all",
            "sft.eps": 1e-8,
            "sft.weight_decay": 0,
            "sft.max_grad_norm": 1,
            "sft.max_tokens": 580,
        },
        "nplus": {
            "sft.lr": 3e-6,
            "sft.schedule": "cosine",
            "sft.warmup_share": 0,
            "sft.epochs": 1,
            "sft.batch": 128,
            "sft.loss_on": "all",
            "sft.eps": 1e-5,
            "sft.weight_decay": 0.01,
            "sft.max_grad_norm": 0,
            "sft.max_response_tokens": 53,
            "sft.max_tokens": 562,
        },
    },
    "tldr_rm": {
        "async_rlhf": {
            "reward_model.lr": 1e-5,
            "reward_model.schedule": "cosine",
            "reward_model.warmup_share": 0,
            "reward_model.epochs": 1,
            "reward_model.batch": 64,
            "reward_model.eps": 1e-8,
            "reward_model.weight_decay": 0,
            "reward_model.max_grad_norm": 1,
            "reward_model.max_tokens": 640,
            "reward_model.head_std": 0.02,
            "reward_model.normalize": False,
        },
        "nplus": {
            "reward_model.lr": 3e-6,
            "reward_model.schedule": "cosine",
            "reward_model.warmup_share": 0,
            "reward_model.epochs": 1,
            "reward_model.batch": 64,
            "reward_model.eps": 1e-5,
            "reward_model.weight_decay": 0.01,
            "reward_model.max_grad_norm": 0,
            "reward_model.max_response_tokens": 169,
            "reward_model.max_tokens": 638,
            "reward_model.head_std": 0,
            "reward_model.normalize": True,
        },
    },
}
# Card: SFT starts from the base model; N+ detail 2; the sets of pairs in the published configs.
STARTS = {
    "tldr_sft": {
        "model.path": "EleutherAI/pythia-410m-deduped",
        # PretrainedModel takes the last part of the path.
        "model.name": "",
        "task.max_prompt_tokens": 512,
    },
    "tldr_rm": {
        "proxy.path": "mnoukhov/pythia410m-sft-tldr",
        "task.max_prompt_tokens": 512,
        "labels.path": (
            "mnoukhov/summarize_from_feedback_oai_preprocessing_1706381144_relabel_pythia6.9b"
        ),
        "labels.held_out_split": "validation",
    },
}
# The settings of PPO and proximal RLOO in the code (TRL's defaults) and the paper's table.
OTHER_ALGORITHMS = {
    "ppo": {
        "algo.kl_coef": 0.05,
        "algo.clip": 0.2,
        "algo.value_clip": 0.2,
        "algo.value_coef": 0.1,
        "algo.gamma": 1.0,
        "algo.lam": 0.95,
        "algo.whiten_advantages": True,
        "algo.whiten_rewards": False,
    },
    "proximal_rloo": {"algo.kl_coef": 0.05, "algo.clip": 0.2},
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_number_of_an_experiment_is_the_papers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    config = composed(f"experiment={name}")
    check(typed(config), here=False)
    assert {key: chosen(config, key) for key in EXPERIMENTS[name]} == EXPERIMENTS[name]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_number_of_a_file_escapes_its_table(name: str) -> None:
    assert set(numbers("experiment", name)) <= set(EXPERIMENTS[name])


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("recipe", ["async_rlhf", "nplus"])
def test_each_number_of_a_stage_is_its_recipes(name: str, recipe: str) -> None:
    expected = STAGES[name][recipe] | STARTS[name]
    config = composed(f"experiment={name}", f"stages={recipe}")
    check(typed(config), here=False)
    assert {key: chosen(config, key) for key in expected} == expected
    node = "sft." if name == "tldr_sft" else "reward_model."
    of_recipe = {key for key in numbers("stages", recipe) if key.startswith(node)}
    assert of_recipe | set(numbers("experiment", name)) <= set(expected)


def test_the_recipe_of_a_stage_is_the_papers_unless_another_is_named() -> None:
    for name, recipes in STAGES.items():
        config = composed(f"experiment={name}")
        assert {key: chosen(config, key) for key in recipes["async_rlhf"]} == recipes["async_rlhf"]


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("algo", OTHER_ALGORITHMS)
def test_other_algorithms_take_the_place_of_online_dpo(
    name: str, algo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    config = composed(f"experiment={name}", f"algo={algo}")
    check(typed(config), here=False)
    expected = OTHER_ALGORITHMS[algo]
    assert {key: chosen(config, key) for key in expected} == expected


def test_the_episodes_are_the_papers() -> None:
    """131,072 prompts of TL;DR, 129,024 of GSM8K, and 100,000 chats but for a part of a batch."""
    prompts = {
        name: table["run.updates"] * table["run.groups_per_update"]
        for name, table in EXPERIMENTS.items()
    }
    assert prompts["tldr_2.8b"] == 131_072
    assert prompts["gsm8k_rho1b"] == 129_024
    assert 100_000 - 256 < prompts["no_robots_8b"] <= 100_000


# As docs/experiments.md names them: what differs between the paper's table and its code.
SWITCHES = {
    "task.max_response_tokens=128": ("task.max_response_tokens", 128),
    "optim.schedule_per=round": ("optim.schedule_per", "round"),
    "run.groups_per_update=504": ("run.groups_per_update", 504),
    "optim.max_grad_norm=1": ("optim.max_grad_norm", 1.0),
    "judge.needs_eos=true": ("judge.needs_eos", True),
    "eval.temperature=0.7": ("eval.temperature", 0.7),
    "mode=sync": ("mode.name", "sync"),
    "run.group_size=4": ("run.group_size", 4),
    "run.groups_per_update=256": ("run.groups_per_update", 256),
    "run.passes=2": ("run.passes", 2),
    "eval.max_new_tokens=0": ("eval.max_new_tokens", 0),
    "algo.beta=0.05": ("algo.beta", 0.05),
}


@pytest.mark.parametrize("override", SWITCHES)
def test_each_difference_is_one_override(override: str) -> None:
    key, value = SWITCHES[override]
    assert chosen(composed("experiment=tldr_410m", override), key) == value


def chosen(config: Any, key: str) -> Any:
    return OmegaConf.select(config, key)


def numbers(group: str, name: str) -> list[str]:
    """Keys of the values in a file, and in the files of its group that it builds on."""
    content = yaml.safe_load(option_files(group)[name].read_text(encoding="utf-8"))
    bases = [base for base in content.pop("defaults", []) if isinstance(base, str)]
    own = [f"{node}.{key}" for node, values in content.items() for key in values]
    return own + [key for base in bases for key in numbers(group, base)]
