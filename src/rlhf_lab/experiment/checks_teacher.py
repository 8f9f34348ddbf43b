"""Rules of a teacher, which takes the place of the reference in distillation."""

from __future__ import annotations

from rlhf_lab.algos.distill import Direction, Distill, Signal
from rlhf_lab.experiment.config import Config
from rlhf_lab.types.errors import UserError

# Corrections that treat credit of either sign in its own way.
SIGNED = ("opsm", "dppo")


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
