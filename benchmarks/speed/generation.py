"""Tokens per second of the generator's decode loops.

python -m benchmarks.speed.generation [--models nano_m] [--threads 1 2] [--repeats 5]

transformers.generate, the generator over transformers' forward, the lean loop, and the lean loop
over fixed buffers (static, made for CUDA graphs) take turns on the same prompts: sampled at
temperature 0.7, at most 24 new tokens. A policy after SFT ends most of its answers early; one with
random weights never does, so both are measured. Tokens are those up to the end token. With several
samples a prompt, as in training, the generator reads each prompt once.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.speed import program, random_rounds
from benchmarks.speed.clock import Spread
from benchmarks.speed.decode_loops import generate_chunk, writer
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.devices import torch_threads
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.rollout.generators.options import Decode, HFSampling
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Prompt, Split
from rlhf_lab_analysis.markdown import Table

TEMPERATURE, NEW_TOKENS, ROWS, SFT_STEPS = 0.7, 24, 64, 60
NANO = ("nano_s", "nano_m")
# Families at one size, of random weights.
FAMILIES = ("llama", "qwen3")
BASE = "transformers.generate"
LOOPS = {
    BASE: None,
    "generator, transformers": Decode.transformers,
    "generator, lean": Decode.lean,
    "generator, static": Decode.static,
}
COLUMNS = (
    *("model", "policy", "threads", "samples a prompt", "loop"),
    *("tokens/s [range]", "against generate", "tokens a sample"),
)


def policies(name: str, out: Path) -> dict[str, tuple[Any, Any]]:
    """Models with their tokenizers: after a short SFT, and with random weights."""
    if name in FAMILIES:
        tokenizer = TldrNano().tokenizer()
        shape = {"intermediate_size": 768, "num_key_value_heads": 4, "head_dim": 32}
        ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
        config = random_rounds.sized(name, 256, 4, 8, len(tokenizer), **shape, **ends)
        return {"random": (random_rounds.make(config, "cpu"), tokenizer)}
    folder = program.sft_model(name, SFT_STEPS, out / ".cache" / name)
    model, tokenizer = load_policy(PretrainedModel(name, str(folder)), None, 0)
    fresh = random_rounds.make(model.config, "cpu")
    return {"after SFT": (model, tokenizer), "random": (fresh, tokenizer)}


def chunk_of(tokenizer: Any, group_size: int, rows: int) -> Chunk:
    """Prompts of tldr_nano."""
    examples = TldrNano().examples(Split.train)
    made = [
        Prompt(place, tuple(tokenizer(examples[place].prompt)["input_ids"]), examples[place])
        for place in range(rows // group_size)
    ]
    return Chunk(0, 0, tuple(made), group_size)


def loop(
    decode: Decode | None, model: Any, tokenizer: Any, chunk: Chunk, threads: int
) -> Callable[[], int]:
    """Generates the chunk once; returns the tokens that count."""
    if decode is None:
        sizes = {"temperature": TEMPERATURE, "max_new_tokens": NEW_TOKENS}
        return functools.partial(generate_chunk, model, tokenizer, chunk, **sizes)
    sampling = HFSampling(temperature=TEMPERATURE, threads=threads, decode=decode)
    write = writer(model, tokenizer, chunk, sampling, NEW_TOKENS)
    return lambda: sum(len(sample.tokens) for group in write() for sample in group.samples)


def timed(generate: Callable[[], int], _: int) -> tuple[float, int]:
    """Tokens per second, and tokens."""
    start = perf_counter()
    tokens = generate()
    return tokens / (perf_counter() - start), tokens


def rows_of(
    model: Any, tokenizer: Any, group_size: int, threads: int, repeats: int, rows: int = ROWS
) -> list[list[str]]:
    """A row for each loop, in turns after one repeat to warm up: name, tokens per second, those
    over transformers.generate, and tokens of a sample."""
    chunk = chunk_of(tokenizer, group_size, rows)
    loops = {
        name: functools.partial(timed, loop(decode, model, tokenizer, chunk, threads))
        for name, decode in LOOPS.items()
    }
    with torch_threads(threads):
        found = program.in_turns(loops, repeats + 1)
    rates = {name: Spread.of([one for one, _ in own[1:]]) for name, own in found.items()}
    base = rates[BASE].middle
    return [
        [name, rate.text(".0f"), f"{rate.middle / base:.2f}", f"{found[name][-1][1] / rows:.1f}"]
        for name, rate in rates.items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: every model, kind of policy, number of threads, and one, two and four samples a
    prompt."""
    parser = argparse.ArgumentParser(description="Tokens per second of the decode loops.")
    parser.add_argument("--out", type=Path, default=Path("runs/bench-generation"))
    parser.add_argument("--models", nargs="+", choices=[*NANO, *FAMILIES], default=NANO)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args(arguments)
    rows = [
        [name, policy, str(threads), str(size), *row]
        for name in given.models
        for policy, (model, tokenizer) in policies(name, given.out).items()
        for threads in given.threads
        for size in (1, 2, 4)
        for row in rows_of(model, tokenizer, size, threads, given.repeats)
    ]
    table = Table(f"generation, batch {ROWS}", COLUMNS, rows)
    program.report(table, given.out / "bench_generation.json", Console(quiet=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
