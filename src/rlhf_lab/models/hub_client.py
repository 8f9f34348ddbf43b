"""A limit on how long a hub that cannot be reached is tried."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

import huggingface_hub
from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.utils._http import default_client_factory

# Later requests within so many seconds of a failed one fail at once.
REST_SECONDS = 30.0


def limit_hub() -> None:
    """Let huggingface_hub try a host that cannot be reached once. It has no setting for that, and
    would wait 23 s for each file of a model. Answers such as 503 are tried as often as it does, and
    files of its cache are found without a network."""
    huggingface_hub.set_client_factory(client)


def client() -> Any:
    """huggingface_hub's own client, whose failed connections count as a missing network. Raises
    OfflineModeIsEnabled from its requests, with the reason."""
    made = default_client_factory()
    # httpx or httpx2, by the version of huggingface_hub.
    library = import_module(type(made).__module__.partition(".")[0])
    whole = made.send
    failed: dict[str, tuple[float, str]] = {}

    def send(request: Any, **options: Any) -> Any:
        host = str(request.url.netloc, "ascii")
        since, reason = failed.get(host, (-REST_SECONDS, ""))
        if time.monotonic() - since >= REST_SECONDS:
            try:
                return whole(request, **options)
            except (library.ConnectError, library.ConnectTimeout) as error:
                reason = str(error) or type(error).__name__
                failed[host] = time.monotonic(), reason
        raise OfflineModeIsEnabled(f"{host} cannot be reached: {reason}")

    made.send = send
    return made
