"""Rules of a teacher, which takes the place of the reference in distillation."""

from __future__ import annotations

from rlhf_lab.algos.distill import Signal
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
    name = config.correction.name
    if name in SIGNED and getattr(config.algo, "signal", "") == Signal.policy:
        raise UserError(
            f"correction={name} with {of} algo.signal=policy: it looks at the sign of credit, "
            "which is known in the loss alone; pass algo.signal=behavior or correction=icepop"
        )
