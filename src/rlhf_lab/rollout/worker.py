"""One generator with its reward: turns (weights, chunk) into a scored rollout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from time import perf_counter

from rlhf_lab.rollout.feeds import SegmentRecorder, Segments, is_following
from rlhf_lab.rollout.generators.pairs import PairsGenerator
from rlhf_lab.tasks.pairs import is_pair
from rlhf_lab.types.data import Clock
from rlhf_lab.types.heartbeat import nothing, watched
from rlhf_lab.types.protocols import Generator, WeightFeed
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.rollouts import Chunk, Rollout, Span
from rlhf_lab.types.samples import Finish, Group, Sample


class RolloutWorker:
    """A pure function of weights and chunk, but for the times it reports.

    pulse is called at every step, by which an observer distinguishes work from a hang. calling: the
    generator or reward that was called last, in messages.
    """

    def __init__(
        self,
        generator: Generator,
        reward: Reward,
        is_model: bool,
        clock: Clock = perf_counter,
        offline: PairsGenerator | None = None,
    ) -> None:
        """offline: answers the prompts of a file of pairs, where chunks have some."""
        self._generator = generator
        self._offline = offline
        self._reward = reward
        self._reward_reads_tokens = is_model
        self._clock = clock
        self.calling = ""

    def run(self, feed: WeightFeed, chunk: Chunk, pulse: Callable[[], None] = nothing) -> Rollout:
        """Generate and score. Whatever the generator or the reward raises stops the run."""
        recorder = SegmentRecorder(feed, pulse)
        start = self._clock()
        self.calling = type(self._generator).__name__
        with watched(pulse):
            unscored = self._generated(recorder, chunk)
        generated = self._clock()
        pulse()
        tokens = written_tokens(chunk, unscored)
        drawn = [group for group in unscored if not is_offline(group)]
        if is_following(feed) and drawn and not has_episodes(drawn):
            segments = written_segments(drawn)
        else:
            segments = reached_segments(recorder.segments, drawn or unscored)
        rollout = Rollout(
            chunk,
            unscored,
            segments,
            tokens,
            (Span("generate", start, generated),),
            report=self._generator.report(),
        )
        # A reward is of whole samples: the segment that finishes them scores them.
        ended = tuple(group for group in rollout.groups if group.is_finished)
        is_due = bool(ended) if chunk.scores_groups else rollout.is_finished
        return self._scored(rollout, ended, pulse) if is_due else rollout

    def prefetch(self, feed: WeightFeed, chunks: Iterable[Chunk]) -> None:
        """Take note of chunks that `run` will be called with later, in order, with this feed."""
        for chunk in map(self._online, chunks):
            if chunk.prompts:
                self._generator.prefetch(feed, chunk)

    def _online(self, chunk: Chunk) -> Chunk:
        """The chunk without prompts of a file of pairs."""
        if self._offline is None:
            return chunk
        online = (prompt for prompt in chunk.prompts if not is_pair(prompt.example))
        return replace(chunk, prompts=tuple(online))

    def _generated(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        """The groups of the chunk in its order: drawn by the generator, or of fixed pairs."""
        if self._offline is None:
            return self._generator.generate(feed, chunk)
        online = self._online(chunk)
        # Without a prompt to draw, reading the weights records the version of the chunk.
        feed.at(0)
        drawn = iter(self._generator.generate(feed, online) if online.prompts else ())
        return tuple(
            Group(prompt, self._offline.pair(prompt.example))
            if is_pair(prompt.example)
            else next(drawn)
            for prompt in chunk.prompts
        )

    def opening(self) -> tuple[str, ...]:
        """The generator's notes before its first chunk."""
        return self._generator.report().notes

    def _scored(
        self, rollout: Rollout, ended: Sequence[Group], pulse: Callable[[], None]
    ) -> Rollout:
        """The rollout with rewards of the groups that have ended."""
        start = rollout.spans[-1].end
        self.calling = self._reward.called
        with watched(pulse):
            with_rewards = iter(self._reward.scored(ended))
        scored = self._clock()
        read = sum(
            len(group.prompt.tokens) + len(sample.tokens)
            for group in ended
            for sample in group.samples
        )
        counts = {
            "scored_tokens": read if self._reward_reads_tokens else 0,
            **self._reward.drain(),
        }
        return replace(
            rollout,
            groups=tuple(next(with_rewards) if g.is_finished else g for g in rollout.groups),
            tokens={**rollout.tokens, **counts},
            spans=(*rollout.spans, Span("score", start, scored)),
        )

    def close(self) -> None:
        """End what the generator started."""
        self._generator.close()


def is_offline(group: Group) -> bool:
    """Whether its samples are fixed ones."""
    return any(sample.is_offline for sample in group.samples)


def reached_segments(segments: Segments, groups: Sequence[Group]) -> Segments:
    """The segments that wrote a token of any sample: a generator may read weights for a token or
    two before it sees that all samples have ended. Episodes that wait have tokens after the steps
    of the longest one, by which the version is known."""
    samples = [sample for group in groups for sample in group.samples]
    longest = max((sample.steps for sample in samples), default=0)
    newest = max((sample.newest_version for sample in samples), default=0)
    return segments[:1] + tuple(s for s in segments[1:] if s[0] < longest or s[1] <= newest)


def written_segments(groups: Sequence[Group]) -> Segments:
    """(step, version) pairs, the oldest version first: the earliest token that each one wrote.
    Samples need not be written in step with each other."""
    first: dict[int, int] = {}
    for sample in (sample for group in groups for sample in group.samples):
        versions = sample.versions or (sample.version,)
        for step, version in enumerate(versions):
            if step < first.get(version, step + 1):
                first[version] = step
    return tuple((first[version], version) for version in sorted(first))


def has_episodes(groups: Sequence[Group]) -> bool:
    """Whether samples have turns, at whose observations weights are read too."""
    return any(sample.episode for group in groups for sample in group.samples)


def written_tokens(chunk: Chunk, groups: Sequence[Group]) -> dict[str, int]:
    """What generation read and wrote. A continued sample is read anew with all that it has."""
    samples = [sample for group in groups for sample in group.samples]
    if has_episodes(groups):
        return episode_tokens(chunk, groups)
    begun = sum(len(sample.tokens) for sample in chunk.begun)
    offline = sum(len(sample.tokens) for sample in samples if sample.is_offline)
    if chunk.begun:
        prompts = [group.prompt for group in groups for _ in group.samples]
        read = sum(
            len(prompt.tokens) + len(sample.tokens)
            for prompt, sample in zip(prompts, chunk.begun, strict=True)
            if sample.finish is Finish.unfinished
        )
    else:
        # Offline samples were there before: no prompt is read for them.
        read = sum(len(group.prompt.tokens) for group in groups if not is_offline(group))
    return {
        "prefill_tokens": read,
        "generated_tokens": sum(len(sample.tokens) for sample in samples) - begun,
        "offline_tokens": offline,
    }


def episode_tokens(chunk: Chunk, groups: Sequence[Group]) -> dict[str, int]:
    """The same of episodes, which count what is read for them, and what their environments
    wrote."""
    samples = [sample for group in groups for sample in group.samples]
    new, before = summed(samples), summed(chunk.begun)
    if not chunk.begun:
        new["prefill_tokens"] += sum(len(group.prompt.tokens) for group in groups)
    return {name: new[name] - before[name] for name in new} | {"offline_tokens": 0}


def summed(samples: Sequence[Sample]) -> Counter[str]:
    """What episodes have read, written and observed so far, but for the prompts of groups."""
    counts = Counter(dict.fromkeys(("prefill_tokens", "generated_tokens", "observed_tokens"), 0))
    for sample in samples:
        counts["generated_tokens"] += len(sample.tokens)
        if sample.episode:
            counts["prefill_tokens"] += sample.episode.read_tokens
            counts["observed_tokens"] += sample.episode.observed_tokens
    return counts
