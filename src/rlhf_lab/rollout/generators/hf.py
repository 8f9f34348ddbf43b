"""Sampling with a transformers causal language model, by its own forward or by a lean loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from rlhf_lab.models.devices import chosen, torch_threads
from rlhf_lab.models.weights import load_weights
from rlhf_lab.rollout.generators.decoders import decoder_of, require_idle_rows
from rlhf_lab.rollout.generators.episodes import Conversations
from rlhf_lab.rollout.generators.open_episode import OpenEpisode
from rlhf_lab.rollout.generators.options import GeneratorOptions, RoundWeights
from rlhf_lab.rollout.generators.packed_products import PackedProducts
from rlhf_lab.rollout.generators.static import StaticDecoder
from rlhf_lab.rollout.generators.static_writer import StaticWriter
from rlhf_lab.rollout.generators.writers import (
    Rows,
    StepwiseWriter,
    Talks,
    TurnWriter,
    WrittenTokens,
    require_numbers,
)
from rlhf_lab.runs.memory import memory_for
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Generator, WeightFeed
from rlhf_lab.types.rollouts import Chunk, GeneratorReport
from rlhf_lab.types.samples import Finish, Group, Sample
from rlhf_lab.types.text_frame import TextFrame

CASTS = {RoundWeights.bf16: torch.bfloat16, RoundWeights.fp16: torch.float16}
LARGEST_INT8 = 127.0
LARGEST_FP8 = torch.finfo(torch.float8_e4m3fn).max


class WeightRounding:
    """Rounds versions of one model's weights.

    bf16, fp16: all tensors, to the nearest value of the type. fp8_e4m3, int8: the matrices of
    linear layers but for the output head, with a scale for each output channel that maps its
    largest magnitude to the format's; embeddings, norms and biases stay, as in vLLM's formats
    (docs.vllm.ai, quantization: fp8, int8). Raises UserError for a model without such layers.
    """

    def __init__(self, model: Any, to: RoundWeights) -> None:
        self._to = to
        self._matrices = linear_weights(model)
        if to in (RoundWeights.fp8_e4m3, RoundWeights.int8) and not self._matrices:
            raise UserError(
                f"generator.round_weights={to.value}: {type(model).__name__} has no "
                "torch.nn.Linear besides its head; pass generator.round_weights=bf16 or none"
            )

    def __call__(self, weights: Weights) -> Weights:
        """The version with rounded tensors of the same names, shapes and types."""
        if self._to is RoundWeights.none:
            return weights
        state = {name: self._rounded(name, tensor) for name, tensor in weights.state.items()}
        return Weights(weights.version, state)

    def _rounded(self, name: str, tensor: Tensor) -> Tensor:
        if self._to in CASTS:
            return tensor.to(CASTS[self._to]).to(tensor.dtype)
        return by_channel(tensor, self._to) if name in self._matrices else tensor


def linear_weights(model: Any) -> frozenset[str]:
    """Names of the matrices of linear layers, without the output head's."""
    head = model.get_output_embeddings()
    return frozenset(
        f"{name}.weight"
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not head
    )


def by_channel(matrix_OI: Tensor, to: RoundWeights) -> Tensor:
    """A matrix rounded to 8 bits and back, with a symmetric scale for each row, an output channel.

    O, I: outputs and inputs. Rows of zeros stay as they are.
    """
    exact_OI = matrix_OI.detach().float()
    largest = LARGEST_INT8 if to is RoundWeights.int8 else LARGEST_FP8
    scale_O1 = exact_OI.abs().amax(dim=1, keepdim=True) / largest
    scale_O1 = scale_O1.clamp(min=torch.finfo(torch.float32).tiny)
    steps_OI = exact_OI / scale_O1
    if to is RoundWeights.int8:
        steps_OI = steps_OI.round().clamp(-largest, largest)
    else:
        steps_OI = steps_OI.clamp(-largest, largest).to(torch.float8_e4m3fn).float()
    return (steps_OI * scale_O1).to(matrix_OI.dtype)


Uniforms = Callable[[int, int, int], np.ndarray]


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that sampling needs."""

    eos_token_id: int

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str: ...


class GeneratorSettings(NamedTuple):
    """What a generator is built from beside its model, for another process to build its like."""

    tokenizer: Tokenizer
    sampling: GeneratorOptions
    max_new_tokens: int
    uniforms: Uniforms


class HFGenerator(Generator):
    """Draws by inverse CDF from counter-based uniforms, keyed by prompt, sample and position.

    uniforms(prompt id, sample number, count) gives `count` numbers in [0, 1). So a sample depends
    on the weights, its chunk and its key alone, not on the order of chunks.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        sampling: GeneratorOptions,
        max_new_tokens: int,
        uniforms: Uniforms,
    ) -> None:
        self.device = chosen(sampling.device, "generator.device")
        self._model = sampling.placed(model)
        self._packed = PackedProducts(self._model)
        self._tokenizer = tokenizer
        self._sampling = sampling
        self.max_new_tokens = max_new_tokens
        self.uniforms = uniforms
        self._loaded: Weights | None = None
        self._rounding = WeightRounding(self._model, sampling.round_weights)
        with torch_threads(sampling.threads):
            self._decoder, self._note = decoder_of(self._model, sampling.decode)
        self._bears_idle_rows = False
        self._writer: StaticWriter | StepwiseWriter
        self._frame = TextFrame(tokenizer)
        written_by = (sampling.temperature, self._frame.ends)
        if isinstance(self._decoder, StaticDecoder):
            self._writer = StaticWriter(self._decoder, *written_by)
        else:
            self._writer = StepwiseWriter(self._decoder, *written_by)

    @property
    def settings(self) -> GeneratorSettings:
        """Those of its like on another process's device of the same kind."""
        sampling = replace(self._sampling, device=self.device.type)
        return GeneratorSettings(self._tokenizer, sampling, self.max_new_tokens, self.uniforms)

    @property
    def is_float32(self) -> bool:
        """Whether its log-probs are the policy's up to rounding in float32."""
        is_rounding = self._sampling.round_weights is not RoundWeights.none
        return self._model.dtype is torch.float32 and not is_rounding

    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        """Samples of every prompt of the chunk, K each, with their behaviour log-probs."""
        rows = self._rows(chunk)
        return self._groups(chunk, rows, self.write(feed, rows))

    def write(self, feed: WeightFeed, rows: Rows) -> WrittenTokens:
        """Write all rows until they end or the random numbers do.

        New weights continue with the cache that old ones computed (in-flight updates,
        arXiv:2509.19128); log-probs are of the distribution that was sampled from.
        """
        with self._ready():
            written = self._writer.write(rows, lambda step: self._load(feed.at(step)))
            require_numbers(written.logp_BT, written.versions[0])
        return written

    def converse(self, feed: WeightFeed, rows: Rows, talks: Talks, room: int) -> None:
        """Write rows whose actions are answered; see TurnWriter."""
        writer = TurnWriter(self._decoder, self._sampling.temperature, self._frame.ends)
        with self._ready():
            if talks.ahead and not self._bears_idle_rows:
                require_idle_rows(self._model, self._decoder)
                self._bears_idle_rows = True
            writer.write(rows, talks, room, lambda step: self._load(feed.at(step)))

    @contextmanager
    def _ready(self) -> Iterator[None]:
        with (
            torch_threads(self._sampling.threads),
            torch.inference_mode(),
            self._packed.in_use(),
            memory_for("generation", f"generator.chunk_groups={self._sampling.chunk_groups}"),
        ):
            yield

    def take(self, version: int, tensors: Iterable[tuple[str, Tensor]]) -> Weights:
        """Load a version that arrives tensor by tensor, none of which is kept. Returns what
        `generate` takes for it, which holds no tensors."""
        parameters = dict(self._model.named_parameters())
        with torch.no_grad():
            for name, tensor in tensors:
                parameters[name].copy_(tensor)
        self._loaded = Weights(version, {})
        return self._loaded

    def report(self) -> GeneratorReport:
        """Once: which loop decodes, and why not a faster one."""
        notes, self._note = (self._note,) if self._note else (), ""
        return GeneratorReport({}, notes)

    def _rows(self, chunk: Chunk) -> Rows:
        """The chunk's rows; of a continued chunk, the unfinished ones."""
        size, begun = chunk.group_size, chunk.begun
        numbers = [n for n, s in enumerate(chunk.samples) if s.finish is Finish.unfinished]
        start = len(chunk.samples[numbers[0]].tokens)
        stop = chunk.stop(self.max_new_tokens)
        texts = [prompt.tokens for prompt in chunk.prompts]
        if begun:
            texts = [texts[n // size] + begun[n].tokens for n in numbers]
        drawn = [self.uniforms(chunk.prompts[n // size].id, n % size, stop) for n in numbers]
        number_B = torch.tensor(numbers)
        return Rows(
            texts=texts,
            repeats=1 if begun else size,
            number_B=number_B,
            start=start,
            uniform_BT=torch.from_numpy(np.stack(drawn)[:, start:]).to(self.device),
            is_greedy_B=(number_B % size == size - 1).to(self.device) if chunk.greedy else None,
        )

    def _load(self, weights: Weights) -> int:
        """Every version that writes a sample comes by here, in every mode and executor, and is
        rounded here alone: checkpoints and the trainer have exact weights."""
        if self._loaded is not weights:
            load_weights(self._model, self._rounding(weights))
            self._loaded = weights
        return weights.version

    def _groups(self, chunk: Chunk, rows: Rows, written: WrittenTokens) -> tuple[Group, ...]:
        """The chunk's groups with the new tokens; samples that had ended before do not change."""
        samples = list(chunk.samples)
        cells = zip(
            rows.number_B.tolist(), written.token_BT.tolist(), written.logp_BT.tolist(), strict=True
        )
        for number, tokens, logps in cells:
            samples[number] = self._longer(samples[number], tokens, logps, written.versions)
        return chunk.grouped(samples)

    def _longer(
        self, begun: Sample, tokens: list[int], logps: list[float], versions: list[int]
    ) -> Sample:
        """Cut at the first end token, which belongs to the sample (N+ detail 23)."""
        kept = self._frame.cut(tokens)
        length = len(kept)
        whole = begun.tokens + tuple(kept)
        finish = Finish.unfinished
        if self._frame.has_end(kept):
            finish = Finish.eos
        elif len(whole) == self.max_new_tokens:
            finish = Finish.length
        text = self._frame.text(whole)
        return begun.continued(kept, logps[:length], versions[:length], finish, text)


class HFTurns:
    """Writes the turns of a chunk's episodes; see TurnWriter. The random number of a token is keyed
    by prompt, sample, and its place among the policy's tokens."""

    def __init__(self, generator: HFGenerator) -> None:
        self.generator = generator

    @property
    def max_new_tokens(self) -> int:
        """Tokens of an episode that the policy may write."""
        return self.generator.max_new_tokens

    @property
    def is_float32(self) -> bool:
        """See HFGenerator."""
        return self.generator.is_float32

    def write(self, feed: WeightFeed, chunk: Chunk, talks: Conversations) -> None:
        """Write all episodes until they end or stop, and count what was read for them."""
        episodes = talks.episodes
        room = max(talk.episode.room_until(talk.stop) for talk in talks.open_ones)
        starts = [len(episode.tokens) for episode in episodes]
        self.generator.converse(feed, self._rows(episodes, chunk), talks, room)
        for episode, start in zip(episodes, starts, strict=True):
            episode.count_observed(start)

    def _rows(self, episodes: Sequence[OpenEpisode], chunk: Chunk) -> Rows:
        """The rows of the next actions. Samples of a prompt share it where no text stands behind
        any, as those of one turn do."""
        is_new = not any(episode.observed or episode.tokens for episode in episodes)
        repeats = chunk.group_size if is_new else 1
        texts = [episode.context for episode in episodes[::repeats]]
        if not is_new:
            for episode, text in zip(episodes, texts, strict=True):
                episode.count_context(len(text))
        is_greedy = [episode.is_greedy(chunk) for episode in episodes]
        return Rows(
            texts=texts,
            repeats=repeats,
            number_B=torch.arange(len(episodes)),
            start=len(episodes[0].tokens) if chunk.stops_by_tokens else episodes[0].turns,
            uniform_BT=torch.from_numpy(self._drawn(episodes)).to(self.generator.device),
            is_greedy_B=(
                torch.tensor(is_greedy, device=self.generator.device) if chunk.greedy else None
            ),
        )

    def _drawn(self, episodes: Sequence[OpenEpisode]) -> np.ndarray:
        """A random number for each token that the policy may still write; 0 behind the last."""
        limit = self.max_new_tokens
        width = limit - min(len(episode.tokens) for episode in episodes)
        drawn = []
        for episode in episodes:
            numbers = self.generator.uniforms(episode.prompt.id, episode.number, limit)
            own = numbers[len(episode.tokens) :]
            drawn.append(np.pad(own, (0, width - len(own))))
        return np.stack(drawn)
