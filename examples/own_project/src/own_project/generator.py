"""`generator=antithetic`: two samples of a prompt are drawn by opposite random numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from rlhf_lab.models.devices import torch_threads
from rlhf_lab.models.weights import load_weights
from rlhf_lab.rollout.generators.draw import draw
from rlhf_lab.rollout.generators.options import GeneratorContext, GeneratorOptions
from rlhf_lab.types import limits
from rlhf_lab.types.protocols import Generator, WeightFeed
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Finish, Group, Prompt, Sample
from rlhf_lab.types.text_frame import TextFrame


@dataclass(frozen=True)
class Antithetic(GeneratorOptions):
    """Antithetic variates: each sample is the policy's, and two of a prompt differ the most."""

    name: str = limits.name("antithetic")
    # It declares no `abilities`: runs that need more than whole samples are refused.
    decodes_here: ClassVar[bool] = True

    def build(self, context: GeneratorContext) -> AntitheticGenerator:
        return AntitheticGenerator(self, context)


class AntitheticGenerator(Generator):
    def __init__(self, options: Antithetic, context: GeneratorContext) -> None:
        self.options, self.context = options, context
        self.model = options.placed(context.policy())
        self.frame = TextFrame(context.tokenizer)

    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        weights, size = feed.at(0), range(chunk.group_size)
        load_weights(self.model, weights)
        with torch_threads(self.options.threads), torch.inference_mode():
            samples = [self.sample(p, n, weights.version) for p in chunk.prompts for n in size]
        return chunk.grouped(samples)

    def sample(self, prompt: Prompt, number: int, version: int) -> Sample:
        tokens, logps = list[int](), list[float]()
        device, temperature = self.model.device, self.options.temperature
        uniforms = self.context.uniforms(prompt.id, number // 2, self.context.lengths.response)
        for uniform in 1 - uniforms if number % 2 else uniforms:
            row_BT = torch.tensor([[*prompt.tokens, *tokens]], device=device)
            uniform_B = torch.tensor([uniform], device=device)
            token_B, logp_B = draw(self.model(row_BT).logits[:, -1], temperature, uniform_B, None)
            tokens.append(int(token_B))
            logps.append(float(logp_B))
            if self.frame.has_end(tokens):
                break
        finish = Finish.eos if self.frame.has_end(tokens) else Finish.length
        return Sample(tuple(tokens), tuple(logps), version, finish, self.frame.text(tokens))
