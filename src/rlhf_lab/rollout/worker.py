"""One generator with its reward: turns (weights, chunk) into a scored rollout."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from rlhf_lab.pulse import nothing, watched
from rlhf_lab.rollout.feeds import Recorder
from rlhf_lab.types import (
    Chunk,
    Clock,
    Closing,
    Generator,
    Metered,
    Reward,
    Rollout,
    SelfMeasuring,
    Span,
    Told,
    WeightFeed,
    scored_groups,
)


class RolloutWorker:
    """A pure function of weights and chunk, but for the times it reports.

    pulse is called at every step, so that somebody else can tell work from a hang.
    """

    def __init__(
        self, generator: Generator, reward: Reward, is_model: bool, clock: Clock = perf_counter
    ) -> None:
        self._generator = generator
        self._reward = reward
        self._reward_reads_tokens = is_model
        self._clock = clock

    def run(self, feed: WeightFeed, chunk: Chunk, pulse: Callable[[], None] = nothing) -> Rollout:
        """Generate and score. Whatever the generator or the reward raises stops the run."""
        recorder = Recorder(feed, pulse)
        start = self._clock()
        with watched(pulse):
            unscored = self._generator.generate(recorder, chunk)
        generated = self._clock()
        pulse()
        with watched(pulse):
            groups = tuple(scored_groups(self._reward, unscored))
        scored = self._clock()
        prompt_tokens = sum(len(group.prompt.tokens) for group in groups)
        samples = [sample for group in groups for sample in group.samples]
        response_tokens = sum(len(sample.tokens) for sample in samples)
        offline_tokens = sum(len(sample.tokens) for sample in samples if sample.is_offline)
        read_tokens = prompt_tokens * chunk.group_size + response_tokens
        return Rollout(
            chunk=chunk,
            groups=groups,
            segments=recorder.segments,
            tokens={
                # Offline samples were there before: no prompt is read for them.
                "prefill_tokens": 0 if offline_tokens else prompt_tokens,
                "generated_tokens": response_tokens,
                "offline_tokens": offline_tokens,
                "scored_tokens": read_tokens if self._reward_reads_tokens else 0,
                **(self._reward.drain() if isinstance(self._reward, Metered) else {}),
            },
            spans=(Span("generate", start, generated), Span("score", generated, scored)),
            told=self._generator.told() if isinstance(self._generator, SelfMeasuring) else Told(),
        )

    def close(self) -> None:
        """End what the generator started."""
        if isinstance(self._generator, Closing):
            self._generator.close()
