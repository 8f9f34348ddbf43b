"""What the system knows of processes, by their numbers: when one started, which it started, and an
end together with its parent. From /proc on Linux, elsewhere (macOS) from `ps`.

This module imports the standard library only, as runs/child.py does.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 1.0


def birth(pid: int) -> str | None:
    """When a process started: the kernel's ticks on Linux, elsewhere a date in UTC, to the second.
    None if it has ended.

    A pid alone may have passed to another process since.
    """
    if sys.platform != "linux":
        state, _, born = ps("-o", "stat=", "-o", "lstart=", "-p", str(pid)).strip().partition(" ")
        return None if state.startswith("Z") else born.strip() or None
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command's name, in parentheses, may itself hold spaces and parentheses.
    after_name = text.rpartition(")")[2].split()
    return None if after_name[0] in ("Z", "X") else after_name[19]


def children(pid: int) -> list[int]:
    """The processes that all threads of a process have started, and that exist."""
    if sys.platform != "linux":
        listed = ps("-A", "-o", "ppid=", "-o", "pid=", "-o", "comm=").splitlines()
        rows = (line.split(maxsplit=2) for line in listed)
        found = [(int(row[1]), row[2:]) for row in rows if int(row[0]) == pid]
        return [child for child, name in found if Path(*name).name != "ps"]
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the process or the thread has ended
            found.extend(map(int, path.read_text().split()))
    return found


def ps(*words: str) -> str:
    """The output of `ps`; dates do not depend on the user's language and time zone."""
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    done = subprocess.run(("ps", *words), capture_output=True, text=True, env=environment)
    return done.stdout


def die_with(parent: int) -> None:
    """End this process when its parent ends, even in the middle of a call that never returns.

    On Linux the kernel does it. Elsewhere a thread looks each second, which a call into C that
    keeps the interpreter's lock delays.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before this call
            os._exit(1)
        return

    def wait_and_end() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=wait_and_end, daemon=True).start()
