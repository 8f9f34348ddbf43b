"""Families of causal language models as tiny configs, from tests/data/families.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rlhf_lab.models.causal_lm import text_part
from rlhf_lab.models.quiet import quiet_transformers
from rlhf_lab.runs.reading import read_yaml

TABLE = read_yaml(Path(__file__).parents[1] / "data" / "families.yaml")
SHAPE: Mapping[str, Any] = TABLE["shape"]
VOCABULARY: int = SHAPE["vocab_size"]


@dataclass(frozen=True)
class Family:
    """A row of the table, whose head has the sentence for each field."""

    kind: str
    attention: str
    sets: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    without: list[str] = field(default_factory=list)
    around: dict[str, Any] = field(default_factory=dict)
    presets: list[str] = field(default_factory=list)
    nats: float = 1e-3

    @property
    def config(self) -> Any:
        """A tiny config."""
        given = {name: value for name, value in SHAPE.items() if name not in self.without}
        for name in self.sets:
            given |= TABLE["sets"][name]
        given |= self.options
        options = {"text_config": given, **self.around} if self.around else given
        return AutoConfig.for_model(self.kind, **options)

    def model(self) -> Any:
        """A float32 model in eval mode as a run loads it, the same at each call, with weights far
        enough from zero that what a token sees shows."""
        with quiet_transformers(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            made = AutoModelForCausalLM.from_config(self.config).float().eval()
            with torch.no_grad():
                for weight in made.parameters():
                    if weight.dim() > 1:
                        weight += 0.15 * torch.randn_like(weight)
            return text_part(made, self.kind, "model.path")


FAMILIES = {name: Family(**fields) for name, fields in TABLE["families"].items()}
