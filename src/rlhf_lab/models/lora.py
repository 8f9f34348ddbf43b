"""Which weights a run trains: all of them, or low-rank adapters beside them (arXiv:2106.09685)."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field

from rlhf_lab.types.errors import UserError

ALL_LINEAR = "all-linear"


@dataclass(frozen=True)
class Lora:
    """Adapters of rank `rank` (0: none): W + alpha / rank * B A, for the named linear modules.

    targets: last parts of module names, or all-linear for all but the head. There is no dropout: it
    would make the ratio of a fresh sample differ from one (arXiv:2403.17031, detail 7).
    """

    rank: int = 0
    alpha: float = 16.0
    targets: Sequence[str] = field(default_factory=lambda: [ALL_LINEAR])

    def __post_init__(self) -> None:
        if not self.targets:
            raise UserError(
                f"model.lora_targets=[] names no module: choose names such as [q_proj,v_proj], or "
                f"[{ALL_LINEAR}]"
            )
        if ALL_LINEAR in self.targets and len(self.targets) > 1:
            raise UserError(
                f"model.lora_targets={list(self.targets)}: {ALL_LINEAR} stands alone, or leave it "
                "out and name the modules"
            )


def require_peft(user: str, instead: str = "") -> None:
    """Raises UserError, with the line that installs it, where peft is absent. user: what needs it.
    instead: an option that does not."""
    if importlib.util.find_spec("peft") is None:
        other = f", or pass {instead}" if instead else ""
        raise UserError(
            f"{user} needs the package peft, which is not installed: run "
            f"pip install 'rlhf-lab[lora]'{other}"
        )
