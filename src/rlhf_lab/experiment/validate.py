"""What a run's version is worth on validation prompts, where the run pauses or ends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from rlhf_lab.evaluation.evaluator import (
    EvalOptions,
    Evaluator,
    Validate,
    answered,
    drained,
    proxy_metrics,
    sample_metrics,
)
from rlhf_lab.experiment import build
from rlhf_lab.experiment.config import Config
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.runs.folder import VALIDATION
from rlhf_lab.runs.jsonl import read_rows, write_rows
from rlhf_lab.runs.saved_tensors import WEIGHTS, read_tensors
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.data import Metrics, Weights
from rlhf_lab.types.protocols import Generator, Reward
from rlhf_lab.types.samples import Prompt


@dataclass(frozen=True)
class Validator:
    """Has the proxy read what a version answers: the samples and the mean of an evaluation, without
    asking the judge."""

    generator: Generator
    proxy: Reward
    prompts: list[Prompt]
    options: EvalOptions

    def validate(self, weights: Weights) -> Metrics:
        """The proxy's mean, and length and ends of the samples."""
        options = self.options
        size = options.chunk_groups
        groups = answered(self.generator, weights, self.prompts, options.samples, size)
        firsts = [replace(group, samples=group.samples[:1]) for group in groups]
        return {
            "version": weights.version,
            **proxy_metrics(self.proxy.score(firsts)),
            **drained("proxy", self.proxy),
            **sample_metrics([group.samples[0] for group in firsts]),
            "eval/prompts": len(groups),
            "eval/split": options.split.value,
        }


def validator(config: Config, sources: build.Sources) -> Validator:
    """The validator of a run: prompts and randomness are those of its evaluation."""
    model, tokenizer = load_policy(sources.policy, None, config.seed)
    options = config.eval
    return Validator(
        build.generator(config, model, tokenizer, "evaluation", options.temperature),
        build.reward(config.reward, config, tokenizer, sources.proxies, options.threads),
        build.eval_prompts(config, tokenizer),
        options,
    )


def validate(
    config: Config, sources: build.Sources, folder: Path, console: Console, version: int
) -> None:
    """Add the version's row to validation.jsonl, unless it has one by the same readers."""
    asked = config.eval.validate
    path = folder / VALIDATION
    rows = read_rows(path)
    if any(row["version"] == version and row.get("validate") == asked.value for row in rows):
        return
    weights = Weights(version, read_tensors(folder / WEIGHTS / f"{version:06d}.safetensors"))
    start = perf_counter()
    metrics = read_version(config, sources, weights)
    seconds = perf_counter() - start
    row = {"validate": asked.value, **metrics, "timing/seconds": seconds}
    write_rows(path, [*rows, row])
    mean = metrics.get("proxy/mean")
    told = "the proxy could score none" if mean is None else f"proxy {mean:.4f}"
    console.print(f"validation of version {version}: {told} ({metrics['eval/prompts']} prompts)")


def read_version(config: Config, sources: build.Sources, weights: Weights) -> Metrics:
    """What the readers say of a version."""
    if config.eval.validate is Validate.judge:
        judge: Evaluator = build.evaluator(config, sources)
        return judge.evaluate(weights)[0]
    return validator(config, sources).validate(weights)
