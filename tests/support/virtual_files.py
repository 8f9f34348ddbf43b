"""Virtual clusters with given lengths, and the files that runs on them would have written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlhf_lab.rollout.cluster.options import ClusterOptions
from rlhf_lab.rollout.cluster.simulate import Simulation, Work, simulate, virtual_mode
from rlhf_lab.runs.jsonl import write_rows

# A token a second, nothing else takes time, and a round trains for ten seconds.
PLAIN = ClusterOptions(
    sequences=1,
    step_seconds=1.0,
    step_seconds_per_sequence=0.0,
    prefill_tokens_per_second=1e12,
    round_seconds=10.0,
    train_tokens_per_second=1e12,
    sync_seconds=0.0,
    load_seconds=0.0,
    row_scale=1.0,
    length_scale=1.0,
    prompt_scale=1.0,
)
# The same with a second to hand a version over.
CLUSTER = replace(PLAIN, sync_seconds=1.0)


def work(lengths: Sequence[tuple[int, ...]], per_round: int = 1, prompt: int = 1) -> Work:
    """Chunks of these response lengths, so many in a round."""
    return Work(
        lambda number: lengths[number],
        lambda _: prompt,
        10**6,
        per_round,
        len(lengths) // per_round,
    )


def simulated(
    lengths: Sequence[int], options: ClusterOptions = CLUSTER, staleness: int = 1, chunks: int = 1
) -> Simulation:
    """A run of chunks of one response each, so many in a round."""
    return simulate(options, virtual_mode(staleness), work([(one,) for one in lengths], chunks))


def write_files(found: Simulation, folder: Path) -> None:
    """metrics.jsonl and schedule.jsonl as a run with this course would have written them."""
    rows = [{"step": number, **values} for number, values in enumerate(found.rounds)]
    write_rows(folder / "metrics.jsonl", rows)
    write_rows(folder / "schedule.jsonl", found.rows)


def write_virtual_files(folder: Path, is_colocated: bool = False) -> None:
    """Those of four rounds of four chunks, whose ages differ."""
    lengths = [4, 9, 3, 30, 5, 6, 4, 25, 3, 7, 8, 2, 4, 30, 6, 5]
    cluster = replace(CLUSTER, generators=3, is_colocated=is_colocated)
    write_files(simulated(lengths, cluster, staleness=2, chunks=4), folder)
