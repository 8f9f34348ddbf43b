"""A stream of prompts in which a fixed share is of a file of pairs (run.offline_share)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from rlhf_lab.tasks.prompts import PromptStream
from rlhf_lab.types.samples import Prompt


class WithOffline(Sequence[Prompt]):
    """Both streams, so that any first n prompts have n * share, rounded down, of the offline one.

    A prompt depends on its number alone, so that a run resumes at any of them.
    """

    def __init__(self, online: PromptStream, offline: PromptStream, share: float) -> None:
        self._online = online
        self._offline = offline
        self._share = share
        self.num_dropped = online.num_dropped

    def __len__(self) -> int:
        """Prompts of one epoch of the online stream; indices may be larger."""
        return len(self._online)

    def __getitem__(self, index: int) -> Prompt:  # type: ignore[override]
        before = math.floor(index * self._share)
        if math.floor((index + 1) * self._share) > before:
            return replace(self._offline[before], id=index)
        return replace(self._online[index - before], id=index)
