"""Config group `generator`: what the options of every generator have, and option `hf`."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

from rlhf_lab.models.devices import check_name, chosen
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Generator
from rlhf_lab.types.randomness import uniforms

if TYPE_CHECKING:
    import numpy as np

    from rlhf_lab.rollout.generators.episodes import Turns
    from rlhf_lab.tasks.chat import ChatForm

SERVER_REMEDY = "pass generator=vllm generator.port=8100 and no generator.urls"
DTYPES = ("float32", "bfloat16", "float16")


class Decode(StrEnum):
    """Who computes the logits: transformers, a lean loop over the model's modules, the same with
    buffers that stay (static; replayed as CUDA graphs on a GPU), or one of the latter where it
    knows the model's class and finds the same log-probs."""

    auto = "auto"
    transformers = "transformers"
    lean = "lean"
    static = "static"


class RoundWeights(StrEnum):
    """Formats that the weights of a generator are rounded to and back (see WeightRounding)."""

    none = "none"
    bf16 = "bf16"
    fp16 = "fp16"
    fp8_e4m3 = "fp8_e4m3"
    int8 = "int8"


class Ability(StrEnum):
    """What a run may ask of a generator beside whole samples of single prompts.

    greedy: the last sample of each group is the likeliest one (`Chunk.greedy`). segments: it stops
    at `Chunk.stop`, and continues the samples of `Chunk.begun`. turns: it writes the actions of
    episodes (`GeneratorOptions.build_turns`).
    """

    greedy = "greedy"
    segments = "segments"
    turns = "turns"


class Lengths(NamedTuple):
    """Longest prompt and response of a run, and what an environment writes in it, in tokens."""

    prompt: int
    response: int
    observed: int = 0


class Command(NamedTuple):
    """A command line, with the environment variables that it needs beside the usual ones."""

    words: list[str]
    variables: dict[str, str]


@dataclass(frozen=True)
class GeneratorContext:
    """What a generator is built from, in the process that uses it.

    policy: makes a copy of the policy (of transformers), which the generator then owns; shape: the
    same without weights, for one that loads weights by itself. seed: keys the random numbers of
    samples. form: how the task's chats are encoded. cache: the folder output.cache.
    """

    tokenizer: Any
    policy: Callable[[], Any]
    shape: Callable[[], Any]
    lengths: Lengths
    seed: int
    form: ChatForm
    cache: Path

    @property
    def uniforms(self) -> Callable[[int, int, int], np.ndarray]:
        """uniforms(prompt id, sample number, count): numbers in [0, 1), one for each token."""
        return functools.partial(uniforms, self.seed)


@dataclass(frozen=True)
class GeneratorOptions(limits.OptionGroup, ABC, key="generator"):
    """Options of all generators. Labels and evaluation are always sampled as by generator=hf, with
    these values.

    A generator declares what it can do. abilities: see Ability. draws_samples: else it has fixed
    pairs. decodes_here: it decodes with its own copy of the policy, in the process of its
    worker. has_own_kernels: its operations are not torch's. draws_together: it draws chunks of a
    version side by side. unrounded: why it cannot round the weights that it loads; "" if it can.
    """

    name: str = field(metadata=limits.NAME)
    temperature: float = limits.number(
        0.7,
        min=0.01,
        max=10,
        about="Sampling temperature; it divides the logits of all log-probs of the run.",
    )
    chunk_groups: int = limits.rows(
        64,
        about=(
            "Prompts decoded together; part of the result, since matrix products round "
            "differently in other batches."
        ),
        fork="chunks on their way have this size, and bits depend on it",
    )
    max_new_tokens: int = limits.tokens(
        0,
        also={0: "for the task's own"},
        about="Longest response in tokens; 0 takes the task's own limit.",
    )
    threads: int = limits.threads(1, about="CPU threads of each operation of a generator.")
    decode: Decode = limits.option(
        Decode.auto,
        about=(
            "Who decodes: transformers, lean (GPTNeoX, Llama, Qwen2, Qwen3, Mistral; rounds "
            "differently), static (lean with fixed buffers, as CUDA graphs on a GPU), or auto: "
            "lean on a CPU and static on a GPU, where they agree with transformers."
        ),
    )
    device: str = limits.option(
        "auto",
        about=(
            "Device of the generator's models, the reward's included: cpu, cuda, cuda:1 (the first "
            "of several generators; others count up), ...; auto takes a GPU if there is one, and "
            "one without a trainer where there are enough."
        ),
    )
    dtype: str = limits.option(
        "auto",
        about=(
            "Type of the generator's weights: float32, bfloat16 or float16. auto is bfloat16 on a "
            "GPU and the policy's on a CPU; float32 with adapters beside half precision."
        ),
    )
    round_weights: RoundWeights = limits.option(
        RoundWeights.none,
        about=(
            "Format that weights are rounded to and back before they write the samples of "
            "training, so that generator and trainer differ: none, bf16, fp16, fp8_e4m3 or int8. "
            "Evaluation and labels take exact ones."
        ),
        source="arXiv:2512.01374",
    )
    abilities: ClassVar[frozenset[Ability]] = frozenset()
    draws_samples: ClassVar[bool] = True
    decodes_here: ClassVar[bool] = False
    has_own_kernels: ClassVar[bool] = False
    draws_together: ClassVar[bool] = False
    unrounded: ClassVar[str] = "it does not round the weights that it loads"

    @abstractmethod
    def build(self, context: GeneratorContext) -> Generator:
        """The generator. It must not change the context's random numbers with the order of
        chunks."""

    def build_turns(self, generator: Generator) -> Turns:
        """What writes the actions of episodes by the generator that `build` made."""
        raise NotImplementedError(f"generator={self.name} declares Ability.turns without it")

    def server_command(self, context: GeneratorContext) -> Command:
        """The command that starts a server for runs with these options. Raises UserError."""
        raise UserError(f"generator={self.name}: it has no server; {SERVER_REMEDY}")

    def require_usable(self, key: str) -> None:
        """Raise UserError where something is absent: a package, a server. key: the config's."""

    @property
    def num_gpus(self) -> int:
        """GPUs of one generator, if it has any."""
        return 1

    @property
    def gpus_per_copy(self) -> int:
        """GPUs that share one copy of the policy."""
        return 1

    @property
    def server_gpus(self) -> int:
        """GPUs of all servers that run already."""
        return 0

    @property
    def pairs_path(self) -> str:
        """The user's file of fixed pairs; '' if there is none."""
        return ""

    @property
    def pair_scores(self) -> str:
        """Name of the rewards of fixed pairs; '' is 1 for chosen, 0 for rejected."""
        return ""

    @property
    def address(self) -> str:
        """The option that binds all generators of a run to the same server; '' if none does."""
        return ""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.device, "generator.device")
        if self.dtype not in ("auto", *DTYPES):
            raise UserError(
                f"generator.dtype={self.dtype}: choose one of auto, {', '.join(DTYPES)}"
            )
        self._require_rounding()

    def _require_rounding(self) -> None:
        """Refuse to round weights that this generator does not load itself."""
        if self.round_weights is RoundWeights.none:
            return
        if self.unrounded:
            raise UserError(
                f"generator.round_weights={self.round_weights.value} with generator={self.name}: "
                f"{self.unrounded}; pass generator=hf, or generator.round_weights=none"
            )

    def require(self, ability: Ability, asking: str, remedy: str = "pass generator=hf") -> None:
        """Raise UserError for an ability that is not declared. asking: KEY=VALUE that needs it."""
        if ability not in self.abilities:
            raise UserError(
                f"{asking} with generator={self.name}: it declares no Ability.{ability.name}; "
                f"{remedy}"
            )

    def placed(self, policy: Any) -> Any:
        """A copy of the policy that samples, on the device and in the type of these options."""
        import torch

        from rlhf_lab.models.weights import with_parameters_in

        device = chosen(self.device, "generator.device")
        dtype = self.dtype_on(device.type, str(policy.dtype).removeprefix("torch."))
        return with_parameters_in(policy.eval().to(device), getattr(torch, dtype))

    def dtype_on(self, device_type: str, policy_dtype: str) -> str:
        """The type of the generator's weights on a device of this type, cuda or cpu."""
        if self.dtype != "auto":
            return self.dtype
        is_exact = policy_dtype == "float32"
        return "bfloat16" if device_type == "cuda" and is_exact else policy_dtype


@dataclass(frozen=True)
class HFSampling(GeneratorOptions):
    """Samples are generated by transformers, or by a faster loop over the model's modules."""

    name: str = limits.name("hf")
    abilities: ClassVar[frozenset[Ability]] = frozenset(Ability)
    decodes_here: ClassVar[bool] = True
    unrounded: ClassVar[str] = ""

    def build(self, context: GeneratorContext) -> Generator:
        from rlhf_lab.rollout.generators.hf import HFGenerator  # torch, which refusals do without

        length = context.lengths.response
        return HFGenerator(context.policy(), context.tokenizer, self, length, context.uniforms)

    def build_turns(self, generator: Generator) -> Turns:
        from rlhf_lab.rollout.generators.hf import HFGenerator, HFTurns

        return HFTurns(cast(HFGenerator, generator))
