"""What the memory options of an engine save.

python -m benchmarks.speed.memory_cost [--groups 16] [--tokens 64]

Peak memory of one update over a vocabulary of 50k tokens, with the logits made at once and in
chunks, each in a new process; and the share of padding in micro-batches, in the order of the
prompts and in buckets of like length, at lengths as uneven as those of real answers.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import torch

from benchmarks.speed import random_rounds
from rlhf_lab.algos.corrections.proximal import NoCorrection
from rlhf_lab.algos.pairs import OnlineDPO
from rlhf_lab.models.batching import collate
from rlhf_lab.models.microbatches import split
from rlhf_lab.runs.memory import keep_freed_memory, peak_bytes
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.training.engines.options import SingleEngineOptions
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample

VOCABULARY = 50_304
CPU = torch.device("cpu")


def peak_of_update(logit_tokens: int, num_groups: int, tokens: int) -> tuple[int, int]:
    """Resident bytes before an update of two full-length answers to every prompt, and the most
    during it and the reference's forward pass."""
    keep_freed_memory()
    config = random_rounds.sized("gpt_neox", 128, 2, 4, VOCABULARY)
    options = SingleEngineOptions(
        device="cpu", micro_rows=2 * num_groups, logit_tokens=logit_tokens
    )
    engine = random_rounds.engine_of(random_rounds.make(config, "cpu"), options)
    prompts = random_rounds.prompts(VOCABULARY, num_groups, 2, 8, 8)
    groups = random_rounds.answered(prompts, VOCABULARY, tokens, tokens)
    before = peak_bytes(CPU)["resident_bytes"]
    batch = random_rounds.update_batch(engine, OnlineDPO(), groups)
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
        for chunk in (0, 1024, 256):
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
