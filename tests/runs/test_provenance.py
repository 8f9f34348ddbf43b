"""What a process may use of its machine, and how its threads wait for each other."""

from __future__ import annotations

import ast
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlhf_lab.runs import provenance
from rlhf_lab.runs.provenance import WAITING, granted_cores, usable_cores


def grants(folder: Path, groups: str, files: dict[str, str]) -> float:
    for name, text in files.items():
        path = folder / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "groups").write_text(groups)
    return granted_cores(folder / "groups", folder / "root")


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/", {}, math.inf),
        ("0::/", {"cpu.max": "max 100000\n"}, math.inf),
        ("0::/", {"cpu.max": "150000 100000\n"}, 1.5),
        # The tightest of a group and those above it.
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "200000 100000"}, 2),
        ("0::/a/b", {"a/b/cpu.max": "100000 50000", "a/cpu.max": "400000 100000"}, 2),
        # A container sees its own files at the top, and the host's path.
        ("0::/kubepods/pod1", {"cpu.max": "300000 100000"}, 3),
        (
            "4:memory:/x\n2:cpu,cpuacct:/job\n0::/",
            {
                "cpu,cpuacct/job/cpu.cfs_quota_us": "400000\n",
                "cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
                "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
                "memory/x/cpu.max": "100000 100000",
            },
            4,
        ),
    ],
)
def test_a_control_group_grants_what_it_and_those_above_it_allow(
    tmp_path: Path, groups: str, files: dict[str, str], expected: float
) -> None:
    assert grants(tmp_path, groups, files) == expected


def test_without_control_groups_nothing_is_limited(tmp_path: Path) -> None:
    assert granted_cores(tmp_path / "none", tmp_path) == math.inf


@pytest.mark.parametrize(("granted", "expected"), [(0.5, 1), (1.9, 1), (math.inf, None)])
def test_usable_cores_are_whole_and_at_least_one(
    monkeypatch: pytest.MonkeyPatch, granted: float, expected: int | None
) -> None:
    monkeypatch.setattr(provenance, "granted_cores", lambda: granted)
    pinned = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert usable_cores() == (expected or pinned)


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("given", [{}, {"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "active"}])
def test_threads_wait_as_the_user_says_who_says_it(given: dict[str, str]) -> None:
    """Set before torch is loaded."""
    program = "import os, sys, rlhf_lab; print((dict(os.environ), 'torch' in sys.modules))"
    environment = {name: text for name, text in os.environ.items() if name not in WAITING} | given
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    found, has_torch = ast.literal_eval(done.stdout)
    assert not has_torch
    ours = {"GOMP_SPINCOUNT", "KMP_BLOCKTIME"}
    expected = given.keys() | (set() if "OMP_WAIT_POLICY" in given else ours)
    assert {name for name in WAITING if name in found} == expected
    assert given.items() <= found.items()


def test_how_threads_wait_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    monkeypatch.setenv("KMP_BLOCKTIME", "0")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert provenance.host()["waiting"] == {"GOMP_SPINCOUNT": "7", "KMP_BLOCKTIME": "0"}
