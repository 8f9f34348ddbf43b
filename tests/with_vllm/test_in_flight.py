"""Weights that come while vLLM draws: which version wrote a token, and what it computed it from."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from rlhf_lab.rollout.generators.options import Lengths
from rlhf_lab.rollout.generators.vllm.generator import VLLMGenerator
from rlhf_lab.rollout.generators.vllm.http import RUN_ID
from rlhf_lab.rollout.generators.vllm.make import vllm_generator
from rlhf_lab.rollout.generators.vllm.options import Prove, VLLMSampling
from rlhf_lab.types.data import Weights
from rlhf_lab.types.samples import Group, Sample
from tests.with_vllm.conftest import JOB
from tests.with_vllm.models import chunk, policy, tokenizer, version
from tests.with_vllm.test_vllm import ROOT, command

pytestmark = pytest.mark.vllm

TEMPERATURE = 0.7
LENGTHS = Lengths(prompt=40, response=80)
PROMPTS = [(5, 9, 30), (7, 8), (40, 41, 42, 43, 44), (11,), (60, 61), (12, 13)]
# Two rows at a time: a chunk takes a thousand steps, whatever the machine's speed.
ROWS = 2
SETTINGS: dict[str, Any] = {
    "temperature": TEMPERATURE,
    "prove": Prove.first,
    "max_num_seqs": ROWS,
}


@pytest.fixture(scope="module")
def generator(llama_url: str) -> Iterator[VLLMGenerator]:
    with pytest.MonkeyPatch.context() as patch:
        # A server of a job: its model and its versions have the job's name.
        patch.setenv(RUN_ID, JOB)
        options = VLLMSampling(urls=[llama_url], **SETTINGS)
        made = vllm_generator(options, tokenizer(), model, LENGTHS, seed=17)
        yield made
        made.close()


def model() -> Any:
    found = policy("llama", is_tied=True)
    # Samples that end seldom are long.
    with torch.no_grad():
        found.model.embed_tokens.weight[0] *= 0.1
    return found


@dataclass
class Successive:
    """A feed with the next version at every look."""

    versions: Sequence[Weights]
    read: list[int] = field(default_factory=list)

    def at(self, step: int) -> Weights:
        place = min(len(self.read), len(self.versions) - 1)
        self.read.append(place)
        return self.versions[place]


def samples(groups: tuple[Group, ...]) -> list[tuple[tuple[int, ...], Sample]]:
    return [(group.prompt.tokens, sample) for group in groups for sample in group.samples]


def versions_of(sample: Sample) -> tuple[int, ...]:
    return sample.versions or (sample.version,) * len(sample.tokens)


def reread(prompt: tuple[int, ...], sample: Sample, states: dict[int, Weights]) -> torch.Tensor:
    """Log-probs T by transformers, where each version goes on with the keys and values of those
    before it. What the last token before an update leads to is computed by the new version."""
    own = model()
    written = versions_of(sample)
    whole = torch.tensor([[*prompt, *sample.tokens]])
    cache, done, rows = None, 0, []
    for number in sorted(set(written)):
        own.load_state_dict(states[number].state, strict=False)
        last = max(place for place, one in enumerate(written) if one == number)
        end = len(prompt) + last
        with torch.inference_mode():
            output = own(input_ids=whole[:, done:end], past_key_values=cache, use_cache=True)
        cache, done = output.past_key_values, end
        rows.append(output.logits[0].float())
    logits_TV = torch.cat(rows)[len(prompt) - 1 :] / TEMPERATURE
    token_T1 = torch.tensor(sample.tokens).unsqueeze(1)
    return logits_TV.log_softmax(-1).gather(1, token_T1).squeeze(1)


def play_round(
    generator: VLLMGenerator,
) -> tuple[dict[int, Weights], list[tuple[tuple[int, ...], Sample]]]:
    """A round with three versions, and these: each token has the log-prob of its version."""
    first = 10 * (1 + len(generator._versions))
    states = {
        first + place: version(model(), first + place, change)
        for place, change in enumerate((0.0, 0.1, 0.05))
    }
    found = samples(generator.generate(Successive(list(states.values())), chunk(PROMPTS * 4, 2)))
    for prompt, sample in found:
        assert list(versions_of(sample)) == sorted(versions_of(sample))
        logp_T = reread(prompt, sample, states)
        assert torch.allclose(logp_T, torch.tensor(sample.logps), atol=5e-5)
    return states, found


def is_mixed(sample: Sample) -> bool:
    return len(set(versions_of(sample))) > 1


def test_each_token_has_the_version_that_wrote_it(generator: VLLMGenerator) -> None:
    # On a busy machine whole samples are written between two looks at the feed.
    for _ in range(5):
        states, found = play_round(generator)
        if any(is_mixed(sample) for _, sample in found):
            break
    first = min(states)
    writers = [set(versions_of(sample)) for _, sample in found]
    assert set.union(*writers) == set(states)
    assert any(len(own) > 1 for own in writers), "a sample that is being written goes on"
    assert writers[-1] == {first + 2}, "one that had to wait is written by the last version"
    # The other version's log-probs are others.
    prompt, mixed = next(row for row in found if is_mixed(row[1]))
    alone = reread(prompt, Sample(mixed.tokens, mixed.logps, first, mixed.finish, ""), states)
    assert not torch.allclose(alone, torch.tensor(mixed.logps), atol=1e-3)


def test_chunks_that_are_prefetched_are_drawn_together_and_have_the_same_samples(
    generator: VLLMGenerator,
) -> None:
    weights = version(model(), 5)
    chunks = [chunk(PROMPTS[:3], 2), chunk(PROMPTS[3:], 2), chunk(PROMPTS[1:4], 2)]
    alone = [generator.generate(weights, one) for one in chunks]
    for one in chunks[1:]:
        generator.prefetch(weights, one)
    together = [generator.generate(weights, chunks[0])]
    assert len(generator._open) == 2
    together += [generator.generate(weights, one) for one in chunks[1:]]
    assert not generator._open
    for before, other in zip(alone, together, strict=True):
        assert [s.tokens for _, s in samples(before)] == [s.tokens for _, s in samples(other)]
        assert all(s.version == 5 and not s.versions for _, s in samples(other))


@pytest.mark.slow
def test_a_whole_run_takes_weights_at_every_token(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    given = ["generator=vllm", "mode=free", "mode.weights=latest_per_token"]
    done = subprocess.run(
        command(folder, *given, "generator.max_num_seqs=2", "run.updates=8"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(row) for row in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        # Not zero: tokens after an update were computed from what older weights left in the cache.
        assert abs(row["gap/mismatch_k1"]) < 1e-2
        assert row["lag/rounds_max"] <= 2
