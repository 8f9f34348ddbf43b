"""Rules of prompts that are chosen by their pass rates (run.prompts)."""

from __future__ import annotations

from rlhf_lab.experiment.config import Config
from rlhf_lab.rewards.options import parts
from rlhf_lab.rollout.mode import WhenStale
from rlhf_lab.types.errors import refuse_first_of
from rlhf_lab.types.prompt_options import PromptChoice


def check_prompts(config: Config) -> None:
    """A selection by pass rates must have pass rates, in time to change something."""
    run, mode = config.run, config.mode
    if not run.remembers_prompts:
        return
    learned = [part.name for part in parts(config.reward) if part.is_learned]
    is_pool = run.prompts is PromptChoice.pool
    refusals = (
        (
            not config.generator.draws_samples,
            "generator=pairs: fixed answers have no pass rate; pass generator=hf",
        ),
        (
            bool(run.offline_share),
            f"run.offline_share={run.offline_share}: fixed answers have no pass rate; pass "
            "run.offline_share=0",
        ),
        (
            bool(learned),
            f"reward={learned[:1]}: scores of a reward model are no pass rates; pass "
            "reward=task_rule, or another reward from 0 to 1",
        ),
        (
            mode.when_stale is WhenStale.drop,
            "mode.when_stale=drop: rounds are generated before it is certain which results precede "
            "them; pass mode.when_stale=wait",
        ),
        (
            mode.recycles_groups,
            f"mode.over_provision={mode.over_provision:g}: a round then trains on groups that were "
            "drawn for another; pass mode.over_provision=1",
        ),
        (
            is_pool and run.rest_rounds <= mode.max_staleness,
            f"run.rest_rounds={run.rest_rounds} and mode.max_staleness={mode.max_staleness}: a "
            "result counts after that many rounds, when no prompt would be left out any more; pass "
            f"run.rest_rounds={mode.max_staleness + 1} or more",
        ),
        (
            not is_pool and not run.groups_repeated,
            f"run.repeat_share={run.repeat_share:g}: that is less than one of the "
            f"{run.groups_generated} groups of a round; raise it, or run.groups_per_update",
        ),
    )
    refuse_first_of(refusals, f"run.prompts={run.prompts.value} with")
