"""Load a run's policy, and where its parts come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.runs.trackers.console import Console


@dataclass(frozen=True)
class Sources:
    """The policy that a run starts from, the folders of the proxy reward models that the pipeline
    trained for it, and the file of its fixed pairs ('' if it samples). quality: held-out loss of
    SFT and accuracy of the proxies, as far as stages made them, under the names of evaluations."""

    policy: PretrainedModel
    proxies: tuple[str, ...] = ()
    pairs: str = ""
    quality: Mapping[str, float] = field(default_factory=dict)


class PolicyLoader:
    """Keeps the policy that was loaded last, and only that one, so that stages, training and
    evaluation of one command do not load it again. It lives as long as the command's job.

    console: shows that a policy is loaded; None shows nothing.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(quiet=True)
        self._source: tuple[PretrainedModel, int] | None = None
        self._loaded: tuple[Any, Any] | None = None

    def read(self, source: PretrainedModel, seed: int, key: str = "model.path") -> tuple[Any, Any]:
        """Model, on the CPU, and tokenizer. Callers that change weights copy the model first. key:
        the option that named it."""
        if self._loaded is None or self._source != (source, seed):
            self._loaded = None  # its memory is free before the next one is loaded
            with self._console.phase(f"loading the weights of {source.name}"):
                self._loaded = load_policy(source, None, seed, key)
            self._source = source, seed
        model, tokenizer = self._loaded
        return model.to("cpu"), tokenizer

    def take(self, source: PretrainedModel, seed: int) -> tuple[Any, Any]:
        """The same for a caller that owns the model from now on; it is kept no longer."""
        loaded = self.read(source, seed)
        self._loaded = None
        return loaded
