"""A server that tests share, since one takes long to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rlhf_lab.rollout.generators.options import Lengths
from rlhf_lab.rollout.generators.vllm.http import RUN_ID, SERVER_KEY
from rlhf_lab.rollout.generators.vllm.options import VLLMSampling
from rlhf_lab.rollout.generators.vllm.servers import Servers
from tests.with_vllm.models import policy

JOB = "job7"
# On a machine that has more to do.
STARTUP_SECONDS = 1200.0


@pytest.fixture(scope="session")
def llama_url() -> Iterator[str]:
    """The address of a server of the tied Llama, of a job, whose key is in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        with patch.context() as job:
            job.setenv(RUN_ID, JOB)
            lengths = Lengths(prompt=40, response=80)
            options = VLLMSampling(startup_seconds=STARTUP_SECONDS)
            backend = options.start_backend(policy("llama", is_tied=True), lengths)
        assert isinstance(backend, Servers)
        [server] = backend._servers
        patch.setenv(SERVER_KEY, server._headers["Authorization"].removeprefix("Bearer "))
        yield server.url
        backend.close()
