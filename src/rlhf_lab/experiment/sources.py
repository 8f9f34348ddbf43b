"""Where the models of a run come from."""

from __future__ import annotations

from dataclasses import dataclass

from rlhf_lab.models.pretrained import PretrainedModel


@dataclass(frozen=True)
class Sources:
    """The policy that a run starts from, the folders of the proxy reward models that the pipeline
    trained for it, and the file of its fixed pairs ('' if it samples)."""

    policy: PretrainedModel
    proxies: tuple[str, ...] = ()
    pairs: str = ""
