"""Config group `tracker`: mirrors of the JSONL record, which is always written."""

from __future__ import annotations

import netrc
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from rlhf_lab.runs.schema import RolloutSample
    from rlhf_lab.runs.trackers.mirrors import TrackedRun
    from rlhf_lab.types.data import Metrics

# The longest tag that Weights & Biases takes.
TAG_CHARACTERS = 64


class Tracker:
    """A destination of metrics. The JSONL file is the record; the others mirror it."""

    def log(self, metrics: Metrics, step: int) -> None:
        raise NotImplementedError

    def log_samples(self, samples: Sequence[RolloutSample]) -> None:
        """Show samples of a round as texts; a tracker of numbers alone does nothing."""

    def close(self) -> None:
        raise NotImplementedError


class WandbMode(StrEnum):
    """Where Weights & Biases keeps the mirror."""

    off = "off"
    online = "online"
    offline = "offline"


@dataclass(frozen=True)
class TrackerOptions(limits.OptionGroup, key="tracker"):
    """Where metrics go besides the run's own files, and which extra ones are measured."""

    name: str = limits.name("jsonl")
    tensorboard: bool = limits.option(
        False, about="Whether metrics are written for TensorBoard too."
    )
    wandb: WandbMode = limits.option(
        WandbMode.off,
        about=(
            "Whether metrics are sent to Weights & Biases, written for a later `rlhf-lab sync` "
            "(offline), or neither."
        ),
    )
    wandb_project: str = limits.option("rlhf_lab", about="Project in Weights & Biases.")
    wandb_entity: str = limits.option(
        "", about="User or team in Weights & Biases; empty takes the user's default."
    )
    wandb_group: str = limits.option(
        "",
        about=(
            "Group in Weights & Biases; empty takes the sweep, or else the folder above the run's."
        ),
    )
    wandb_tags: list[str] = limits.collection(
        list, about="Tags besides those that every run has (docs/tracking.md)."
    )
    sweep: str = limits.option("", about="Sweep that the run is a job of; the sweep sets it.")
    condition: str = limits.option(
        "", about="Swept keys of the job, KEY=VALUE,...; the sweep sets it."
    )
    probe_groups: int = limits.count(
        1,
        min=0,
        about=(
            "Groups per round on which the three gaps between behaviour policy and policy are "
            "measured, by up to three forward passes; 0 is none."
        ),
    )
    probe_every: int = limits.count(
        0,
        also={0: "for the device's"},
        about=(
            "Rounds from one measurement of the three gaps to the next; 0 is every round on a CPU, "
            "every tenth where the trainer has a GPU."
        ),
    )
    changed_share: bool = limits.option(
        False,
        about=(
            "Whether the share of the policy's weights that a round changed is measured, as "
            "update/changed_share, in the rounds that probe_every names."
        ),
        source="arXiv:2505.11711",
    )
    reference_groups: int = limits.count(
        -1,
        also={-1: "for all"},
        about=(
            "Groups per round whose KL to the reference is measured where the algorithm does not "
            "need it, by one forward pass; -1 is all."
        ),
    )

    samples: int = limits.count(
        2,
        min=0,
        max=10**5,
        about=(
            "Samples of each round that are kept as texts in rollouts.jsonl, with reward, version "
            "and lag; 0 is none."
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for tag in self.wandb_tags:
            if not 1 <= len(tag) <= TAG_CHARACTERS:
                raise UserError(
                    f"tracker.wandb_tags: {tag!r} has {len(tag)} characters: choose 1 to "
                    f"{TAG_CHARACTERS} for each"
                )

    def open(self, run: TrackedRun) -> Tracker | None:
        """The tracker of a plugin's options; these have none. Raises UserError where it cannot be
        opened."""
        return None

    def require_usable(self, key: str) -> None:
        """Refuse Weights & Biases without its package, and without a key for its server."""
        if self.wandb is WandbMode.off:
            return
        if find_spec("wandb") is None:
            raise UserError(
                f"{key}.wandb={self.wandb} needs the package wandb: pip install "
                "'rlhf-lab[wandb]', or choose tracker=jsonl"
            )
        chosen = os.environ.get("WANDB_MODE", "")
        mode = {"dryrun": "offline", "run": "online", "": str(self.wandb)}.get(chosen, chosen)
        if mode != self.wandb:
            own = mode if mode in ("online", "offline") else "off"
            raise UserError(
                f"{key}.wandb={self.wandb} with WANDB_MODE={chosen} in the environment: pass "
                f"{key}.wandb={own}, or unset WANDB_MODE"
            )
        if self.wandb is WandbMode.online and not has_wandb_key():
            raise UserError(
                f"{key}.wandb=online: there is no key for the server: run `wandb login`, set "
                f"WANDB_API_KEY, or pass {key}.wandb=offline"
            )


def wandb_server() -> str:
    """The address of the server of Weights & Biases."""
    return os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"


def has_wandb_key() -> bool:
    """Whether wandb finds credentials in the environment or in the user's netrc."""
    if any(os.environ.get(name) for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE")):
        return True
    host = urlsplit(wandb_server()).hostname or ""
    own = os.environ.get("NETRC")
    paths = [Path(own)] if own else [Path.home() / name for name in (".netrc", "_netrc")]
    try:
        return any(netrc.netrc(path).authenticators(host) for path in paths if path.is_file())
    except netrc.NetrcParseError:
        return True  # wandb reads it in its own way
