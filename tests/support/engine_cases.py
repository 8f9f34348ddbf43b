"""A tiny policy, batches of uneven lengths, and updates of it by any engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from rlhf_lab.algos.corrections.proximal import NoCorrection
from rlhf_lab.algos.pairs import OnlineDPO
from rlhf_lab.algos.ppo import PPO
from rlhf_lab.experiment.build import engine as build
from rlhf_lab.models.batching import collate, token_weights
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.heads import value_model_like
from rlhf_lab.models.options import ScratchModel
from rlhf_lab.rollout.generators.options import HFSampling
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.training.engines import microbatches
from rlhf_lab.training.engines.engine import TrainingEngine
from rlhf_lab.training.engines.options import DeepSpeedOptions, EngineOptions, FSDPOptions
from rlhf_lab.training.optim import Optim
from rlhf_lab.types.data import Batch, UpdateResult, Weights
from rlhf_lab.types.protocols import Algorithm
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample
from tests.support.episode_rows import ragged

ALGOS: dict[str, Algorithm] = {
    "ppo": PPO(),
    "ppo_bins": PPO(value_bins=5, value_clip=0.0),
    "ppo_turns": PPO(),
    "online_dpo": OnlineDPO(),
}
# Those that processes train together in tests: the first has all that an engine can compute, and
# the last learns from episodes.
SPREAD = ("ppo_bins", "online_dpo", "ppo_turns")
TINY = ScratchModel("tiny", hidden_size=32, num_layers=2, num_heads=4)
RATE = 1e-2
MAX_GRAD_NORM = 1.0
# Small enough that processes get unequal shares and that logits are made in several chunks.
ROWS, TOKENS = 2, 4


def options_of(name: str) -> EngineOptions:
    """fsdp, or the stage of deepspeed as in zero2; behind a dash, how it reads rows."""
    name = name.partition("-")[0]
    if name == "fsdp":
        return FSDPOptions(micro_rows=ROWS, logit_tokens=TOKENS)
    stage = int(name.removeprefix("zero"))
    return DeepSpeedOptions(stage=stage, micro_rows=ROWS, logit_tokens=TOKENS)


@contextmanager
def rows_of(name: str) -> Iterator[None]:
    """Inside, engines read rows as on a GPU: NAME-causal without masks, NAME-blocks each group in
    blocks of FlexAttention."""
    _, _, kind = name.partition("-")
    with ExitStack() as stack:
        if kind:
            for module in (build, microbatches):
                stack.enter_context(patch.object(module, "stores_no_masks", lambda device: True))
            cheaper = kind == "blocks"
            stack.enter_context(
                patch.object(microbatches, "packing_is_cheaper", lambda *given: cheaper)
            )
        yield


def policy(model: ScratchModel = TINY) -> Any:
    return load_policy(model, TldrNano().tokenizer(), seed=3)[0]


def engine(
    options: EngineOptions, algo: str, model: Any | None = None, lora_rank: int = 0
) -> TrainingEngine:
    """An engine of the tiny policy. DeepSpeed clips policy and value model jointly, so where there
    is one the limit is out of reach."""
    trained = policy() if model is None else model
    values = None
    if algo.startswith("ppo"):
        values = value_model_like(trained, False, ALGOS[algo].needs.bins)
        with torch.no_grad():
            (weight,) = values.score.parameters()
            weight.copy_(head_weights(weight))
    optim = Optim(lr=RATE, weight_decay=0.1, max_grad_norm=1000.0 if values else MAX_GRAD_NORM)
    config: Any = SimpleNamespace(
        engine=options,
        optim=optim,
        algo=ALGOS[algo],
        model=replace(TINY, lora_rank=lora_rank),
        generator=HFSampling(temperature=0.7),
        seed=3,
    )
    return build.build_engine(config, trained, values)


def head_weights(weight: torch.Tensor) -> torch.Tensor:
    """Numbers for a value head. Rows of several bins must differ by more than a constant, whose
    gradient a layer norm takes away: AdamW would make steps of what rounding leaves of it."""
    if len(weight) == 1:
        return torch.linspace(-0.5, 0.5, weight.numel()).view_as(weight)
    return 0.3 * torch.arange(weight.numel()).mul(1.7).sin().view_as(weight)


def groups(seed: int, num_groups: int = 5) -> list[Group]:
    """Groups of two samples, with prompts of 2 to 7 tokens and responses of 1 to 8."""
    rng = torch.Generator().manual_seed(seed)

    def tokens(least: int, most: int) -> tuple[int, ...]:
        count = int(torch.randint(least, most + 1, (1,), generator=rng))
        return tuple(torch.randint(4, 60, (count,), generator=rng).tolist())

    def sample(logp: float) -> Sample:
        written = tokens(1, 8)
        return Sample(written, (logp,) * len(written), 0, Finish.eos, "")

    return [
        Group(
            Prompt(n, tokens(2, 7), Example("", "", "")), (sample(-1.0), sample(-1.1)), (0.0, 1.0)
        )
        for n in range(num_groups)
    ]


def batch_of(engine: Any, algo: str, seed: int, num_groups: int = 5) -> Batch:
    """Rows with credit and weight, as the loop would hand them to an update."""
    is_of_turns = algo.endswith("turns")
    rows = ragged(num_groups, seed) if is_of_turns else groups(seed, num_groups)
    batch = collate(rows, pad_id=0)
    batch = replace(batch, reference_logp_BT=engine.reference_logp(batch))
    if algo.startswith("ppo"):
        value_BT = engine.values(batch)
        noise_BT = torch.randn(value_BT.shape, generator=torch.Generator().manual_seed(seed))
        batch = replace(
            batch,
            value_BT=value_BT,
            target_BT=value_BT + batch.mask_BT,
            credit_BT=noise_BT * batch.mask_BT,
        )
    else:
        sign_B1 = torch.tensor([-1.0, 1.0]).repeat(num_groups).unsqueeze(1)
        batch = replace(batch, credit_BT=sign_B1 * batch.mask_BT)
    return replace(batch, weight_BT=token_weights(batch, ALGOS[algo].reduction))


def updates(
    engine: Any, algo: str, seeds: Sequence[int], num_groups: int = 5
) -> list[UpdateResult]:
    """One update on the batch of every seed."""
    return [
        engine.update(batch_of(engine, algo, seed, num_groups), ALGOS[algo], NoCorrection(), RATE)
        for seed in seeds
    ]


def losses(done: Sequence[UpdateResult]) -> list[float]:
    return [updated.metrics["loss"] for updated in done]


def saved(engine: Any) -> dict[str, Any]:
    """What a checkpoint holds of an engine."""
    return {"weights": dict(engine.weights(2).state), "state": engine.state()}


def restore(engine: Any, held: dict[str, Any]) -> None:
    engine.restore(Weights(2, held["weights"]), held["state"])
