"""Turns of episodes as requests to vLLM, with transformers in its place."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from rlhf_lab.models.options import scratch
from rlhf_lab.rollout.generators.episode_options import EpisodeOptions
from rlhf_lab.rollout.generators.episodes import EpisodeGenerator
from rlhf_lab.rollout.generators.vllm.generator import VLLMGenerator, VLLMTurns
from rlhf_lab.rollout.generators.vllm.options import Prove
from rlhf_lab.rollout.generators.vllm.proof import Proof
from rlhf_lab.rollout.generators.vllm.requests import Answer, Drawing, EngineFailure
from rlhf_lab.rollout.worker import written_tokens
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.heartbeat import nothing
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Finish, Group, Sample
from tests.support.environments import EOS, TINY, Echo, Pieces, Play, chunk, tiny_model, weights
from tests.support.fake_vllm import Mirror
from tests.support.together import together

pytestmark = pytest.mark.usefixtures("costly")

ECHO = Play(Echo, max_turn_tokens=6, max_observation_tokens=40)
TEMPERATURE = 0.9
DRAWING = Drawing(TEMPERATURE, 16, (EOS,))


def playing(backend: Mirror, task: Play = ECHO, **options: Any) -> EpisodeGenerator:
    proof = Proof(copy.deepcopy(tiny_model()), TEMPERATURE, 1e-3, 1, torch.device("cpu"))
    writer = VLLMGenerator(backend, Pieces(), DRAWING, 5, proof, Prove.first)
    seed = functools.partial(stable_hash, 11)
    return EpisodeGenerator(VLLMTurns(writer), Pieces(), task, seed, EpisodeOptions(**options))


def fresh() -> Any:
    return scratch(TINY, Pieces(), seed=9)


def samples(groups: Sequence[Group]) -> list[Sample]:
    return [sample for group in groups for sample in group.samples]


def test_each_turn_reads_the_tokens_that_were_written_and_observed() -> None:
    backend = Mirror(fresh())
    groups = playing(backend).generate(weights(), chunk(4, greedy=True))
    turns = {len(sample.episode.turns) for sample in samples(groups) if sample.episode}
    assert max(turns) > 1
    for group in groups:
        for sample in group.samples:
            assert sample.episode and sample.finish in (Finish.eos, Finish.length)
            place, own = len(group.prompt.tokens), []
            whole = [*group.prompt.tokens, *sample.all_tokens]
            with torch.inference_mode():
                logits = tiny_model()(input_ids=torch.tensor([whole])).logits[0] / TEMPERATURE
            for is_observed, tokens in sample.pieces():
                for token in tokens:
                    if not is_observed:
                        own.append(float(logits[place - 1].log_softmax(-1)[token]))
                    place += 1
            assert sample.logps == pytest.approx(own, abs=2e-5)
    # Two batches prove the weights; the others are of one turn each.
    assert {len(asked) for asked in backend.asked[2:]} == {1}
    written = sum(len(sample.episode.turns) for sample in samples(groups) if sample.episode)
    assert len(backend.asked[2:]) == written


def test_an_episode_depends_on_its_prompt_and_number_alone() -> None:
    many = playing(Mirror(fresh())).generate(weights(), chunk(4))
    third = replace(chunk(4), prompts=chunk(4).prompts[2:3])
    alone = playing(Mirror(fresh())).generate(weights(), third)
    assert alone == many[2:3]
    first, second, _ = many[0].samples
    assert first.tokens != second.tokens
    at_once = playing(Mirror(fresh()), steps_at_once=4).generate(weights(), chunk(4))
    assert at_once == many


def test_turns_are_asked_for_while_the_environment_of_another_is_called() -> None:
    def generated(task: Play, **options: Any) -> Sequence[Group]:
        made = playing(Mirror(fresh()), task, steps_at_once=2, **options)
        return made.generate(weights(), chunk(2, 2))

    complaint = r"turn 1: the environment took longer than episodes\.step_seconds=1: "
    with together(6) as task, pytest.raises(UserError, match=complaint):
        generated(task, step_seconds=1.0)
    with together(6) as task:
        groups = generated(task, step_seconds=60.0, decode_ahead=1)
    assert {len(sample.episode.turns) for sample in samples(groups) if sample.episode} == {1, 2}


@pytest.mark.parametrize("steps_at_once", [1, 4])
def test_waiting_for_environments_changes_no_episode(steps_at_once: int) -> None:
    wanted = chunk(4, greedy=True)
    ahead = playing(Mirror(fresh()), decode_ahead=1, steps_at_once=steps_at_once)
    found = ahead.generate(weights(), wanted)
    assert found == playing(Mirror(fresh())).generate(weights(), wanted)


def test_what_an_environment_raises_while_others_write_is_raised() -> None:
    class Failing(Echo):
        def step(self, action: str, finished: bool) -> Turn:
            raise LookupError("nothing there")

    made = playing(Mirror(fresh()), replace(ECHO, make=Failing), decode_ahead=1)
    with pytest.raises(LookupError, match="nothing there"):
        made.generate(weights(), chunk(4))


def test_what_is_read_is_counted_as_with_other_generators() -> None:
    groups = playing(Mirror(fresh())).generate(weights(), chunk(4))
    counts = written_tokens(chunk(4), groups)
    prompts = sum(len(group.prompt.tokens) for group in groups)
    read = sum(
        len(tokens)
        for sample in samples(groups)
        if sample.episode
        for place, tokens in sample.episode.observed
        if place < len(sample.tokens)
    )
    assert counts["prefill_tokens"] == prompts + read
    assert counts["generated_tokens"] == sum(len(sample.tokens) for sample in samples(groups))


def test_an_episode_in_parts_reads_its_context_anew() -> None:
    made = playing(Mirror(fresh()))
    whole = made.generate(weights(), chunk())
    first = made.generate(weights(), replace(chunk(), stop_at=1))
    begun = tuple(samples(first))
    assert any(sample.finish is Finish.unfinished for sample in begun)
    rest = made.generate(weights(version=5), replace(chunk(), begun=begun))
    for one, other in zip(samples(rest), samples(whole), strict=True):
        assert one.tokens == other.tokens and one.logps == pytest.approx(other.logps, abs=1e-5)
        assert one.version == 4 and one.newest_version in (4, 5)


def test_a_segment_that_ends_within_an_action_is_continued_behind_its_tokens() -> None:
    """Requests of drawn samples have a seed of their own in each segment; greedy ones are those
    that one version writes."""
    whole = playing(Mirror(fresh())).generate(weights(), chunk(greedy=True))
    part = replace(chunk(greedy=True), stops_by_tokens=True)
    made = playing(Mirror(fresh()))
    for number, stop in enumerate((4, 8, 0)):
        groups = made.generate(weights(version=4 + number), replace(part, stop_at=stop))
        part = replace(part, begun=tuple(samples(groups)))
    for one, other in zip(samples(groups), samples(whole), strict=True):
        assert one.finish is not Finish.unfinished and one.episode and other.episode
        versions = one.versions or (one.version,) * len(one.tokens)
        assert versions == tuple(4 + min(n // 4, 2) for n in range(len(one.tokens)))
    for group, alike in zip(groups, whole, strict=True):
        one, other = group.samples[-1], alike.samples[-1]
        assert one.tokens == other.tokens and one.logps == pytest.approx(other.logps, abs=1e-5)
        assert one.episode and other.episode and one.episode.turns == other.episode.turns
    assert max(len(sample.tokens) for sample in samples(groups)) > 8


@dataclass
class Newest:
    """A feed whose weights become newer each time that vLLM shows that it works."""

    version: int = 4

    def at(self, step: int) -> Weights:
        return VERSIONS[min(self.version, 6)]


VERSIONS = {version: weights(1 + (version - 4) / 100, version) for version in (4, 5, 6)}


class Moving(Mirror):
    """Weights come between any two turns."""

    def __init__(self, feed: Newest) -> None:
        super().__init__(fresh())
        self.feed = feed

    def finish_some(
        self, numbers: Sequence[int], look: Callable[[], None] = nothing
    ) -> dict[int, list[Answer]]:
        self.feed.version += 1
        return super().finish_some(numbers, look)


def test_newer_weights_write_the_turns_that_begin_behind_them() -> None:
    feed = Newest()
    found = samples(playing(Moving(feed)).generate(feed, chunk(4)))
    assert {version for sample in found for version in sample.versions} >= {4, 6}
    for sample in found:
        assert list(sample.versions) == sorted(sample.versions)


def test_tokens_of_weights_that_nobody_loaded_are_refused() -> None:
    backend = Mirror(fresh())
    made = playing(backend)
    made.generate(weights(), chunk(1))
    backend.says = "77"
    with pytest.raises(EngineFailure, match="by version 77 of the weights, not by 4"):
        made.generate(weights(), chunk(1))


def test_closing_ends_the_backend() -> None:
    backend = Mirror(fresh())
    made = playing(backend)
    made.generate(weights(), Chunk(0, 0, chunk(1).prompts, 1))
    made.close()
    assert backend.is_closed
