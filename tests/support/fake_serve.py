"""A process in the place of vLLM's server, which imports nothing that takes long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from multiprocessing.connection import Connection
from typing import Any

from tests.support.fake_server import FakeServer, serving

# The variable with what the process does.
ACT = "RLHF_LAB_FAKE_ACT"


class ActingServer(FakeServer):
    """One that does what the variable names when weights are loaded."""

    def reply(self, path: str, content: Any) -> Any:
        act = os.environ[ACT]
        if act == "die while it loads" and path == "/update_weights":
            subprocess.Popen(["sleep", "300"])  # the engine
            os.kill(os.getpid(), signal.SIGKILL)
        if act == "load another" and path == "/weight_info":
            return {"weight_version": "7"}
        return super().reply(path, content)


def main() -> None:
    act = os.environ[ACT]
    os.write(2, f"the log of one that is to {act}\n".encode())
    if act == "end at once":
        sys.exit(3)
    if act == "be late":
        signal.pause()
    if act == "refuse":
        Connection(int(sys.argv[1])).send("model.num_heads=3: no kernel")
        sys.exit(2)
    fake = ActingServer(0)
    fake.key = os.environ["RLHF_LAB_SERVER_KEY"]
    if act == "raise":
        fake.refused = "/update_weights"
    with serving(fake, int(sys.argv[sys.argv.index("--port") + 1])):
        signal.pause()


if __name__ == "__main__":
    main()
