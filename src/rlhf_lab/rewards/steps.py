"""Rewards of single steps by a process reward model, refined (arXiv:2410.15115, section 4).

With r_k the model's probability that step k of K is right, and r_k the clipped one with
clip_delta, a step earns
    clip   min(r_k - eta, 0)
    delta  r_k - r_{k+1} for k < K - 1, r_k for k = K - 1, and 0 for the last one
so that more steps earn no more: clipped ones at most 0, and deltas add up to r_1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.models.devices import device_of, torch_threads
from rlhf_lab.models.reward_model import for_scores, load_reward_model
from rlhf_lab.rewards.model import (
    CPU,
    Read,
    device_for,
    passes,
    require_token_scores,
    steps_encoder,
    token_scores,
)
from rlhf_lab.rewards.options import RewardContext
from rlhf_lab.rewards.steps_options import Decode, Refine, StepsReward, step_ends
from rlhf_lab.types.heartbeat import beat
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import Group, Sample
from rlhf_lab.types.text_frame import TextFrame


class StepsScorer(Reward):
    """Reads every sample once: a causal model's score of a prefix is its score at the prefix's last
    token."""

    def __init__(
        self,
        model: Any,
        offset: float,
        options: StepsReward,
        decode: Decode,
        read: Read,
        threads: int,
        device: torch.device = CPU,
    ) -> None:
        self._model = for_scores(model, device, options.dtype)
        self._offset = offset
        self._options = options
        self._decode = decode
        self._read = read
        self._threads = threads

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        """The sum over the steps of each sample, in order."""
        return [group.rewards for group in self.scored(groups)]

    def scored(self, groups: Sequence[Group]) -> list[Group]:
        """The groups with what every step earned, at its last token, and with the sums."""
        samples = [(group, sample) for group in groups for sample in group.samples]
        ends = [self._ends(sample) for _, sample in samples]
        rows = [self._read(*pair, end) for pair, end in zip(samples, ends, strict=True)]
        lengths = [len(tokens) for tokens, _ in rows]
        found: list[list[float]] = [[] for _ in rows]
        with torch_threads(self._threads), torch.inference_mode():
            device_type = device_of(self._model).type
            for chosen in passes(lengths, self._options.micro_rows, device_type):
                each = self._probabilities([rows[number] for number in chosen])
                for number, row in zip(chosen, each, strict=True):
                    found[number] = row
                beat()
        probabilities = iter(found)
        positions = iter(ends)
        out = []
        for group in groups:
            steps = []
            for _ in group.samples:
                earned = refined(next(probabilities), self._options.refine, self._options.eta)
                steps.append(tuple(zip(next(positions), earned, strict=True)))
            sums = [sum(reward for _, reward in row) for row in steps]
            out.append(group.scored(sums, steps))
        return out

    def _ends(self, sample: Sample) -> list[int]:
        return step_ends(sample.tokens, self._decode, self._options.mark, self._options.max_steps)

    def _probabilities(
        self, rows: Sequence[tuple[Sequence[int], Sequence[int]]]
    ) -> list[list[float]]:
        score_BT: Tensor = token_scores(self._model, [tokens for tokens, _ in rows])
        probability_BT = (score_BT - self._offset).sigmoid()
        return [
            probability_BT[number, list(ends)].tolist() for number, (_, ends) in enumerate(rows)
        ]


def build_steps(options: StepsReward, context: RewardContext) -> StepsScorer:
    key = f"{context.key}.path"
    model, own_tokenizer, offset = load_reward_model(options.path, key, options.tokenizer)
    require_token_scores(model, options.path, key)
    decode = TextFrame(context.tokenizer).text
    read = steps_encoder(context.tokenizer, own_tokenizer, options.path, key, decode)
    device = device_for(options, context)
    return StepsScorer(model, offset, options, decode, read, context.threads, device)


def refined(probabilities: Sequence[float], refine: Refine, eta: float) -> list[float]:
    earned = list(probabilities)
    if refine in (Refine.clip, Refine.clip_delta):
        earned = [min(r - eta, 0.0) for r in earned]
    if refine in (Refine.delta, Refine.clip_delta):
        following = [*earned[1:-1], 0.0]
        earned = [*(r - s for r, s in zip(earned[:-1], following, strict=False)), 0.0]
    return earned
