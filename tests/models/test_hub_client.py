"""A hub that cannot be reached is tried once."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled
from huggingface_hub.utils._http import default_client_factory, get_session, http_backoff

from rlhf_lab.models.hub_client import REST_SECONDS, limit_hub


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The limit, without proxies and the offline mode of the tests."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    limit_hub()
    yield
    huggingface_hub.set_client_factory(default_client_factory)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before huggingface_hub tries again, none of which is waited for."""
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


def closed_port() -> int:
    """A port of this machine that nothing listens at."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


@pytest.mark.usefixtures("limited")
def test_files_of_a_hub_that_cannot_be_reached_are_tried_once(
    tmp_path: Path, pauses: list[float]
) -> None:
    endpoint = f"http://127.0.0.1:{closed_port()}"
    for name in ("config.json", "tokenizer.json"):
        with pytest.raises(LocalEntryNotFoundError) as refused:
            huggingface_hub.hf_hub_download("one/two", name, cache_dir=tmp_path, endpoint=endpoint)
        assert "cannot be reached" in str(refused.value.__cause__)
    assert pauses == []


@pytest.mark.usefixtures("limited")
def test_a_host_that_failed_is_tried_again_after_its_rest(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, clock = closed_port(), [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    url = f"http://127.0.0.1:{port}/"
    with pytest.raises(OfflineModeIsEnabled, match=str(port)):
        http_backoff("GET", url)
    with socket.create_server(("127.0.0.1", port)) as server:

        def answer() -> None:
            taken, _ = server.accept()
            with taken:
                taken.recv(4096)
                taken.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(OfflineModeIsEnabled, match=str(port)):
            get_session().get(url)
        clock[0] += REST_SECONDS
        assert get_session().get(url).status_code == 200
        thread.join(60)
    assert pauses == []
