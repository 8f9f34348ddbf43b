"""Which CPU kernels compute a run, since equal settings and seeds give equal bits only with equal
kernels.

PyTorch and its libraries choose kernels by the processor: sums are taken in another order with
other instructions, and after some updates two runs have parted.
`python -m tests.support.operation_digests FILE` lists the operations that differ.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from rlhf_lab.types.errors import UserError

# Read once, when torch and its libraries are loaded. MKL's compatible code is the same on every
# x86 processor, of Intel or not; for the rest AVX2, which all of them have had since 2015.
PORTABLE = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
# Instruction sets for which PyTorch, MKL or oneDNN have code of their own.
FLAGS = re.compile(r"avx.*|amx.*|fma|f16c|sse4_2|asimd.*|sve.*")
VERSION = re.compile(r"(?:Version |MKL-DNN v)(\d+(?:\.\d+)*)")


class Kernels(StrEnum):
    """Config key `kernels`: the fastest ones that the processor has, or those that give the
    same bits on every processor (x86 with AVX2, CPU only)."""

    native = "native"
    portable = "portable"


class RestartNeeded(BaseException):
    """The process must start again with these environment variables, which libraries read only when
    they are loaded."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        super().__init__(" ".join(f"{name}={value}" for name, value in variables.items()))
        self.variables = dict(variables)


def require(kernels: Kernels, world_size: int) -> None:
    """Require that this process computes with these kernels.

    Raises RestartNeeded if another environment is needed, and UserError where that is impossible.
    """
    if kernels is Kernels.native:
        return
    if "avx2" not in flags():
        raise UserError(
            "kernels=portable needs an x86 processor with AVX2, which this machine has not: pass "
            "kernels=native"
        )
    if any(os.environ.get(name) != value for name, value in PORTABLE.items()):
        needed = RestartNeeded(PORTABLE)
        if world_size == 1:
            raise needed
        raise UserError(
            f"kernels=portable with {world_size} processes: set {needed} in the environment of "
            "torchrun, or pass kernels=native"
        )


def facts() -> dict[str, Any]:
    """What decides the bits that this process computes on the CPU, for a run's manifest."""
    import torch  # here, so that commands that only read runs start without it

    return {
        "capability": torch.backends.cpu.get_cpu_capability(),
        "libraries": [*dict.fromkeys(VERSION.findall(torch.__config__.show()))],
        "flags": sorted(flags()),
        # Kernels of Accelerate, whose choice Apple does not show.
        **({"processor": processor()} if sys.platform == "darwin" else {}),
        "environment": {name: os.environ[name] for name in PORTABLE if name in os.environ},
    }


def label(facts: Mapping[str, Any]) -> str:
    """Kernels in a few words, "" where they are unknown: runs of one seed can have equal bits only
    where these are equal."""
    if not facts:
        return ""
    libraries = ", ".join(map(str, facts.get("libraries", ())))
    environment = facts.get("environment") or {}
    if environment == PORTABLE:
        return f"portable ({libraries})"
    limits = "".join(f" {name}={value}" for name, value in environment.items())
    matrices = " AMX" if any("amx" in flag for flag in facts.get("flags", ())) else ""
    names = " ".join(str(facts[key]) for key in ("capability", "processor") if key in facts) or "?"
    return f"{names}{matrices}{limits} ({libraries})"


def flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> set[str]:
    """The processor's instruction sets for which there are kernels; none where /proc is missing."""
    if not cpuinfo.is_file():
        return set()
    for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, values = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return {flag for flag in values.split() if FLAGS.fullmatch(flag)}
    return set()


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The name of the processor's model; of its architecture where the system shows no other."""
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    brand = sysctl("machdep.cpu.brand_string") if sys.platform == "darwin" else ""
    return brand or platform.processor() or platform.machine()


def sysctl(name: str) -> str:
    """A text of macOS's kernel; empty where it has none of this name."""
    value = ctypes.create_string_buffer(256)
    size = ctypes.c_size_t(len(value))
    code = ctypes.CDLL(None).sysctlbyname(name.encode(), value, ctypes.byref(size), None, 0)
    return value.value.decode(errors="replace") if code == 0 else ""
