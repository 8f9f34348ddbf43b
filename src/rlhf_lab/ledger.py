"""What a run has cost so far. Every x-axis of every figure comes from here.

Seconds are split by phase and lane. The trainer's lane: `take` (getting a round's groups),
`train`, `sync`, `track`, `save`. The generators' lane: `generate` and `score`, reported by whoever
did them. With generators in the background, `wait` is the trainer's `take`, and `generator_wait`
what the generators did not work; without, the trainer generates by itself and neither waits.
`other` is the trainer's wall-clock that went neither into training, generating, scoring nor
waiting.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter

from rlhf_lab.types import Clock, Rollout

PHASES = ("generate", "score", "take", "train", "sync", "track", "save")


class Ledger:
    """Sums of seconds, counts and FLOPs of the rounds; evaluation comes after them.

    num_devices: cores or accelerators that the run holds, for device-seconds.
    num_background: generators that run beside the trainer.
    policy_parameters, reward_parameters: model sizes, for FLOPs.
    FLOPs are 2 per parameter and token forward and 6 for training (forward and backward), the
    usual estimate (arXiv:2001.08361, section 2.1); attention over the context is left out.
    """

    def __init__(
        self,
        num_devices: int,
        num_background: int,
        policy_parameters: int,
        reward_parameters: int = 0,
        clock: Clock = perf_counter,
    ) -> None:
        self._clock = clock
        self._num_devices = num_devices
        self._num_background = num_background
        self._policy_parameters = policy_parameters
        self._reward_parameters = reward_parameters
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._counts: Counter[str] = Counter()
        self._started = clock()

    @contextmanager
    def span(self, phase: str) -> Iterator[None]:
        """Add the seconds spent inside to a phase."""
        start = self._clock()
        try:
            yield
        finally:
            self._seconds[phase] += self._clock() - start

    def add_seconds(self, seconds: Mapping[str, float]) -> None:
        """Add seconds that another lane measured."""
        for phase, amount in seconds.items():
            self._seconds[phase] += amount

    def count(self, **amounts: int) -> None:
        """Add to counts such as completions, updates or trained_tokens."""
        self._counts.update(amounts)

    def count_rollout(self, rollout: Rollout) -> None:
        """Charge a rollout: prompts, completions, tokens and its worker's seconds."""
        self.add_seconds(rollout.seconds)
        self._counts.update(rollout.tokens)
        self.count(
            prompts=len(rollout.groups),
            completions=sum(len(group.samples) for group in rollout.groups),
        )

    @property
    def wall(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._started

    def flops(self) -> int:
        """Estimated floating-point operations of generation, scoring, reference and training."""
        counts = self._counts
        read = counts["prefill_tokens"] + counts["generated_tokens"] + counts["reference_tokens"]
        policy = 2 * read + 6 * counts["trained_tokens"]
        return policy * self._policy_parameters + 2 * counts["scored_tokens"] * (
            self._reward_parameters
        )

    def totals(self, seconds_in_caller: float) -> dict[str, float | int]:
        """Everything so far. Keys under `seconds/` are measured, all others are exact.

        seconds_in_caller: generation and scoring that the trainer did by itself inside `take`.
        """
        wall = self.wall
        seconds: dict[str, float | int] = {
            f"seconds/{phase}": self._seconds[phase] for phase in PHASES
        }
        spent = self._seconds
        idle = self._num_background * wall - spent["generate"] - spent["score"]
        wait = spent["take"] if self._num_background else 0.0
        seconds["seconds/wait"] = wait
        seconds["seconds/generator_wait"] = max(0.0, idle) if self._num_background else 0.0
        seconds["seconds/other"] = wall - spent["train"] - wait - seconds_in_caller
        seconds["seconds/wall"] = wall
        seconds["seconds/device"] = wall * self._num_devices
        counts = {f"total/{name}": amount for name, amount in sorted(self._counts.items())}
        return seconds | counts | {"total/flops": self.flops()}
