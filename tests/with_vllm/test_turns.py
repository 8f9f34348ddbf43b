"""Episodes by vLLM itself: a request for each turn, whose context is the tokens that were drawn."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from rlhf_lab.rollout.generators.episode_options import EpisodeOptions
from rlhf_lab.rollout.generators.episodes import EpisodeGenerator
from rlhf_lab.rollout.generators.options import Lengths
from rlhf_lab.rollout.generators.vllm.generator import VLLMTurns
from rlhf_lab.rollout.generators.vllm.make import vllm_generator
from rlhf_lab.rollout.generators.vllm.options import Prove, VLLMSampling
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Example, Sample
from tests.support.environments import Play
from tests.with_vllm.models import chunk, policy, tokenizer, version

pytestmark = pytest.mark.vllm

TEMPERATURE = 0.7
LENGTHS = Lengths(prompt=40, response=40, observed=24)
PROMPTS = [(5, 9, 30), (7, 8), (40, 41, 42, 43, 44), (11,), (60, 61), (12, 13)]


class Words:
    """Answers with the last words of the action, and ends on its third."""

    def reset(self, example: Example, seed: int) -> str:
        self.number = 0
        return "w20 w21"

    def step(self, action: str, finished: bool) -> Turn:
        self.number += 1
        return Turn(" ".join(action.split()[-3:]), float(len(action)), self.number == 3)


TASK = Play(Words, max_turn_tokens=20, max_observation_tokens=6)


def model() -> Any:
    """Likely to end its actions soon, so that episodes have several turns."""
    found = policy("llama", is_tied=True)
    with torch.no_grad():
        found.lm_head.weight[0] += 0.5 * found.lm_head.weight.std()
    return found


@pytest.fixture(scope="module")
def player(llama_url: str) -> Iterator[EpisodeGenerator]:
    options = VLLMSampling(urls=[llama_url], temperature=TEMPERATURE, prove=Prove.first)
    writer = VLLMTurns(vllm_generator(options, tokenizer(), model, LENGTHS, seed=17))
    seed = functools.partial(stable_hash, 3)
    made = EpisodeGenerator(writer, tokenizer(), TASK, seed, EpisodeOptions())
    yield made
    made.close()


def logps_of(sample: Sample, prompt: tuple[int, ...], policy: Any) -> list[float]:
    """Those of the policy's tokens, by transformers, in the whole text of the episode."""
    whole = [*prompt, *sample.all_tokens]
    with torch.inference_mode():
        logits = policy(input_ids=torch.tensor([whole])).logits[0].float() / TEMPERATURE
    place, found = len(prompt), []
    for is_observed, tokens in sample.pieces():
        for token in tokens:
            if not is_observed:
                found.append(float(logits[place - 1].log_softmax(-1)[token]))
            place += 1
    return found


def test_log_probs_are_those_of_the_whole_text(player: EpisodeGenerator) -> None:
    whole = chunk(PROMPTS, 4)
    groups = player.generate(version(model(), 0), whole)
    turns = [len(s.episode.turns) for group in groups for s in group.samples if s.episode]
    assert len(turns) == 24 and max(turns) > 1
    for group in groups:
        for sample in group.samples:
            expected = logps_of(sample, group.prompt.tokens, model())
            assert sample.logps == pytest.approx(expected, abs=2e-3)


def test_observations_stand_between_turns_of_the_version_that_was_asked(
    player: EpisodeGenerator,
) -> None:
    whole = chunk(PROMPTS[:2], 2)
    for group in player.generate(version(model(), 1, 0.01), whole):
        for sample in group.samples:
            assert sample.episode is not None and sample.version == 1
            assert all(len(tokens) <= 6 for _, tokens in sample.episode.observed)
            assert sample.episode.observed[0] == (0, (20, 21))
