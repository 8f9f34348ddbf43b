"""A process in the place of vLLM's, which imports nothing that takes long."""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.connection import Connection


def main() -> None:
    """A child that does what the first message's `act` says."""
    connection = Connection(int(sys.argv[1]))
    act = connection.recv()["act"]
    os.write(2, f"the log of one that is to {act}\n".encode())
    if act == "end at once":
        sys.exit(3)
    if act == "be late":
        signal.pause()
    if act == "refuse":
        connection.send(("refused", "model.num_heads=3: no kernel"))
        return
    connection.send(("done", None))
    kind, content = connection.recv()
    if act == "die while it loads" and kind == "load":
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "load another":
        connection.send(("done", "7"))
    if act == "raise":
        connection.send(("failed", f"Traceback: {kind} {content}"))
    connection.recv()


if __name__ == "__main__":
    main()
