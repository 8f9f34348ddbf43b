"""The sections by number and name, with their time limits in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.gpu.findings import Refused

# Of each section, in its small form, on machines that do other things too.
ON_CPU = 900


@dataclass(frozen=True)
class Section:
    """on_gpu: seconds after which it is ended. Its module has `measure`."""

    number: int
    name: str
    on_gpu: int
    about: str

    def limit(self, device: str) -> int:
        return self.on_gpu if device == "cuda" else ON_CPU


SECTIONS = (
    Section(0, "machine", 40, "ceilings: matrix products, copies, launches, digests"),
    Section(1, "parity", 90, "log-probs, values and gradients: every path against a CPU"),
    Section(2, "bits", 300, "equal weights of sync, lagged, async, partial and resumed runs"),
    Section(3, "generation", 130, "tokens a second of every decode loop"),
    Section(4, "update", 300, "seconds, share of the peak and memory of an update"),
    Section(5, "weights", 60, "seconds of a version of the weights on its way"),
    Section(6, "overlap", 480, "asynchronous against synchronous runs on one device"),
    Section(7, "tenants", 40, "memory that stages leave, and the message where it runs out"),
    Section(8, "learning", 480, "gold win-rate before and after, over seeds"),
    Section(9, "system", 400, "start methods of processes, Ctrl-C at a sweep, threads that wait"),
)
NAMES = ", ".join(f"{one.number} {one.name}" for one in SECTIONS)


def chosen(text: str) -> list[Section]:
    """The sections of `0,1,bits`; all for "". Raises Refused."""
    known = {key: one for one in SECTIONS for key in (str(one.number), one.name)}
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in known:
            raise Refused(f"SECTIONS={text}: {word} is none; choose of {NAMES}")
    return list(dict.fromkeys(known[word] for word in words)) or list(SECTIONS)
