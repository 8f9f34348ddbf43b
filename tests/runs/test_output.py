"""Standard output that is lost ends no process, and is noted."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

PROGRAM = """
import json, logging, os, sys, warnings
from rlhf_lab.runs.output import lost, protect_output
protect_output()
for place in range(300):
    print("x" * 1000)
    warnings.warn(f"at {place}")
    logging.warning("at %s", place)
    os.write(2, b"native")
import subprocess
subprocess.run([sys.executable, "-c", "print(1)"], check=True)
json.dump(lost(), open(sys.argv[1], "w"))
"""
FULL, BROKEN, GONE = "No space left on device", "Broken pipe", "Input/output error"


@contextmanager
def lossy(kind: str) -> Iterator[int]:
    """A descriptor that cannot be written to."""
    if kind == "full disk":
        descriptor = os.open("/dev/full", os.O_WRONLY)
    elif kind == "ended reader":
        reading, descriptor = os.pipe()
        os.close(reading)
    else:
        terminal, descriptor = pty.openpty()
        os.close(terminal)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize(
    ("kind", "reason"), [("full disk", FULL), ("ended reader", BROKEN), ("closed terminal", GONE)]
)
def test_a_process_whose_output_is_lost_comes_to_its_end(
    tmp_path: os.PathLike[str], kind: str, reason: str
) -> None:
    note = os.path.join(tmp_path, "note")
    with lossy(kind) as descriptor:
        words = [sys.executable, "-c", PROGRAM, note]
        code = subprocess.run(words, stdout=descriptor, stderr=descriptor, timeout=300).returncode
    assert code == 0
    with open(note) as text:
        assert json.load(text) == {"stdout": reason, "stderr": reason}


@pytest.mark.parametrize("numbers", [(1,), (2,), (0, 1, 2)])
def test_streams_that_were_never_open_are_silent(
    tmp_path: os.PathLike[str], numbers: tuple[int, ...]
) -> None:
    note = os.path.join(tmp_path, "note")
    closed = " ".join(f"{number}>&-" for number in numbers)
    words = ["bash", "-c", f'exec "$0" "$@" {closed}', sys.executable, "-c", PROGRAM, note]
    run = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0
    with open(note) as text:
        assert len(json.load(text)) == len({1, 2} & set(numbers))
    assert len(run.stdout) == (0 if 1 in numbers else 300 * 1001 + 2)
