"""Rules about tasks without reference answers and evaluations without a judge: what needs one is
refused with what it can be replaced by."""

from __future__ import annotations

from rlhf_lab.evaluation.options import Validate
from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.derived import has_judge, has_references, trains_on_labels, trains_proxy
from rlhf_lab.rewards.options import named_parts
from rlhf_lab.types.errors import UserError


def named_reference(config: Config) -> str:
    """How to have reference answers: tasks of own rows name a column of them."""
    return str(config.task.other_references)


def check_references(config: Config) -> None:
    """Without references no proxy can be centred on them, and nothing be compared with them."""
    if has_references(config):
        return
    for key in ("reward", "judge"):
        for place, part in named_parts(key, getattr(config, key)):
            if part.reads_reference:
                other = f"{place}.style=rating" if part.reads_reference.startswith("style") else ""
                raise UserError(
                    f"{place}.{part.reads_reference} with task={config.task.name}: it compares "
                    "with a reference answer, and the task has none: pass "
                    f"{other or f'other options of {place}'}, or {named_reference(config)}"
                )
    if trains_proxy(config):
        scorers = "reward=function reward.path=MODULE.FUNCTION, reward.path=<a reward model>"
        if config.task.is_episodic:
            scorers = "reward=environment"
        raise UserError(
            f"reward={config.reward.name} with task={config.task.name}: a proxy is centred on the "
            f"scores of reference answers, and the task has none: pass {scorers}, or "
            f"{named_reference(config)}"
        )


def check_judge(config: Config) -> None:
    """`none` is allowed only as judge, and only if neither labels nor win-rates are needed."""
    for key in ("reward", "judge"):
        for place, part in named_parts(key, getattr(config, key)):
            if not part.scores and place != "judge":
                raise UserError(
                    f"{place}=none: a reward must score; choose another option of group reward"
                )
    if has_judge(config):
        return
    if trains_on_labels(config):
        raise UserError(
            f"algo={config.algo.name} trains on pairs, and judge=none can order none: pass "
            "generator.path=<file of pairs: prompt, chosen, rejected>, reward@judge=function "
            "judge.path=MODULE.FUNCTION, or an algorithm that samples, such as algo=online_dpo"
        )
    if trains_proxy(config) and not config.labels.path:
        raise UserError(
            f"reward={config.reward.name} trains a proxy on pairs, and judge=none can order none: "
            "pass labels.path=<pairs>, reward.path=<a reward model>, or reward@judge=function "
            "judge.path=MODULE.FUNCTION"
        )
    if config.eval.validate is Validate.judge:
        raise UserError(
            "eval.validate=judge with judge=none: nobody judges; pass eval.validate=proxy, or "
            "reward@judge=<option>"
        )


def require_judge(config: Config) -> None:
    """Refuse pairs that a judge must put in order if there is none."""
    if not has_judge(config):
        raise UserError(
            "judge=none: a judge puts the pairs in order; pass reward@judge=function "
            "judge.path=MODULE.FUNCTION, or another reward@judge; `rlhf-lab reward-model` takes "
            "pairs that are in order from labels.path"
        )


def check_sft(config: Config) -> None:
    """A model that is to be fine-tuned first needs something to learn."""
    for key in ("model", "proxy"):
        model = getattr(config, key)
        if model.is_pretrained and model.begins_by_stage:
            require_references(config, f"{key}.sft=true")


def require_references(config: Config, what: str) -> None:
    """Refuse what is trained on reference answers if there are none."""
    if not has_references(config):
        raise UserError(
            f"{what} needs reference answers, and task={config.task.name} has none: pass "
            f"{named_reference(config)}"
        )


def why_no_win_rate(config: Config) -> str:
    """Why an evaluation has no win-rate; '' if it has one."""
    if not has_judge(config):
        return "nobody judges (judge=none)"
    if not has_references(config):
        return f"the task has no reference answers (pass {named_reference(config)})"
    return ""
