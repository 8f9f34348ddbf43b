"""Section 5: seconds of a version of the weights on its way from the trainer to a generator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from statistics import median
from typing import Any

import torch

from benchmarks.gpu.findings import Finding, Setting, info, judged
from benchmarks.speed.clock import seconds_of
from benchmarks.speed.random_rounds import SIZED, TINY, engine_of, make
from rlhf_lab.models.weights import load_weights
from rlhf_lab.rollout.shared import SharedWeights
from rlhf_lab.training.engines.options import SingleEngineOptions, Versions
from rlhf_lab.types.data import Weights

TRIALS = 2
EXPECTED = {
    "pythia_410m": {"out of the engine": "0.6", "write": "1.5", "read": "1.5", "load": "0.3"},
    "pythia_1b": {"out of the engine": "1.5", "write": "3.7", "read": "3.7", "load": "0.8"},
}


class Way:
    """A model in an engine and in a generator, and the memory between them: of processes for
    versions in host memory, none for those on the device, which a thread loads."""

    def __init__(self, name: str, device: str, versions: Versions) -> None:
        config = (TINY | SIZED)[name]()
        options = SingleEngineOptions(device=device, versions=versions)
        self.versions = versions
        self.copy: Any = make(config, device)
        self.engine = engine_of(make(config, device), options)
        self.weights = self.engine.weights(0)
        self.shared = SharedWeights(self.weights.state, 2)

    def out(self) -> None:
        self.weights = self.engine.weights(self.weights.version + 1)

    def write(self) -> None:
        self.shared.write(self.weights)

    def read(self) -> None:
        self.weights = self.shared.read(self.weights.version)

    def load(self) -> None:
        load_weights(self.copy, Weights(0, self.weights.state))

    # A new way of the weights is a line here.
    def steps(self) -> dict[str, Callable[[], None]]:
        between = {"write": self.write, "read": self.read}
        return {
            "out of the engine": self.out,
            **(between if self.versions is Versions.host else {}),
            "load": self.load,
        }


def measure(setting: Setting) -> Iterator[Finding]:
    names = ["GPTNeoX"] if setting.is_small else list(EXPECTED)
    for name, versions in product(names, Versions):
        way, total = Way(name, setting.device, versions), 0.0
        title = name if versions is Versions.host else f"{name}, versions on the device"
        for label, step in way.steps().items():
            seconds = median(seconds_of(step, TRIALS, setting.device))
            total += seconds
            yield info(f"{title}: {label}", seconds, "s", EXPECTED.get(title, {}).get(label, ""))
        yield info(f"{title}: all of it", total, "s", "at most 0.02 on the device, of 1B")
        arrived = all(
            torch.equal(parameter.detach().cpu(), way.weights.state[key].cpu())
            for key, parameter in way.copy.named_parameters()
        )
        yield judged(f"{title}: the generator has the trainer's bits", arrived, arrived)
    if setting.is_cuda:
        yield transfer()


def transfer() -> Finding:
    """16 GB through pinned memory: what a host path could reach at 8B."""
    there = torch.empty(2**34, dtype=torch.uint8, device="cuda")
    here = torch.empty(2**30, dtype=torch.uint8, pin_memory=True)

    def back_and_forth() -> None:
        for part in there.view(-1, len(here)):
            here.copy_(part, non_blocking=True)
            part.copy_(here, non_blocking=True)

    seconds = median(seconds_of(back_and_forth, 1, "cuda"))
    return info("16 GiB to the host and back, pinned", seconds, "s", "0.6-1.2")
