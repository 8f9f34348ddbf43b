"""What a section found: a number or a word, what was expected, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Value = float | int | str | bool


class Refused(ValueError):
    """The check cannot be started: what is wrong, and the remedy."""


class Verdict(StrEnum):
    """PASS and FAIL are of conditions; INFO is a number that has none."""

    passed = "PASS"
    failed = "FAIL"
    info = "INFO"


@dataclass(frozen=True)
class Finding:
    """One measurement. expected: as text, with its unit; on a GPU of the kind that it names."""

    name: str
    measured: Value
    unit: str = ""
    expected: str = ""
    verdict: Verdict = Verdict.info

    @property
    def text(self) -> str:
        """The measured value with its unit."""
        value = self.measured
        number = f"{value:.4g}" if isinstance(value, float) else str(value)
        return f"{number} {self.unit}".rstrip()


# A number that has no condition.
info = Finding


def judged(name: str, measured: Value, holds: bool, unit: str = "", expected: str = "") -> Finding:
    """A condition, which holds or not."""
    verdict = Verdict.passed if holds else Verdict.failed
    return Finding(name, measured, unit, expected, verdict)


@dataclass(frozen=True)
class Setting:
    """Where a section measures. is_small: nano models, so that it ends in seconds on a CPU.
    scratch: a folder for runs, the same for all sections."""

    device: str
    is_small: bool
    scratch: str

    @property
    def is_cuda(self) -> bool:
        return self.device == "cuda"

    def reached(self, name: str, ratio: float, least: float, expected: str) -> Finding:
        """A ratio that is a condition of full sizes on a GPU, and a number elsewhere."""
        if self.is_cuda and not self.is_small:
            return judged(name, ratio, ratio >= least, "times", expected)
        return info(name, ratio, "times", expected)
