"""Section 2: equal weights, bit for bit, however samples are made and a run is cut off."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.gpu.findings import Finding, Setting, info, judged
from benchmarks.gpu.programs import digest, train, train_all, training
from rlhf_lab.runs.folder import METRICS
from rlhf_lab.runs.provenance import usable_cores

UPDATES, MANY = 4, 40
BASE = ("debug=tiny", "model=nano_s", "model@proxy=nano_s", "eval=none", f"run.updates={UPDATES}")
ASYNC = ("mode=async",)
# Runs of the same bits, by the first of each; a new executor or generator is a line here.
SAME: Mapping[str, Mapping[str, Sequence[str]]] = {
    "sync": {"sync": (), "sync again": ()},
    "lagged": {
        "lagged": ("mode=lagged",),
        "async, process": ASYNC,
        "async, thread": (*ASYNC, "mode.executor=thread"),
        "async, two processes": (*ASYNC, "mode.num_generators=2"),
    },
    "partial": {"partial": ("mode=partial",), "partial again": ("mode=partial",)},
}
# Left out of the small form, which is to end in a minute.
ONLY_LARGE = ("async, two processes", "partial", "partial again")
FLAG = "deterministic=true"
RESUME = "output.resume=true"
PATIENCE = 60.0


def measure(setting: Setting) -> Iterator[Finding]:
    folder = Path(setting.scratch, "bits")
    train(folder / "first", (*BASE, FLAG), setting)  # the stages, whose cache the others share
    whole = digests(folder / "flags", [FLAG], setting)
    for name, first, is_same in pairs(whole):
        yield equal(f"{name} = {first}", is_same)
    yield from resumed(folder / "resumed", whole, setting)
    if setting.is_cuda:
        for name, first, is_same in pairs(digests(folder / "none", [], setting)):
            yield info(f"{name} = {first}, without the flag", is_same)


def equal(title: str, is_same: bool) -> Finding:
    return judged(title, is_same, is_same, expected="equal digests")


def digests(folder: Path, flags: Sequence[str], setting: Setting) -> dict[str, str]:
    """Digests of runs that must not differ, which train all at once, by their names."""
    runs = {
        name: (*BASE, *options, *flags)
        for group in SAME.values()
        for name, options in group.items()
        if not (setting.is_small and name in ONLY_LARGE)
    }
    at_once = min(len(runs), usable_cores())
    return {name: digest(path) for name, path in train_all(folder, runs, setting, at_once).items()}


def pairs(found: Mapping[str, str]) -> Iterator[tuple[str, str, bool]]:
    """Each run with the first one of its group of SAME, and whether their digests are equal."""
    for first, group in SAME.items():
        for name in group:
            if name in found and name != first:
                yield name, first, found[name] == found[first]


def resumed(folder: Path, whole: Mapping[str, str], setting: Setting) -> Iterator[Finding]:
    """Compare runs that were paused or ended by SIGTERM, and then resumed, with uninterrupted ones.
    All train in parallel. whole: digests of the uninterrupted runs, by name."""
    cut: dict[str, tuple[str, Sequence[str]]] = {"async": ("async, process", ASYNC)}
    if not setting.is_small:
        cut["sync"] = ("sync", ())
    with ThreadPoolExecutor() as pool:
        jobs = {
            name: pool.submit(paused, folder / name, (*BASE, FLAG, *mode), setting)
            for name, (_, mode) in cut.items()
        }
        by_signal = None if setting.is_small else pool.submit(ended, folder, setting)
        for name, (uncut, _) in cut.items():
            yield equal(f"{name}: paused and resumed = whole", jobs[name].result() == whole[uncut])
        if by_signal is not None:
            yield from by_signal.result()


def paused(folder: Path, options: Sequence[str], setting: Setting) -> str:
    """Train until a pause and resume; the digest of the last weights."""
    train(folder, (*options, "checkpoint.pause_round=2"), setting)
    return digest(train(folder, (*options, RESUME), setting))


def ended(folder: Path, setting: Setting) -> list[Finding]:
    """A run that gets SIGTERM in its middle."""
    options, cut = (*BASE, FLAG, f"run.updates={MANY}"), folder / "many-cut"
    with ThreadPoolExecutor() as pool:
        whole = pool.submit(train, folder / "many-whole", options, setting)
        rounds = stopped(cut, options, setting)
        is_same = digest(train(cut, (*options, RESUME), setting)) == digest(whole.result())
    return [
        equal("sync: ended by SIGTERM and resumed = whole", is_same),
        info("rounds before SIGTERM", rounds, f"of {MANY}"),
    ]


def stopped(folder: Path, options: Sequence[str], setting: Setting) -> int:
    """A run that gets SIGTERM after its first rounds: the rounds that it did."""
    words, quiet = training(folder, options, setting), subprocess.DEVNULL
    child = subprocess.Popen(words, stdout=quiet, stderr=quiet)
    end = time.monotonic() + PATIENCE
    while lines(folder / METRICS) < 2 and child.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    child.send_signal(signal.SIGTERM)
    child.wait(PATIENCE)
    return lines(folder / METRICS)


def lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n") if path.is_file() else 0
