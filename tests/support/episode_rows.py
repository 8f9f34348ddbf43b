"""Ragged groups of episodes, and a model's numbers for them row by row, by its own forward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.models.heads import expected
from rlhf_lab.types.samples import Example, Group, Prompt, Sample
from tests.support.environments import acted


def ragged(num: int = 4, seed: int = 0) -> list[Group]:
    """Groups of two samples, of zero to three observations of one to nine tokens each; the policy
    writes little in some, and much in others."""
    rng = torch.Generator().manual_seed(seed)

    def count(least: int, most: int) -> int:
        return int(torch.randint(least, most + 1, (1,), generator=rng))

    def tokens(number: int) -> tuple[int, ...]:
        return tuple(torch.randint(4, 60, (number,), generator=rng).tolist())

    def sample(observations: int) -> Sample:
        place = count(0, 1)
        observed = []
        for _ in range(observations):
            observed.append((place, tokens(count(1, 9))))
            place += count(1, 4)
        return acted(tokens(place + 1), observed)

    return [
        Group(
            Prompt(number, tokens(count(2, 7)), Example("", "", "")),
            (sample(number % 4), sample((number + 2) % 4)),
            (0.0, 1.0),
        )
        for number in range(num)
    ]


def texts(groups: Sequence[Group]) -> Iterator[tuple[Tensor, list[int]]]:
    """The whole text of each sample, and the places of the policy's tokens in it."""
    for group in groups:
        for sample in group.samples:
            place = len(group.prompt.tokens)
            own: list[int] = []
            for is_observed, tokens in sample.pieces():
                own += [] if is_observed else range(place, place + len(tokens))
                place += len(tokens)
            yield torch.tensor([[*group.prompt.tokens, *sample.all_tokens]]), own


def manual_logps(model: Any, groups: Sequence[Group], temperature: float) -> Tensor:
    """The log-prob of each of the policy's tokens, each row read alone, BT."""
    rows = []
    for text, own in texts(groups):
        logits = model(input_ids=text).logits[0] / temperature
        logp = logits.log_softmax(-1)[:-1].gather(1, text[0, 1:, None]).squeeze(1)
        rows.append(logp[torch.tensor(own) - 1])
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def manual_values(network: Any, groups: Sequence[Group]) -> Tensor:
    """The value of the state before each of the policy's tokens, by a network with a body, BT."""
    rows = []
    for text, own in texts(groups):
        score = network(network.body(input_ids=text).last_hidden_state)
        value = score if network.bins is None else expected(score, network.bins)
        rows.append(value[0, torch.tensor(own) - 1])
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
