"""What a run's version is worth on validation prompts, where the run pauses or ends."""

from __future__ import annotations

import copy
from time import perf_counter

from rlhf_lab.evaluation.evaluator import Validator
from rlhf_lab.evaluation.options import Validate
from rlhf_lab.experiment.build.evaluator import build_evaluator, build_player, build_proxy
from rlhf_lab.experiment.build.policy import PolicyLoader, Sources
from rlhf_lab.experiment.build.prompts import build_eval_prompts
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.run.distributed_generation import spread_evaluator, spread_validator
from rlhf_lab.models.adapters import merged_version
from rlhf_lab.runs.folder import VALIDATION
from rlhf_lab.runs.jsonl import read_rows, write_rows
from rlhf_lab.runs.run_directory import RunDirectory
from rlhf_lab.runs.saved_tensors import read_version, saved_versions
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.data import Metrics, Weights


def build_validator(config: Config, sources: Sources, loader: PolicyLoader) -> Validator:
    """The validator of a run: prompts and randomness are those of its evaluation."""
    model, tokenizer = loader.read(sources.policy, config.seed)
    options = config.eval
    return Validator(
        build_player(
            config,
            copy.deepcopy(model),
            tokenizer,
            "evaluation",
            options.temperature,
            options.max_new_tokens,
        ),
        build_proxy(config, sources, tokenizer),
        build_eval_prompts(config, tokenizer, options.prompts),
        options,
    )


def validate(
    config: Config,
    sources: Sources,
    loader: PolicyLoader,
    record: RunDirectory,
    console: Console,
    version: int,
) -> None:
    """Score a version with the rewards that eval.validate names, and add its row to
    validation.jsonl, unless it has one of the same kind."""
    if config.eval.validate is Validate.none:
        return
    folder, kind = record.folder, config.eval.validate.value
    path = folder / VALIDATION
    rows = read_rows(path)
    if any(row["version"] == version and row.get("validate") == kind for row in rows):
        return
    model, _ = loader.read(sources.policy, config.seed)
    weights = merged_version(model, read_version(version, saved_versions(folder)[version]))
    start = perf_counter()
    with console.phase(f"validating version {version}"):
        metrics = validation_metrics(config, sources, loader, weights)
    seconds = perf_counter() - start
    row = {"validate": kind, **metrics, "timing/seconds": seconds}
    with record.rewriting(VALIDATION):
        write_rows(path, [*rows, row])
    mean = metrics.get("proxy/mean")
    text = "the proxy could score none" if mean is None else f"proxy {mean:.4f}"
    console.print(f"validation of version {version}: {text} ({metrics['eval/prompts']} prompts)")


def validation_metrics(
    config: Config, sources: Sources, loader: PolicyLoader, weights: Weights
) -> Metrics:
    """The metrics of a version by the judge, or by the proxy alone."""
    if config.eval.validate is Validate.judge:
        evaluator = build_evaluator(config, sources, loader)
        with spread_evaluator(evaluator, config, sources, loader) as judge:
            return judge.evaluate(weights)[0]
    own = build_validator(config, sources, loader)
    with spread_validator(own, config, sources, loader) as validator:
        return validator.validate(weights)
