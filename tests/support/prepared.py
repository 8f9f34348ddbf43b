"""A process that has imported what is slow to import; every script runs in a fork of it.

A fork starts from the imported modules, so scripts share nothing that one of them changes.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

WANDB = (
    "wandb", "wandb.apis.reports", "wandb_workspaces.expr", "rlhf_lab_analysis.tables.__main__",
    "rlhf_lab_analysis.sources.online",
)  # fmt: skip
# Of its commands, which are not imported themselves: a test brings its own copy.
OPEN_RL_BENCHMARK = (
    "wandb", "wandb.apis.reports", "wandb_workspaces.expr",
    "expt", "matplotlib.pyplot", "peewee", "seaborn", "tyro", "dotmap",
    "rliable.library", "rliable.metrics", "rliable.plot_utils",
)  # fmt: skip
SERVE = """
import importlib, json, os, sys
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
while line := sys.stdin.readline():
    asked = json.loads(line)
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(asked[name], os.O_WRONLY | os.O_CREAT), number)
    os.chdir(asked["folder"])
    os.environ.update(asked["surroundings"])
    sys.path[:0] = asked["path"]
    sys.argv = ["-c", *asked["arguments"]]
    exec(asked["script"], {"__name__": "__main__"})
    sys.exit()
"""


@functools.cache
def server(modules: tuple[str, ...]) -> subprocess.Popen[str]:
    """The process that has these modules, which ends with this one. matplotlib lists its fonts in a
    folder of its own."""
    own = tempfile.TemporaryDirectory()
    surroundings = {**os.environ, "MPLBACKEND": "agg", "MPLCONFIGDIR": own.name}
    # What dependencies of a benchmark's command warn of is not ours to see.
    command = [sys.executable, "-W", "ignore", "-c", SERVE, json.dumps(modules)]
    opened = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=surroundings
    )

    def close() -> None:
        opened.communicate()
        own.cleanup()

    atexit.register(close)
    return opened


def run(
    script: str,
    *arguments: str,
    modules: tuple[str, ...],
    folder: Path,
    surroundings: Mapping[str, str],
    path: tuple[Path, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """What a process with this script as its `-c` would say, in a folder that is there. modules:
    what it has imported; path: where other modules are looked for first."""
    process = server(modules)
    assert process.stdin is not None and process.stdout is not None
    with tempfile.TemporaryDirectory() as own:
        out, err = Path(own) / "out", Path(own) / "err"
        asked = {
            "script": script, "arguments": arguments, "folder": str(folder), "out": str(out),
            "err": str(err), "surroundings": dict(surroundings), "path": [str(p) for p in path],
        }  # fmt: skip
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        code = int(process.stdout.readline())
        said = [each.read_text(encoding="utf-8") for each in (out, err)]
    return subprocess.CompletedProcess([script, *arguments], code, *said)
