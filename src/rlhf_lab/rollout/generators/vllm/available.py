"""Whether the vLLM servers that a run names answer."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rlhf_lab.rollout.generators.vllm.http import Server
from rlhf_lab.types.errors import UserError

POLL_SECONDS = 1.0


def require_answering(urls: Iterable[str], connect_seconds: float) -> None:
    """Refuse servers that have not answered after so many seconds."""
    deadline = time.monotonic() + connect_seconds
    for url in urls:
        while not Server(url).is_healthy():
            if time.monotonic() >= deadline:
                raise UserError(
                    f"generator.urls={url}: no vLLM server answers there (waited for "
                    f"generator.connect_seconds={connect_seconds:g}); start it with "
                    "`rlhf-lab serve` on its host, or leave generator.urls out"
                )
            time.sleep(POLL_SECONDS)
