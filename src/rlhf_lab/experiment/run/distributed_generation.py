"""Samples of an evaluation drawn by all processes of a run, each on its own device.

Whole chunks are dealt to ranks, and a chunk's samples depend on weights, prompts and seed alone: so
the samples are those of one process wherever all devices compute alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from rlhf_lab.evaluation.evaluator import Evaluator, Validator
from rlhf_lab.experiment.build.policy import PolicyLoader, Sources
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.models.devices import chosen
from rlhf_lab.models.weights import meta_model, with_parameters
from rlhf_lab.rollout.generators.hf import GeneratorSettings, HFGenerator
from rlhf_lab.training.engines.broadcast_engine import DONE
from rlhf_lab.training.engines.distributed import Processes, current, together
from rlhf_lab.training.engines.options import EngineOptions
from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import Generator, WeightFeed
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Group, Sample


@dataclass(frozen=True)
class ChunkSampler:
    """Generators of this process, the same on every rank. All ranks call `draw` together."""

    generators: Sequence[HFGenerator]
    processes: Processes

    def draw(
        self, number: int, weights: Weights, chunks: Sequence[Chunk]
    ) -> list[list[tuple[Sample, ...]]]:
        """The samples of every prompt, chunk by chunk, by the generator of this number. weights:
        only rank 0's tensors are used."""
        rank, size = self.processes.rank, self.processes.size
        generator = self.generators[number]
        tensors = self.processes.broadcast_tensors(weights.state)
        if self.processes.is_main:
            for _ in tensors:
                pass  # sends them
            held = weights
        else:
            held = generator.take(weights.version, tensors)
        own = [
            [group.samples for group in generator.generate(held, chunk)]
            for chunk in chunks[rank::size]
        ]
        drawn = self.processes.all_gather_object(own)
        return [drawn[index % size][index // size] for index in range(len(chunks))]


@dataclass(frozen=True)
class SamplingJob:
    """What worker ranks build the generators of rank 0 from. model: without weights. settings: of
    each generator; all of them have one model. options, is_deterministic: see EngineJob."""

    model: Any
    settings: tuple[GeneratorSettings, ...]
    options: EngineOptions
    is_deterministic: bool

    def engine(self, processes: Processes) -> ChunkSampler:
        """The generators of a worker rank, with weights of zeros until the first call."""
        device = chosen(self.settings[0].sampling.device, "generator.device")
        zeros = {
            name: torch.zeros_like(parameter, device=device)
            for name, parameter in self.model.named_parameters()
        }
        model = with_parameters(self.model, zeros)
        return ChunkSampler([HFGenerator(model, *own) for own in self.settings], processes)


@dataclass(frozen=True)
class SpreadGenerator(Generator):
    """A generator of rank 0, whose chunks all ranks draw. number: of its generator in `sampler`."""

    sampler: ChunkSampler
    number: int

    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        """A single chunk, drawn here."""
        return self.sampler.generators[self.number].generate(feed, chunk)

    def generate_all(self, weights: Weights, chunks: Sequence[Chunk]) -> list[Group]:
        """The groups of all chunks in order."""
        if len(chunks) == 1:
            return list(self.generate(weights, chunks[0]))
        processes = self.sampler.processes
        with together(processes):
            sent = (self.number, Weights(weights.version, {}), chunks)
            processes.broadcast_call(("draw", sent))
            drawn = self.sampler.draw(self.number, weights, chunks)
        return [
            Group(prompt, samples)
            for chunk, rows in zip(chunks, drawn, strict=True)
            for prompt, samples in zip(chunk.prompts, rows, strict=True)
        ]


@contextmanager
def spread_evaluator(
    evaluator: Evaluator, config: Config, sources: Sources, loader: PolicyLoader
) -> Iterator[Evaluator]:
    """The evaluator for the block, in which all ranks draw its samples."""
    # Each once: samples of one generator serve both purposes.
    generators = list({id(own): own for own in (evaluator.sampled, evaluator.judged)}.values())
    with spread_generators(generators, config, sources, loader) as spread:
        yield replace(evaluator, sampled=spread[0], judged=spread[-1])


@contextmanager
def spread_validator(
    validator: Validator, config: Config, sources: Sources, loader: PolicyLoader
) -> Iterator[Validator]:
    """The same for a validator."""
    with spread_generators([validator.generator], config, sources, loader) as spread:
        yield replace(validator, generator=spread[0])


@contextmanager
def spread_generators(
    generators: Sequence[Generator], config: Config, sources: Sources, loader: PolicyLoader
) -> Iterator[Sequence[Generator]]:
    """Generators whose chunks all ranks draw, for the block; of a single process, those given.

    Worker ranks must wait for work when it begins, and do so again when it ends.
    """
    processes = current()
    if processes.size == 1:
        yield generators
        return
    own = [cast(HFGenerator, generator) for generator in generators]
    model, _ = loader.read(sources.policy, config.seed)
    job = SamplingJob(
        meta_model(model),
        tuple(generator.settings for generator in own),
        config.engine,
        torch.are_deterministic_algorithms_enabled(),
    )
    with together(processes):
        processes.broadcast_call(job)
    sampler = ChunkSampler(own, processes)
    try:
        yield [SpreadGenerator(sampler, number) for number in range(len(own))]
    finally:
        if not processes.is_broken:
            processes.broadcast_call(DONE)
