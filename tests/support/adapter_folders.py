"""Adapters beside a model of a folder or file, saved and read again."""

from __future__ import annotations

from pathlib import Path

import torch

from rlhf_lab.models.adapters import (
    adapters_of,
    is_adapter,
    merged_weight,
    plain_names,
    with_adapters,
)
from rlhf_lab.models.causal_lm import load_policy, load_tokenizer, policy_shape, save_adapters
from rlhf_lab.models.options import Lora, PretrainedModel
from rlhf_lab.models.sampling import GenerationSettings


def require_read_back(base: PretrainedModel, folder: Path) -> None:
    """Adapters beside a base are saved to a folder, which is read with them merged in."""
    plain, tokenizer = load_policy(base, None, seed=0)
    adapted = with_adapters(load_policy(base, None, seed=0)[0], Lora(2), 1, base)
    rng = torch.Generator().manual_seed(5)
    for name, parameter in adapted.named_parameters():
        if is_adapter(name):
            parameter.data = torch.randn(parameter.shape, generator=rng)
    settings = GenerationSettings(1.0, 8)
    save_adapters(adapters_of(adapted), plain, tokenizer, folder, settings)
    options = PretrainedModel("adapters", str(folder))
    found = dict(load_policy(options, None, seed=0)[0].named_parameters())
    names = plain_names(adapted)
    assert found.keys() == names.keys() == dict(plain.named_parameters()).keys()
    assert all(torch.equal(found[one], merged_weight(adapted, names[one])) for one in names)
    shapes = {name: one.shape for name, one in policy_shape(options, None).named_parameters()}
    assert shapes == {name: one.shape for name, one in found.items()}
    assert load_tokenizer(options, None).get_vocab() == tokenizer.get_vocab()
