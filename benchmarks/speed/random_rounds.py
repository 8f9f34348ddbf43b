"""Models with random weights by their configs, rounds of random tokens, and engines of both:
nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rlhf_lab.experiment.build.engine import build_engine
from rlhf_lab.models.batching import collate, minibatches, rewards_of
from rlhf_lab.models.heads import value_model_like
from rlhf_lab.training.engines.engine import TrainingEngine
from rlhf_lab.training.engines.options import EngineOptions
from rlhf_lab.training.optim import Optim
from rlhf_lab.types.data import Batch, ValueModel
from rlhf_lab.types.protocols import Algorithm
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample

TEMPERATURE = 0.7
LOGP = -6.0
# An end token that no policy writes: every answer has the full length.
NEVER = -1


class Tokens:
    """What a generator needs of a tokenizer, where no text is looked at."""

    eos_token_id = NEVER
    pad_token_id = 0

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        return ""


def sized(kind: str, hidden: int, layers: int, heads: int, vocab: int, **others: Any) -> Any:
    """The config of a model. kind: its model_type. others: more keys of the config."""
    return AutoConfig.for_model(
        kind,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        vocab_size=vocab,
        **{"intermediate_size": 4 * hidden, "max_position_embeddings": 2048, **others},
    )


# Llama's and Qwen's heads share keys.
SHARED: dict[str, Any] = {"num_key_value_heads": 2, "tie_word_embeddings": True}
# The shapes of EleutherAI's Pythia and of Llama 3.2, whose vocabularies decide much of the time.
SIZED: dict[str, Callable[[], Any]] = {
    "pythia_410m": lambda: sized("gpt_neox", 1024, 24, 16, 50304),
    "pythia_1b": lambda: sized("gpt_neox", 2048, 16, 8, 50304),
    "llama3.2_1b": lambda: sized(
        "llama", 2048, 16, 32, 128256, **{**SHARED, "num_key_value_heads": 8}
    ),
}
TINY: dict[str, Callable[[], Any]] = {
    "GPTNeoX": lambda: sized("gpt_neox", 64, 2, 4, 512),
    "Llama": lambda: sized("llama", 64, 2, 4, 512, **SHARED),
    "Qwen2": lambda: sized("qwen2", 64, 2, 4, 512, **SHARED),
}


def make(config: Any, device: str, dtype: torch.dtype = torch.float32) -> Any:
    """A model with random weights, drawn on the device that it is for."""
    with torch.device(device), torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def prompts(vocab: int, groups: int, group_size: int, shortest: int, longest: int) -> Chunk:
    """Prompts of random tokens, with lengths from the shortest to the longest in even steps."""
    rng = torch.Generator().manual_seed(2)
    made = []
    for number in range(groups):
        length = shortest + (longest - shortest) * number // max(1, groups - 1)
        tokens = torch.randint(1, vocab, (length,), generator=rng).tolist()
        made.append(Prompt(number, tuple(tokens), Example(str(number), "", "")))
    return Chunk(0, 0, tuple(made), group_size)


def answered(chunk: Chunk, vocab: int, shortest: int, longest: int) -> list[Group]:
    """Random answers to a chunk's prompts, of lengths between two bounds, with random rewards."""
    rng = torch.Generator().manual_seed(3)

    def number(least: int, most: int) -> int:
        return int(torch.randint(least, most + 1, (1,), generator=rng))

    def sample() -> Sample:
        tokens = torch.randint(1, vocab, (number(shortest, longest),), generator=rng).tolist()
        return Sample(tuple(tokens), (LOGP,) * len(tokens), 0, Finish.eos, "")

    return [
        Group(
            prompt,
            tuple(sample() for _ in range(chunk.group_size)),
            tuple(float(number(-9, 9)) + place for place in range(chunk.group_size)),
        )
        for prompt in chunk.prompts
    ]


def engine_of(
    model: Any, options: EngineOptions, values: ValueModel = ValueModel.none
) -> TrainingEngine:
    """An engine that owns the model, as a run builds it."""
    network = None
    if values is not ValueModel.none:
        network = value_model_like(model, is_shared=values is ValueModel.shared)
    config: Any = SimpleNamespace(
        engine=options,
        optim=Optim(lr=1e-3),
        model=SimpleNamespace(lora_rank=0),
        generator=SimpleNamespace(temperature=TEMPERATURE),
        algo=SimpleNamespace(needs=SimpleNamespace(reference_every=0)),
        seed=1,
    )
    return build_engine(config, model, network)


def update_batch(engine: TrainingEngine, algo: Algorithm, groups: Sequence[Group]) -> Batch:
    """The rows of one update, with all that losses compare with."""
    batch = collate(groups, pad_id=0)
    reference_BT = engine.reference_logp(batch)
    batch = replace(
        batch,
        reference_logp_BT=reference_BT,
        behavior_logp_BT=reference_BT,
        proximal_logp_BT=reference_BT,
    )
    if algo.needs.values is not ValueModel.none:
        batch = replace(batch, value_BT=engine.values(batch))
    credit = algo.credit(rewards_of(groups), batch)
    (part,) = minibatches(batch, credit, algo.reduction, 1, torch.arange(len(groups)))
    return part
