"""Real samples of the chunks in a virtual cluster, by the versions that its clock gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rlhf_lab.rollout.cluster.job import Drawn, Waits
from rlhf_lab.rollout.cluster.options import ClusterOptions, WeightUpdate
from rlhf_lab.rollout.feeds import RecordedWeights, Segments
from rlhf_lab.rollout.partial_rollout import join_segments
from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.rollouts import Chunk, Rollout
from rlhf_lab.types.samples import Sample

Run = Callable[[WeightFeed, Chunk], Rollout]


def written_by(
    run: Run,
    chunk: Chunk,
    segments: Segments,
    versions: Mapping[int, Weights],
    update: WeightUpdate,
) -> Rollout:
    """The rollout of a chunk to its end, where these versions write from these tokens on. Nothing
    is known yet of versions that come while it is written: then it is written once more."""
    if len(segments) == 1:
        return run(versions[segments[0][1]], chunk)
    if update is WeightUpdate.in_flight:
        return run(RecordedWeights(segments, versions), chunk)
    return interrupted(run, chunk, segments, versions)


def interrupted(
    run: Run, chunk: Chunk, segments: Segments, versions: Mapping[int, Weights]
) -> Rollout:
    """A rollout whose prompt and tokens each version reads anew before it goes on."""
    stops = [step for step, _ in segments[1:]] + [0]
    parts: list[Rollout] = []
    for (_, version), stop in zip(segments, stops, strict=True):
        begun = parts[-1].samples if parts else ()
        parts.append(run(versions[version], replace(chunk, stop_at=stop, begun=begun)))
        if parts[-1].is_finished:
            break
    return join_segments(chunk, parts)


def in_tokens(segments: Segments, options: ClusterOptions) -> Segments:
    """Segments that begin at tokens, of some that begin at decoding steps. Of versions that begin
    at the same token, only the last one writes."""
    starts = {options.written(step): version for step, version in segments}
    return tuple(sorted(starts.items()))


def drawn(rollout: Rollout, options: ClusterOptions, limit: int) -> Drawn:
    """What a rollout is in the cluster: virtual tokens of each sample, observations included, and
    its waits for tools. limit: tokens of a sample at most."""
    waits = [tool_waits(sample, options, limit) for sample in rollout.samples]
    return Drawn(virtual_lengths(rollout, options, limit), waits if any(waits) else ())


def virtual_lengths(rollout: Rollout, options: ClusterOptions, limit: int) -> Sequence[int]:
    """Virtual tokens of each sample."""
    return [options.length(sample.steps, limit) for sample in rollout.samples]


def tool_waits(sample: Sample, options: ClusterOptions, limit: int) -> Waits:
    """Where a sample waits for tools. Waits that begin at the same decoding step are one."""
    if not sample.episode or not sample.episode.waits:
        return []
    seconds: dict[int, float] = {}
    for place, wait in zip(sample.turn_ends, sample.episode.waits, strict=False):
        step = options.length(place, limit)
        seconds[step] = seconds.get(step, 0.0) + wait
    return sorted(seconds.items())


def prompt_tokens(chunk: Chunk, options: ClusterOptions) -> float:
    """Virtual tokens of a chunk's prompts, each read once for its group."""
    return sum(options.prompt(len(prompt.tokens)) for prompt in chunk.prompts)
