"""A vLLM server: python -m rlhf_lab.rollout.generators.vllm.serve <fd> arguments.

It ends with the run that has the other end of the pipe fd; - is for a server of no run.
"""

from __future__ import annotations

import runpy
import sys

from rlhf_lab.rollout.generators.vllm.process import end_session, require_head_size
from rlhf_lab.runs.child import when_ended

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
        when_ended(int(sys.argv[1]), end_session)
        serve(sys.argv[2:])
