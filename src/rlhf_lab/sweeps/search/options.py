"""Options of a search."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError

# Metrics of an evaluation that need only the proxy; all others need the judge.
PROXY_METRICS = ("proxy/mean", "sample/length", "sample/eos_rate")


class Sampler(StrEnum):
    """How settings are drawn. tpe: Tree-structured Parzen Estimator, from earlier trials."""

    tpe = "tpe"
    random = "random"
    grid = "grid"


class Direction(StrEnum):
    """Whether larger or smaller values of the metric are better."""

    maximize = "maximize"
    minimize = "minimize"


class Source(StrEnum):
    """Where the metric is measured: on validation prompts, or in training rounds."""

    validation = "validation"
    training = "training"


@dataclass(frozen=True)
class SearchOptions(limits.OptionGroup, key="hydra.sweeper"):
    """Options of hydra/sweeper=rlhf_lab_search, under hydra.sweeper."""

    trials: int = limits.count(16, max=10**6, about="Settings that are drawn.")
    tuning_seeds: list[int] = limits.collection(
        lambda: [101, 102], about="Seeds of the runs of each setting.", **limits.SEEDS
    )
    test_seeds: list[int] = limits.collection(
        lambda: [1, 2, 3, 4, 5],
        about="Seeds of the runs of the chosen and the default setting; empty makes no test.",
        **limits.SEEDS,
    )
    metric: str = limits.option("proxy/mean", about="Metric that settings are chosen by.")
    measured_on: Source = limits.option(
        Source.validation,
        about="Where the metric is measured: on validation prompts, or in the training rounds.",
    )
    last_rounds: int = limits.count(
        1, about="Last training rounds whose mean counts, with measured_on=training."
    )
    direction: Direction = limits.option(
        Direction.maximize, about="Whether larger or smaller values of the metric are better."
    )
    allow_gold: bool = limits.option(False, about="Whether the metric may be one of the judge.")
    sampler: Sampler = limits.option(
        Sampler.tpe,
        about=(
            "Who draws settings: tpe learns from earlier trials (Tree-structured Parzen "
            "Estimator), random and grid do not."
        ),
    )
    sampler_seed: int = limits.seed(0, about="Seed of the sampler.")
    startup: int = limits.count(8, max=10**6, about="Settings drawn at random before tpe learns.")
    rungs: int = limits.count(
        3,
        max=64,
        about=(
            "Times that a run is compared: after 1/reduction^(rungs-1), ..., 1/reduction and all "
            "of its rounds."
        ),
        source="successive halving, arXiv:1502.07943",
    )
    reduction: int = limits.count(
        2, min=2, max=1024, about="1/reduction of the settings go on from one rung to the next."
    )
    bracket: int = limits.count(
        0,
        min=0,
        max=10**6,
        about=(
            "Settings drawn together and compared with each other; 0 takes as few as end with one."
        ),
    )
    max_runs: float = limits.number(
        0.0, min=0, max=1e9, about="Budget of tuning in whole runs; 0 is no limit."
    )
    tuning_overrides: list[str] = limits.collection(list, about="Overrides of tuning runs alone.")
    test_overrides: list[str] = limits.collection(
        lambda: ["eval.split=test"], about="Overrides of test runs alone."
    )
    keep: bool = limits.option(
        False, about="Whether checkpoints and weights of tuning runs stay on disk."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_bracket()
        self._check_seeds()
        self._check_metric()

    @property
    def bracket_size(self) -> int:
        return self.bracket or self.least_bracket

    @property
    def least_bracket(self) -> int:
        """The smallest bracket: one setting is left at the last rung."""
        return int(self.reduction ** (self.rungs - 1))

    @property
    def needs_judge(self) -> bool:
        return self.measured_on is Source.validation and self.metric not in PROXY_METRICS

    @property
    def needs_proxy(self) -> bool:
        """Whether the metric is the proxy's reward on validation prompts."""
        return self.measured_on is Source.validation and self.metric == "proxy/mean"

    def _check_bracket(self) -> None:
        size = self.bracket_size
        if size < self.least_bracket:
            raise bad_option(
                "bracket",
                size,
                f"with rungs={self.rungs} and reduction={self.reduction} none of so few would be "
                f"left; choose {self.least_bracket} or more",
            )
        if self.trials % size:
            below = max(1, self.trials // size) * size
            raise bad_option(
                "trials",
                self.trials,
                f"settings are compared {size} at a time (bracket); choose {below} or "
                f"{below + size}",
            )

    def _check_seeds(self) -> None:
        if not self.tuning_seeds:
            raise bad_option("tuning_seeds", self.tuning_seeds, "choose one or more")
        for key in ("tuning_seeds", "test_seeds"):
            seeds = getattr(self, key)
            if len(set(seeds)) < len(seeds):
                raise bad_option(key, seeds, "a seed is named twice; name each once")
        both = sorted(set(self.tuning_seeds) & set(self.test_seeds))
        if both:
            raise bad_option(
                "test_seeds",
                self.test_seeds,
                f"{both[0]} is among hydra.sweeper.tuning_seeds={self.tuning_seeds}: a setting "
                "would be tested on the luck it was chosen by; choose others",
            )

    def _check_metric(self) -> None:
        if self.needs_judge and not self.allow_gold:
            raise bad_option(
                "metric",
                self.metric,
                "the judge computes it, and settings that the judge chose cannot be "
                f"compared by it; choose one of {', '.join(PROXY_METRICS)}, or pass "
                "hydra.sweeper.allow_gold=true",
            )
        if self.measured_on is Source.training and self.metric.startswith("gold/"):
            raise bad_option(
                "metric",
                self.metric,
                "the judge does not score training rounds; choose reward/mean, or pass "
                "hydra.sweeper.measured_on=validation",
            )


def bad_option(key: str, value: object, remedy: str) -> UserError:
    return UserError(f"hydra.sweeper.{key}={value}: {remedy}")
