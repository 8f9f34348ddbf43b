"""Time each part of our round by itself: python -m benchmarks.speed.round_parts SPEC.

Prints one line of JSON, part -> medians. vLLM is measured by speed.vllm_side, in its own
environment.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
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
from rlhf_lab.types.data import Weights
from rlhf_lab.types.randomness import stable_hash, uniforms
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Prompt

TRIALS = 5
GENERATE = "generation, transformers.generate"


def chunk_of(spec: Spec, tokenizer: Any) -> Chunk:
    """The first prompts of the spec, as a policy reads them."""
    prompts = [
        Prompt(
            n, tuple(tokenizer(text, add_special_tokens=False)["input_ids"]), Example("", "", "")
        )
        for n, text in enumerate(spec.queries()[: spec.groups])
    ]
    return Chunk(0, 0, tuple(prompts), spec.group_size)


class Bench:
    """A model, the first prompts of the spec, and a round that it has written for them."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        origin = PretrainedModel("bench", str(spec.model_folder), spec.dtype)
        self.model, self.tokenizer = load_policy(origin, None, spec.seed)
        self.model.to(spec.device)
        self.weights = Weights(0, dict(self.model.named_parameters()))
        self.weight_bytes = sum(tensor.nbytes for tensor in self.weights.state.values())
        self.chunk = chunk_of(spec, self.tokenizer)
        sampling = HFSampling(
            temperature=spec.temperature, chunk_groups=spec.groups, threads=spec.threads
        )
        key = functools.partial(uniforms, stable_hash(spec.seed, "bench"))
        self.generator = HFGenerator(self.model, self.tokenizer, sampling, spec.max_new_tokens, key)
        self.groups = self.generator.generate(self.weights, self.chunk)

    def part(self, name: str, action: Callable[[], object], **amounts: float) -> dict[str, Any]:
        """Median seconds of the trials, and what was done in them, by unit."""
        seconds = median(seconds_of(action, TRIALS, self.spec.device))
        return {"name": name, "seconds": seconds, "amounts": amounts}

    def generation(self) -> list[dict[str, Any]]:
        """By transformers.generate, as TRL calls it, and by ours."""
        spec, counts = self.spec, list[int]()
        sizes = {"temperature": spec.temperature, "max_new_tokens": spec.max_new_tokens}

        def write() -> None:
            counts.append(generate_chunk(self.model, self.tokenizer, self.chunk, **sizes))

        theirs = self.part(GENERATE, write)
        theirs["amounts"]["tokens"] = median(counts[1:])
        tokens = sum(len(sample.tokens) for group in self.groups for sample in group.samples)
        own = functools.partial(self.generator.generate, self.weights, self.chunk)
        return [theirs, self.part("generation, generator=hf", own, tokens=tokens)]

    def reading(self) -> dict[str, Any]:
        batch = collate(self.groups, self.tokenizer.pad_token_id)

        def read() -> None:
            for part in micro_batches(batch, self.spec.micro_rows):
                response_output(self.model, to_device(part, self.model.device), 1.0)

        tokens = int(batch.prompt_mask_BS.sum() + batch.mask_BT.sum())
        return self.part("log-probs, forward", read, rows=len(batch), tokens=tokens)

    def scoring(self) -> dict[str, Any]:
        # Made on the CPU, where the head's weights are drawn.
        model = reward_model_from(self.model.to("cpu"), self.spec.seed).to(self.spec.device)
        rows = [[*g.prompt.tokens, *s.tokens] for g in self.groups for s in g.samples]
        score = functools.partial(scores_of, model, rows, self.spec.micro_rows)
        found = self.part("reward model, scoring", score, rows=len(rows))
        self.model.to(self.spec.device)
        return found

    def syncing(self) -> dict[str, Any]:
        shared = SharedWeights(self.weights.state, 2)

        def sync() -> None:
            shared.write(self.weights)
            shared.read(0)

        return self.part("weight sync, write and read", sync, bytes=self.weight_bytes)

    def checkpoint(self) -> dict[str, Any]:
        state = self.weights.state
        moments = {f"{k}/{m}": torch.zeros_like(t) for k, t in state.items() for m in "mv"}
        snapshot = Snapshot(1, {1: Weights(1, state)}, moments, {}, [], {})
        with tempfile.TemporaryDirectory() as folder:
            kept = Checkpoints(Path(folder, "checkpoints"), CheckpointOptions(keep=1))
            save = functools.partial(kept.save, snapshot)
            return self.part("checkpoint, write", save, bytes=3 * self.weight_bytes)


def parts_of(spec: Spec) -> dict[str, Any]:
    """All parts, the model's size and the device's limits, as data."""
    keep_freed_memory()
    torch.set_num_threads(spec.threads)
    bench = Bench(spec)
    with torch.inference_mode():
        found = [*bench.generation(), bench.reading(), bench.scoring()]
    with torch.no_grad():
        found += [bench.syncing(), bench.checkpoint()]
    return {
        "parts": found,
        "rows": spec.rows,
        "parameters": num_parameters(bench.model),
        "weight_bytes": bench.weight_bytes,
        "limits": asdict(measure_limits(spec.device, bench.model.dtype)),
    }


if __name__ == "__main__":
    sys.exit(answer(parts_of))
