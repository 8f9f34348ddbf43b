"""Where the models of a run come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rlhf_lab.models.options import PretrainedModel


@dataclass(frozen=True)
class Sources:
    """The policy that a run starts from, the folders of the proxy reward models that the pipeline
    trained for it, and the file of its fixed pairs ('' if it samples). quality: held-out loss of
    SFT and accuracy of the proxies, as far as stages made them, under the names of evaluations."""

    policy: PretrainedModel
    proxies: tuple[str, ...] = ()
    pairs: str = ""
    quality: Mapping[str, float] = field(default_factory=dict)
