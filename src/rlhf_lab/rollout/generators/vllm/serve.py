"""A vLLM server: python -m rlhf_lab.rollout.generators.vllm.serve <fd> arguments.

It ends with the run that has the other end of the pipe fd, through which it sends why it refuses to
start; - is for a server of no run.
"""

from __future__ import annotations

import runpy
import sys
from multiprocessing.connection import Connection

from rlhf_lab.rollout.generators.vllm.process import end_session, require_head_size
from rlhf_lab.runs.child import when_ended
from rlhf_lab.types.errors import UserError

ALONE = "-"
SERVER = "vllm.entrypoints.openai.api_server"


def serve(arguments: list[str]) -> None:
    """Run the server, if vLLM supports the head size of its model."""
    sys.argv = [SERVER, *arguments]
    require_head_size(sys.argv[sys.argv.index("--model") + 1])
    runpy.run_module(SERVER, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if sys.argv[1] == ALONE:
        serve(sys.argv[2:])
    else:
        connection = Connection(int(sys.argv[1]))
        when_ended(connection, end_session)
        try:
            serve(sys.argv[2:])
        except UserError as error:
            connection.send(str(error))
            sys.exit(2)
