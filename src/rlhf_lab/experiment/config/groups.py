"""The groups of the config: the class of each option, and the files of conf/.

A class is named by its module, so that listing the options imports none of them. Adding an
algorithm is its file, one line here, and one golden test.
"""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from typing import Any

ENGINES, GENERATORS = "training.engines.options", "rollout.generators"
# Options with a class's defaults in groups whose options are not called like their classes.
DEFAULTS: dict[str, dict[str, str]] = {
    "model": {},
    "run": {},
    "mode": {"sync": "mode"},
    "cluster": {"node_7_1": "cluster"},
    "optim": {"paper": "adamw"},
    "eval": {"quick": "eval"},
    "tracker": {"jsonl": "tracker"},
    "checkpoint": {"minutes": "checkpoint"},
}


def below(room: str, **paths: str) -> dict[str, str]:
    """Options by name, with their modules and classes."""
    return {name: f"{room}.{path}" for name, path in paths.items()}


def by_module(room: str, *paths: str) -> dict[str, str]:
    """Options that are named like the modules of their classes."""
    return {path.partition(".")[0]: f"{room}.{path}" for path in paths}


# By group: the class of each option, under the name that `schema/NAME` of conf/ has for it.
CLASSES: dict[str, dict[str, str]] = {
    "algo": below(
        "algos",
        ppo="ppo.PPO",
        ma_ppo="ma_ppo.MacroPPO",
        sao="sao.SAO",
        reinforce="reinforce.REINFORCE",
        reinforce_plus_plus="reinforce.ReinforcePlusPlus",
        remax="reinforce.ReMax",
        rloo="rloo.RLOO",
        proximal_rloo="rloo.ProximalRLOO",
        asymre="reinforce.AsymRE",
        vcpo="vcpo.VCPO",
        copg="reward_regression.CoPG",
        tba="reward_regression.TBA",
        grpo="grpo.GRPO",
        dr_grpo="grpo.DrGRPO",
        dapo="dapo.DAPO",
        gspo="gspo.GSPO",
        cispo="cispo.CISPO",
        lite_ppo="grpo.LitePPO",
        mdpo="mdpo.MDPO",
        kimi="reward_regression.Kimi",
        online_dpo="pairs.OnlineDPO",
        online_ipo="pairs.OnlineIPO",
        online_slic="pairs.OnlineSLiC",
        best_of_n="pairs.BestOfN",
        crpg="cgpo.CRPG",
        crraft="cgpo.CRRAFT",
        codpo="cgpo.CODPO",
        a_lol="a_lol.ALoL",
        dpo="pairs.DPO",
        distill="distill.Distill",
    ),
    "correction": below(
        "algos.corrections",
        none="proximal.NoCorrection",
        recompute="proximal.Recompute",
        truncated_is="truncated.TruncatedIS",
        sequence_is="truncated.SequenceIS",
        icepop="masks.IcePop",
        geometric_mask="masks.GeometricMask",
        decoupled="proximal.Decoupled",
        opsm="masks.OPSM",
        ess_scaled="truncated.ESSScaled",
        m2po="masks.M2PO",
        split="proximal.Split",
        dppo="masks.DPPO",
        a3po="proximal.A3PO",
        kpop="masks.KPop",
        estr="masks.ESTR",
    ),
    "task": by_module(
        "tasks",
        "tldr_nano.TldrNano",
        "arithmetic.Arithmetic",
        "ask_nano.AskNano",
        "gsm8k.Gsm8k",
        "gsm8k_tool.Gsm8kTool",
        "gymnasium.Gymnasium",
        "ifeval.IFEval",
        "instructions.Instructions",
        "mixture.Mixture",
        "no_robots.NoRobots",
        "openenv.OpenEnv",
        "reasoning_gym.ReasoningGym",
        "tldr.Tldr",
        "textarena.TextArena",
        "tool_arithmetic.ToolArithmetic",
        "twenty_questions.TwentyQuestions",
        "verifiers.Verifiers",
    )
    | {"prompts": "tasks.own_prompts.OwnPrompts"},
    "reward": {
        "reward_model": "rewards.model_options.ModelReward",
        "ensemble": "rewards.model_options.EnsembleReward",
        "task_rule": "rewards.data_rewards.RuleReward",
        "function": "rewards.function.FunctionReward",
        "steps": "rewards.steps_options.StepsReward",
        "combined": "rewards.combined.CombinedReward",
        "per_task": "rewards.combined.PerTaskReward",
        "endpoint": "rewards.judge.options.EndpointReward",
        "environment": "rewards.data_rewards.EnvironmentReward",
        "none": "rewards.options.NoJudge",
    },
    "model": {
        "scratch": "models.options.ScratchModel",
        "pretrained": "models.options.PretrainedModel",
    },
    "run": {"run": "types.run_options.RunOptions"},
    "mode": {"mode": "rollout.mode.Mode"},
    "cluster": {"cluster": "rollout.cluster.options.ClusterOptions"},
    "generator": {
        "hf": f"{GENERATORS}.options.HFSampling",
        "pairs": f"{GENERATORS}.pairs.PairsSampling",
        "vllm": f"{GENERATORS}.vllm.options.VLLMSampling",
    },
    "engine": {
        "single": f"{ENGINES}.SingleEngineOptions",
        "fsdp": f"{ENGINES}.FSDPOptions",
        "deepspeed": f"{ENGINES}.DeepSpeedOptions",
    },
    "optim": {"adamw": "training.optim.Optim"},
    "eval": {"eval": "evaluation.options.EvalOptions"},
    "tracker": {"tracker": "runs.trackers.options.TrackerOptions"},
    "checkpoint": {"checkpoint": "training.checkpoint_options.CheckpointOptions"},
}


def conf_folder() -> Path:
    """The folder conf/: at the top level of a checkout, in experiment/ of an installed package."""
    return (Path(__file__).parents[1] / "conf").resolve()


def option_files(group: str) -> dict[str, Path]:
    """The files of a group's options."""
    return {path.stem: path for path in sorted((conf_folder() / group).glob("*.yaml"))}


@functools.cache
def class_of(path: str) -> Any:
    """The class at a dotted path within rlhf_lab."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f"rlhf_lab.{module}"), name)
