"""What the memory options of an engine save.

python -m benchmarks.speed.memory_cost [--groups 16] [--tokens 64]

Peak memory of one update over a vocabulary of 50k tokens, with the logits made at once and in
chunks, each in a process of its own; and the share of padding in micro-batches, in the order of the
prompts and in buckets of like length, at lengths as uneven as those of real answers.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from rlhf_lab.algos.corrections.none import NoCorrection
from rlhf_lab.algos.online_dpo import OnlineDPO
from rlhf_lab.models.batching import collate, token_weights
from rlhf_lab.models.microbatches import split
from rlhf_lab.runs.memory import keep_freed_memory, peak_bytes
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.training.engines.distributed import Processes
from rlhf_lab.training.engines.engine import TrainingEngine
from rlhf_lab.training.engines.options import SingleEngineOptions
from rlhf_lab.training.engines.policy_with_values import PolicyWithValues
from rlhf_lab.training.engines.single import SingleBackend
from rlhf_lab.training.optim import Optim
from rlhf_lab.types.data import Batch
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample

VOCABULARY = 50_304
CPU = torch.device("cpu")


def long_rows(num_groups: int, tokens: int) -> Batch:
    """Two full-length answers to every prompt, the second one better, with credit and weight."""
    ids = torch.arange(2 * num_groups * tokens).view(num_groups, 2, tokens) % VOCABULARY
    groups = [
        Group(
            Prompt(n, (1,) * 8, Example("", "", "")),
            tuple(Sample(tuple(one), (-1.0,) * tokens, 0, Finish.eos, "") for one in pair),
            (0.0, 1.0),
        )
        for n, pair in enumerate(ids.tolist())
    ]
    batch = collate(groups, pad_id=0)
    sign_B1 = torch.tensor([-1.0, 1.0]).repeat(num_groups).unsqueeze(1)
    return replace(
        batch,
        reference_logp_BT=torch.zeros_like(batch.mask_BT),
        credit_BT=sign_B1 * batch.mask_BT,
        weight_BT=token_weights(batch, OnlineDPO().reduction),
    )


def peak_of_update(logit_tokens: int, num_groups: int, tokens: int) -> tuple[int, int]:
    """Resident bytes before an update, and the most during it."""
    keep_freed_memory()
    torch.manual_seed(0)
    config = GPTNeoXConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=512,
    )
    model = GPTNeoXForCausalLM(config).eval()
    dtypes = {name: parameter.dtype for name, parameter in model.named_parameters()}
    options = SingleEngineOptions(micro_rows=2 * num_groups, logit_tokens=logit_tokens)
    backend = SingleBackend(PolicyWithValues(model, None, 1.0), Optim(lr=1e-4), CPU)
    engine = TrainingEngine(backend, dtypes, options, Processes(), config.hidden_size)
    before = peak_bytes(CPU)["resident_bytes"]
    batch = long_rows(num_groups, tokens)
    engine.update(batch, OnlineDPO(), NoCorrection(), 1e-4)
    return before, peak_bytes(CPU)["resident_bytes"]


def uneven(num_groups: int, seed: int) -> list[Group]:
    """Groups of two answers whose lengths are log-normal: most short, some ten times as long."""
    rng = torch.Generator().manual_seed(seed)

    def length(middle: float, most: int) -> int:
        drawn = math.exp(math.log(middle) + 0.6 * float(torch.randn(1, generator=rng)))
        return min(most, max(1, round(drawn)))

    def sample() -> Sample:
        count = length(60, 512)
        return Sample((1,) * count, (-1.0,) * count, 0, Finish.eos, "")

    return [
        Group(Prompt(n, (1,) * length(120, 512), Example("", "", "")), (sample(), sample()))
        for n in range(num_groups)
    ]


def padded_share(max_rows: int, max_tokens: int, num_groups: int) -> tuple[float, int]:
    """Share of the read tokens that is padding, and the number of micro-batches."""
    batch = collate(uneven(num_groups, seed=0), pad_id=0)
    parts = list(split(batch, max_rows, max_tokens))
    real = float(batch.prompt_mask_BS.sum() + batch.mask_BT.sum())
    return 1 - real / sum(part.padded_tokens for part in parts), len(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns 0."""
    parser = argparse.ArgumentParser(description="Memory and padding of an update.")
    parser.add_argument("--groups", type=int, default=16, help="of two rows, in one pass")
    parser.add_argument("--tokens", type=int, default=64, help="of every response")
    given = parser.parse_args(arguments)
    console, spawned = Console(quiet=False), multiprocessing.get_context("spawn")
    # Peaks are of a process: each task has a new one.
    with ProcessPoolExecutor(1, spawned, max_tasks_per_child=1) as pool:
        for chunk in (0, 1024, 256, 64):
            job = pool.submit(peak_of_update, chunk, given.groups, given.tokens)
            before, peak = (number / 1e6 for number in job.result())
            console.print(
                f"logit_tokens {chunk}: {before:.0f} MB before, {peak:.0f} MB at its peak"
            )
    for rows, tokens in ((32, 0), (32, 8192), (64, 8192)):
        share, count = padded_share(rows, tokens, 256)
        name = f"micro_rows {rows}, micro_tokens {tokens}"
        console.print(f"{name}: {share:.1%} padding in {count} micro-batches")
    return 0


if __name__ == "__main__":
    sys.exit(main())
