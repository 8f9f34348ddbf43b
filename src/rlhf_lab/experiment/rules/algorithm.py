"""Rules of algorithms and corrections, and of the teacher of distillation."""

from __future__ import annotations

from rlhf_lab.algos.corrections.common import RATIOS
from rlhf_lab.algos.distill import Direction, Distill, Signal
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.rules.derived import is_verified
from rlhf_lab.rewards.options import parts
from rlhf_lab.rollout.generators.options import Ability
from rlhf_lab.types.data import Objective, ValueModel
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.run_options import ReturnScaling

WHY_NOT = {
    Objective.comparison: "its loss compares samples of a prompt or regresses on their rewards and "
    "holds for samples of any policy, so there is nothing that a ratio could correct; "
    "pass correction=none or ess_scaled",
    Objective.likelihood: "its loss takes no ratio, so it has none that could begin at another "
    "policy; pass correction=truncated_is or sequence_is",
    Objective.sequence_ratio: "its loss takes one ratio and one credit for many tokens, in which "
    "weights per token would be averaged away; pass correction=sequence_is or "
    "correction=decoupled with correction.level=response or mean",
    Objective.token_ratio: "its ratios are per token; pass correction=none",
}
# Corrections that treat credit of either sign in its own way.
SIGNED = ("opsm", "dppo")


def check_group_size(config: Config) -> None:
    """An algorithm that compares the samples of a prompt needs several of them."""
    least = config.algo.needs.group_size
    if config.run.group_size < least:
        raise UserError(
            f"run.group_size={config.run.group_size} with algo={config.algo.name}: it compares the "
            f"samples of a prompt and needs at least {least}; pass run.group_size={least}"
        )


def check_truncated(config: Config) -> None:
    """A sample can be left out alone where the loss takes each one by itself, or where it takes a
    few that are chosen among those of a group."""
    if not config.run.mask_truncated or config.algo.objective is not Objective.comparison:
        return
    if not config.algo.needs.trained_rows:
        raise UserError(
            f"run.mask_truncated=true with algo={config.algo.name}: its loss compares all samples "
            "of a group, and needs equally many of each; pass run.mask_truncated=false with "
            "shaping.missing_eos, an algorithm that chooses a pair (online_dpo with "
            "algo.pairs=best_worst), or one that credits each sample (rloo, grpo, ppo)"
        )


def check_return_scaling(config: Config) -> None:
    """Only credit that grows with the rewards can be divided by their range."""
    if config.run.return_scaling is ReturnScaling.none:
        return
    if not config.algo.needs.scales_with_reward:
        raise UserError(
            f"run.return_scaling={config.run.return_scaling} with algo={config.algo.name}: its "
            "credit is already free of the scale of rewards; pass run.return_scaling=none, an "
            "algorithm that does not standardise (rloo, dr_grpo), or for those with a value model "
            "algo.whiten_advantages=false (an algorithm of your own declares "
            "Needs(scales_with_reward=True))"
        )


def check_value_rounds(config: Config) -> None:
    """Values that are learned first must leave rounds to the policy, and an engine must be able to
    leave a network as it is."""
    rounds = config.algo.needs.value_rounds
    if not rounds:
        return
    if rounds >= config.run.num_rounds:
        raise UserError(
            f"algo.value_rounds={rounds}: the run has {config.run.num_rounds} rounds, so the "
            "policy would never learn; lower it or raise run.updates"
        )
    if config.engine.shares_work:
        raise UserError(
            f"algo.value_rounds={rounds} with engine={config.engine.name}: its processes exchange "
            "gradients of all weights, and AdamW moves a weight on after a gradient of zero; pass "
            "engine=single or algo.value_rounds=0"
        )
    if config.optim.weight_decay:
        raise UserError(
            f"algo.value_rounds={rounds} with optim.weight_decay={config.optim.weight_decay}: the "
            "policy would decay in rounds in which it must not move; pass optim.weight_decay=0"
        )


def check_gradient_cosine(config: Config) -> None:
    """The gradients of an update must be there when its step is made, and the last one's too where
    their cosine is bounded."""
    if config.optim.max_gradient_cosine < 1 and not config.optim.gradient_cosine:
        raise UserError(
            f"optim.max_gradient_cosine={config.optim.max_gradient_cosine}: the last gradient is "
            "kept only with optim.gradient_cosine=true; pass that too"
        )
    if config.optim.gradient_cosine and not config.engine.measures_cosine:
        raise UserError(
            f"optim.gradient_cosine=true with engine={config.engine.name}: its step does not show "
            "the gradients; pass engine=single or fsdp, or optim.gradient_cosine=false"
        )


def check_ratio_gradients(config: Config) -> None:
    """The gradient of a single response must be whole in one process."""
    if not config.algo.needs.ratio_gradients:
        return
    if config.engine.shares_work:
        raise UserError(
            f"algo={config.algo.name} with engine={config.engine.name}: it reads the norm of each "
            "response's gradient, which is spread over processes there; pass engine=single, or "
            "algo=rloo, whose baseline needs no gradients"
        )


def check_correction(config: Config) -> None:
    """A correction must have something to correct in the algorithm's loss."""
    objective = config.algo.objective
    if objective not in config.correction.corrects:
        raise UserError(
            f"correction={config.correction.name} with algo={config.algo.name}: "
            f"{WHY_NOT[objective]}"
        )
    is_anchored = config.correction.anchors_at_start and objective in RATIOS
    if config.correction.needs.whole_update and not is_anchored:
        raise UserError(
            f"correction={config.correction.name} with algo={config.algo.name}: all tokens of an "
            "update decide its weights (CorrectionNeeds(whole_update=True)), so that log-ratios "
            "must be known before the update: set anchors_at_start to True, and let corrects have "
            "token_ratio and sequence_ratio alone"
        )


def check_writers(config: Config) -> None:
    """A correction that asks for the writers needs samples whose writers the run knows, and has if
    they are read again."""
    of = f"correction={config.correction.name}"
    needs = config.correction.needs
    reads = needs.writer_logp or needs.entropy
    if not (reads or needs.lag):
        return
    if reads and config.run.buffer_rounds:
        raise UserError(
            f"run.buffer_rounds={config.run.buffer_rounds} with {of}: the versions that wrote "
            "repeated groups are not kept; pass run.buffer_rounds=0 and run.fresh_share=1, or "
            "correction=truncated_is"
        )
    if not config.generator.draws_samples or config.run.offline_share:
        key = "run.offline_share" if config.generator.draws_samples else "generator=pairs"
        raise UserError(
            f"{key} with {of}: no version wrote fixed answers; pass generator=hf and "
            "run.offline_share=0, or another correction"
        )


def check_rounds(config: Config) -> None:
    """Staleness, replay, pause and partial rollouts must fit the rounds and the generator."""
    mode, rounds, generator = config.mode, config.run.num_rounds, config.generator
    if mode.max_staleness >= rounds > 1:
        raise UserError(
            f"mode.max_staleness={mode.max_staleness} with {rounds} rounds: "
            "every sample would be written by version 0; lower it or raise run.updates"
        )
    if mode.is_replay and not mode.schedule:
        raise UserError(
            "mode.schedule='' with mode=recorded: name the run to repeat, as `rlhf-lab replay RUN` "
            "does"
        )
    if config.checkpoint.pause_round > rounds:
        raise UserError(
            f"checkpoint.pause_round={config.checkpoint.pause_round}: the run has {rounds} rounds; "
            f"choose 1 to {rounds - 1}, or 0 for none"
        )
    for key in ("segment_tokens", "segment_turns"):
        if value := getattr(mode, key):
            remedy = f"pass generator=hf, or mode.{key}=0"
            generator.require(Ability.segments, f"mode.{key}={value}", remedy)
    if config.algo.needs.greedy:
        generator.require(Ability.greedy, f"algo={config.algo.name}")
    if mode.num_generators > 1 and generator.address:
        raise UserError(
            f"mode.num_generators={mode.num_generators} with {generator.address}: generators would "
            "load different weights into one server; pass mode.num_generators=1 (servers share its "
            "chunks)"
        )


def check_samples(config: Config) -> None:
    """Several samples a prompt are for pass@k and maj@k, which need right and wrong."""
    if config.eval.samples > 1 and not is_verified(config):
        raise UserError(
            f"eval.samples={config.eval.samples} with task={config.task.name} and judge="
            f"{config.judge.name}: pass@k needs a judge that says right or wrong, the task_rule "
            "of a verifiable task; pass eval.samples=1"
        )


def starts_at_zero(config: Config) -> str:
    """A warning where values start at zero and lam < 1; else ''."""
    is_learned = any(part.is_learned for part in parts(config.reward))
    needs = config.algo.needs
    kind, has_bins = needs.values, needs.bins is not None
    is_zero = kind is ValueModel.shared or (kind is ValueModel.own and (has_bins or not is_learned))
    if not is_zero or needs.lam >= 1:
        return ""
    return (
        f"algo.lam={needs.lam} with values that begin at zero, as no reward model "
        "gives them: until they are learned, late tokens get more credit than early ones; "
        "algo.lam=1 avoids it"
    )


def check_teacher(config: Config) -> None:
    """A teacher must be named, fit into the engine's process, and read samples of the policy."""
    teacher = config.algo.needs.teacher
    if teacher is None:
        return
    of = f"algo={config.algo.name}"
    if not teacher:
        raise UserError(
            f"algo.teacher='' with {of}: the policy would be distilled into what it begins as; "
            "pass algo.teacher=<hub name or folder of a language model>"
        )
    if config.engine.shares_work:
        raise UserError(
            f"engine={config.engine.name} with {of}: the teacher is held by one process; pass "
            "engine=single"
        )
    if not config.generator.draws_samples or config.run.offline_share:
        key = "run.offline_share" if config.generator.draws_samples else "generator=pairs"
        raise UserError(
            f"{key} with {of}: the log-probs of fixed answers under their writer are unknown, and "
            "the teacher's would stand in for them; pass generator=hf and run.offline_share=0"
        )
    if isinstance(config.algo, Distill):
        check_direction(config.algo, config.correction.name)


def check_direction(algo: Distill, correction: str) -> None:
    """Refuse options that the direction of the KL does not read, and a correction by the sign of
    credit that the loss alone knows."""
    of = f"algo=distill algo.kl={algo.kl}"
    is_sampled = algo.kl is Direction.sampled
    if is_sampled and algo.top_k:
        raise UserError(
            f"algo.top_k={algo.top_k} with {of}: only the sampled token is read; pass "
            "algo.top_k=0, or algo.kl=forward or reverse"
        )
    if not is_sampled and algo.signal is Signal.policy:
        raise UserError(
            f"algo.signal=policy with {of}: it is the policy's log-probs that are summed in any "
            "case; leave algo.signal=behavior, or pass algo.kl=sampled"
        )
    if correction in SIGNED and (algo.signal is Signal.policy or not is_sampled):
        raise UserError(
            f"correction={correction} with {of} algo.signal={algo.signal}: it looks at the sign of "
            "credit, which is known in the loss alone; pass algo.kl=sampled algo.signal=behavior, "
            f"or correction={'icepop' if is_sampled else 'none'}"
        )
