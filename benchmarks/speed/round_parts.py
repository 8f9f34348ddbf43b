"""Time each part of our round by itself: python -m benchmarks.speed.round_parts SPEC.

Prints one line of JSON, part -> medians. vLLM is measured by speed.vllm_side, in its own
environment.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.speed.clock import seconds_of
from benchmarks.speed.device_limits import measure_limits
from benchmarks.speed.spec import Spec, answer
from benchmarks.speed.transformers_loop import generate_chunk
from rlhf_lab.models.batching import collate, to_device
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.forward import response_output
from rlhf_lab.models.microbatches import micro_batches
from rlhf_lab.models.pretrained import PretrainedModel
from rlhf_lab.models.reward_model import reward_model_from
from rlhf_lab.models.weights import num_parameters
from rlhf_lab.rewards.model import scores_of
from rlhf_lab.rollout.generators.hf import HFGenerator
from rlhf_lab.rollout.generators.options import HFSampling
from rlhf_lab.rollout.shared import SharedWeights
from rlhf_lab.runs.memory import keep_freed_memory
from rlhf_lab.training.checkpoint import Checkpoints
from rlhf_lab.training.checkpoint_files import Snapshot
from rlhf_lab.training.checkpoint_options import CheckpointOptions
from rlhf_lab.types.data import Batch, Weights
from rlhf_lab.types.randomness import stable_hash, uniforms
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Group, Prompt

TRIALS = 5


@dataclass(frozen=True)
class Part:
    """seconds: median of the trials. amounts: what was done in them, by unit."""

    name: str
    seconds: float
    amounts: dict[str, float]

    def per_second(self, unit: str) -> float:
        return self.amounts[unit] / self.seconds


class Bench:
    """A model, the first prompts of the spec, and one round that it has written for them."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.model, self.tokenizer = load_policy(
            PretrainedModel("bench", spec.model, spec.dtype), None, spec.seed
        )
        self.model.to(spec.device)
        self.weights = Weights(0, dict(self.model.named_parameters()))
        self.chunk = Chunk(0, 0, self.prompts(), spec.group_size)
        sampling = HFSampling(
            temperature=spec.temperature, chunk_groups=spec.groups, threads=spec.threads
        )
        key = functools.partial(uniforms, stable_hash(spec.seed, "bench"))
        self.generator = HFGenerator(self.model, self.tokenizer, sampling, spec.max_new_tokens, key)
        self.groups: Sequence[Group] = self.generator.generate(self.weights, self.chunk)
        self.batch: Batch = collate(self.groups, self.tokenizer.pad_token_id)

    def prompts(self) -> tuple[Prompt, ...]:
        """As a policy reads them."""
        texts = self.spec.queries()[: self.spec.groups]
        read = (self.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts)
        return tuple(
            Prompt(number, tuple(tokens), Example(str(number), text, ""))
            for number, (text, tokens) in enumerate(zip(texts, read, strict=True))
        )

    def clocked(self, name: str, action: Callable[[], object], **amounts: float) -> Part:
        return Part(name, median(seconds_of(action, TRIALS, self.spec.device)), amounts)

    def generation(self) -> Part:
        def write() -> None:
            self.groups = self.generator.generate(self.weights, self.chunk)

        tokens = sum(len(sample.tokens) for group in self.groups for sample in group.samples)
        return self.clocked("generation, generator=hf", write, tokens=tokens)

    def transformers(self) -> Part:
        """transformers.generate, as TRL calls it."""
        spec, counts = self.spec, list[int]()
        pad = self.tokenizer.pad_token_id

        def write() -> None:
            sizes = {"temperature": spec.temperature, "max_new_tokens": spec.max_new_tokens}
            counts.append(generate_chunk(self.model, self.tokenizer, self.chunk, pad, **sizes))

        part = self.clocked("generation, transformers.generate", write)
        return Part(part.name, part.seconds, {"tokens": median(counts[1:])})

    def reading(self) -> Part:
        def read() -> None:
            with torch.inference_mode():
                for part in micro_batches(self.batch, self.spec.micro_rows):
                    response_output(self.model, to_device(part, self.model.device), 1.0)

        tokens = int(self.batch.prompt_mask_BS.sum() + self.batch.mask_BT.sum())
        return self.clocked("log-probs, forward", read, rows=len(self.batch), tokens=tokens)

    def scoring(self) -> Part:
        # Made on the CPU, where the head's weights are drawn.
        model = reward_model_from(self.model.to("cpu"), self.spec.seed).to(self.spec.device)
        rows = [[*g.prompt.tokens, *s.tokens] for g in self.groups for s in g.samples]

        def score() -> None:
            with torch.inference_mode():
                scores_of(model, rows, self.spec.micro_rows)

        found = self.clocked("reward model, scoring", score, rows=len(rows))
        self.model.to(self.spec.device)
        return found

    def syncing(self) -> Part:
        shared = SharedWeights(self.weights.state, 2)

        def sync() -> None:
            shared.write(self.weights)
            shared.read(0)

        return self.clocked("weight sync, write and read", sync, bytes=size_of(self.weights))

    def checkpoint(self) -> Part:
        state = self.weights.state
        moments = {f"{k}/{m}": torch.zeros_like(t) for k, t in state.items() for m in "mv"}
        snapshot = Snapshot(1, {1: Weights(1, state)}, moments, {}, [], {})
        with tempfile.TemporaryDirectory() as folder:
            kept = Checkpoints(Path(folder, "checkpoints"), CheckpointOptions(keep=1))
            size = 3 * size_of(self.weights)
            return self.clocked("checkpoint, write", lambda: kept.save(snapshot), bytes=size)


def size_of(weights: Weights) -> int:
    """Bytes of a version."""
    return sum(tensor.nbytes for tensor in weights.state.values())


def parts_of(spec: Spec) -> dict[str, Any]:
    """All parts, the model's size and the device's limits, as data."""
    keep_freed_memory()
    torch.set_num_threads(spec.threads)
    bench = Bench(spec)
    with torch.no_grad():
        found = [
            bench.transformers(),
            bench.generation(),
            bench.reading(),
            bench.scoring(),
            bench.syncing(),
            bench.checkpoint(),
        ]
    return {
        "parts": [asdict(part) for part in found],
        "rows": spec.rows,
        "parameters": num_parameters(bench.model),
        "weight_bytes": size_of(bench.weights),
        "limits": asdict(measure_limits(spec.device, bench.model.dtype)),
    }


if __name__ == "__main__":
    sys.exit(answer(parts_of))
