"""Rules of fixed pairs: where they stand for samples, and what is unknown of them."""

from __future__ import annotations

import math

from rlhf_lab.algos.corrections.common import RATIOS
from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.derived import pairs_file
from rlhf_lab.rewards.options import parts
from rlhf_lab.types.errors import UserError, refuse_first_of

PLAIN = "none"


def check_pairs(config: Config) -> None:
    """Fixed pairs are two to a prompt, and no policy draws them."""
    if config.generator.draws_samples:
        return
    if config.run.group_size != 2:
        raise UserError(
            f"run.group_size={config.run.group_size} with generator=pairs: every prompt has one "
            "chosen and one rejected answer; pass run.group_size=2"
        )
    if config.algo.needs.greedy:
        raise UserError(
            f"algo={config.algo.name} with generator=pairs: its baseline is a greedy sample of the "
            "policy, which fixed pairs do not have; pass generator=hf or another algorithm"
        )
    if config.run.buffer_rounds:
        raise UserError(
            f"run.buffer_rounds={config.run.buffer_rounds} with generator=pairs: no sample is "
            "newer than another there, and the file is read again as it is; pass generator=hf"
        )


def check_offline(config: Config) -> None:
    """Fixed pairs among the samples: their prompts have two answers each, known by texts alone."""
    run = config.run
    if not run.offline_share:
        if run.offline_pairs:
            raise UserError(
                f"run.offline_pairs={run.offline_pairs} with run.offline_share=0: none of them "
                "would be read; pass run.offline_share=0.25 or leave the file out"
            )
        return
    key = f"run.offline_share={run.offline_share}"
    fixed = math.ceil(run.groups_generated * run.offline_share)
    reading = [part.name for part in parts(config.reward) if part.reads_example]
    refusals = (
        (
            not config.generator.draws_samples,
            "generator=pairs: all samples are fixed already; pass generator=hf",
        ),
        (
            run.group_size != 2,
            f"run.group_size={run.group_size}: every fixed prompt has one chosen and one rejected "
            "answer; pass run.group_size=2",
        ),
        (
            config.algo.needs.greedy,
            f"algo={config.algo.name}: its baseline is a greedy sample of the policy, which fixed "
            "pairs do not have; pass another algorithm",
        ),
        (
            bool(config.mode.segment_tokens),
            f"mode.segment_tokens={config.mode.segment_tokens}: fixed answers are not continued; "
            "pass mode.segment_tokens=0",
        ),
        (
            bool(reading),
            f"reward={reading[:1]}: it scores by the task's own rows, which the pairs are not; "
            "pass reward=reward_model or run.offline_share=0",
        ),
        (
            # All groups of a round could be fixed, or those that are left after a selection.
            fixed >= run.groups_per_round,
            f"{run.groups_per_round} groups in a round: up to {fixed} of them would be fixed, and "
            "none drawn; lower the share, or raise run.groups_per_update",
        ),
    )
    refuse_first_of(refusals, f"{key} with")


def unknown_writers(config: Config) -> str:
    """A warning where ratios are taken to the writers of a file, whom nobody knows; else ''."""
    path, key = pairs_file(config)
    correction = config.correction.name
    if not path or (config.algo.objective not in RATIOS and correction == PLAIN):
        return ""
    of = f"algo={config.algo.name}"
    if config.algo.objective not in RATIOS:
        of = f"correction={correction} with {of}"
    return (
        f"{of} on {key}={path}: its ratios need the log-probs of the policy that wrote "
        "the answers; the reference's are taken for them, which is right for answers of the "
        "reference model alone"
    )
