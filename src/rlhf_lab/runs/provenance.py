"""Where a run comes from: package versions, the commit of the code, the host, the process."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import pwd
import resource
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from rlhf_lab.runs import kernels
from rlhf_lab.runs.memory import resident_bytes
from rlhf_lab.runs.processes import birth

PACKAGES = (
    "rlhf-lab",
    "torch",
    "transformers",
    "tokenizers",
    "peft",
    "numpy",
    "hydra-core",
    "omegaconf",
)
CGROUPS = Path("/sys/fs/cgroup")
# How threads of OpenMP wait for each other.
WAITING = ("GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_WAIT_POLICY")


def provenance(plugins: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The facts of a manifest under the keys `versions`, `code`, `git`, `host` and `process`.

    plugins: facts of the run's parts from elsewhere.
    """
    return {
        "versions": versions(),
        "code": with_plugins(code_version(), plugins),
        "git": commit(),
        "host": host(),
        "process": process(),
    }


def code_version(package: Path = Path(__file__).parents[1]) -> str:
    """16 hex digits of SHA-256 over the package's sources and the versions of `versions`: equal
    where equal settings give equal runs on one machine, committed or not."""
    digest = hashlib.sha256(repr(sorted(versions().items())).encode())
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def with_plugins(code: str, plugins: Sequence[Mapping[str, Any]]) -> str:
    """The code version of a run that has parts of plugins; the package's own without any."""
    if not plugins:
        return code
    sources = sorted((facts["module"], facts["sha256"]) for facts in plugins)
    return hashlib.sha256(repr([code, *sources]).encode()).hexdigest()[:16]


def versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that decide results; None if not installed."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def commit(source: Path = Path(__file__)) -> dict[str, Any] | None:
    """Commit and whether anything differs from it; None unless git tracks `source`."""
    # A copy in the site-packages of another repository has no part in that repository's commit.
    if git(source.parent, "ls-files", "--error-unmatch", source.name) is None:
        return None
    head = git(source.parent, "rev-parse", "HEAD")
    changes = git(source.parent, "status", "--porcelain")
    return {"commit": head, "is_dirty": bool(changes)}


def short_commit(manifest: Mapping[str, Any]) -> str:
    """The commit that a run's manifest names, in 8 digits; '' if it names none."""
    known = manifest.get("git")
    return str(known["commit"])[:8] if known else ""


def git(folder: Path, *arguments: str) -> str | None:
    """The output of git, or None if it is not installed or fails."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def host() -> dict[str, Any]:
    """The machine and the user on it: usable cores, bytes of memory, processor and its kernels, how
    threads wait for each other, platform."""
    return {
        "name": socket.gethostname(),
        "user": user_name(os.getuid()),
        "platform": platform.platform(),
        "cpu": kernels.processor(),
        "kernels": kernels.facts(),
        "waiting": {name: os.environ[name] for name in WAITING if name in os.environ},
        "cores": usable_cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def user_name(uid: int) -> str:
    """The name of a user; the number where the system has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def usable_cores() -> int:
    """Cores that this process may use: those of its CPU affinity, or fewer where the CPU quota of
    its cgroup is smaller. At least one."""
    pinned = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, int(min(pinned, granted_cores())))


def granted_cores(groups: Path = Path("/proc/self/cgroup"), root: Path = CGROUPS) -> float:
    """The smallest CPU quota, in cores, of this process's cgroup and its parents; infinite without
    a quota or without cgroups.

    groups: the file that lists the process's cgroups. root: where cgroups are mounted.
    """
    least = math.inf
    for line in read_lines(groups):
        _, controllers, own = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / controllers
        # In a container the path may be the host's, and the container's own files are in `top`.
        inside = top / own.strip("/")
        for folder in (inside, *inside.parents):
            if folder.is_relative_to(top):
                least = min(least, granted_by(folder))
    return least


def granted_by(folder: Path) -> float:
    """The CPU quota of one cgroup, in cores, from its files of version 2 or 1."""
    given = " ".join(read_lines(folder / "cpu.max")) or " ".join(
        line for name in ("quota", "period") for line in read_lines(folder / f"cpu.cfs_{name}_us")
    )
    match given.split():
        case [quota, period] if quota not in ("max", "-1"):
            return int(quota) / int(period)
    return math.inf


def read_lines(path: Path) -> list[str]:
    """The lines of a file, none if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def process() -> dict[str, Any]:
    """This process, for `is_alive` later; `job` is Slurm's number, which stays the same when a job
    is requeued."""
    pid = os.getpid()
    job = os.environ.get("SLURM_JOB_ID")
    return {"pid": pid, "born": birth(pid), "boot": boot(), "job": job}


def boot(path: Path = Path("/proc/sys/kernel/random/boot_id")) -> str | None:
    """The identifier of this machine's last boot; None where the system has none."""
    if sys.platform == "darwin":
        return kernels.sysctl("kern.bootsessionuuid") or None
    return path.read_text(encoding="utf-8").strip() if path.is_file() else None


def is_this_host(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest was written on this machine: one of this name or, since the name of a Mac
    changes with its network, of the present boot of this Mac."""
    host, begun = manifest.get("host") or {}, manifest.get("process") or {}
    if host.get("name") == socket.gethostname():
        return True
    return sys.platform == "darwin" and begun.get("boot", "") == boot()


def is_alive(manifest: Mapping[str, Any]) -> bool:
    """Whether the process of a manifest still runs. One on another host counts as running, unless
    it belonged to this very job: a job that runs here has ended there.

    The name of a Mac changes with its network: the identifier of the boot takes its place.
    """
    is_of_mac = sys.platform == "darwin" and manifest["host"]["platform"].startswith("macOS")
    if manifest["host"]["name"] != socket.gethostname() and not is_of_mac:
        job = manifest["process"].get("job")
        return job is None or job != os.environ.get("SLURM_JOB_ID")
    now = boot()
    if manifest["process"].get("boot", now) != now:
        return False
    pid: int = manifest["process"]["pid"]
    born: str | None = manifest["process"]["born"]
    if born is not None:
        return birth(pid) == born
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def peak_memory_bytes() -> dict[str, int]:
    """Largest resident size so far, of this process and of the largest child that has ended."""
    return {
        name: resident_bytes(who)
        for name, who in (("self", resource.RUSAGE_SELF), ("child", resource.RUSAGE_CHILDREN))
    }
