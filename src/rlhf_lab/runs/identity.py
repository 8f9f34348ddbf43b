"""What makes two runs the same: their settings.

A manifest lists the keys that differ from their defaults (`changed`), so that a setting which one
of two runs does not have, since it is an option of another version, counts only where it was
changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlhf_lab.runs.folder import CONFIG
from rlhf_lab.runs.reading import read_yaml
from rlhf_lab.runs.renames import present_config, present_key

# Where a run writes and reports, and how it is judged; plugins act by their parts.
ASIDE = ("output", "data", "tracker", "checkpoint", "eval", "plugins", "part")
# Where servers are, and how long a run waits for them: other values where a job resumes elsewhere.
ADDRESSES = tuple(
    f"generator.{name}"
    for name in ("urls", "host", "port", "nccl_host", "nccl_port", "connect_seconds")
)
# A run may be resumed by another engine, on other devices.
NOT_RESUMED = (*ASIDE, *ADDRESSES, "engine")
# The rule by which hashes of settings are taken: those of another rule are not compared.
RULE = "2:"
UNSET = "unset"
SHOWN = 5


def hash_of(values: Any) -> str:
    """16 hex digits of SHA-256 over plain values, whatever the order of the keys."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by dotted keys. Lists and empty mappings are values."""
    return dict(pairs_of(values, prefix))


def pairs_of(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from pairs_of(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def is_below(key: str, nodes: Collection[str]) -> bool:
    """Whether a key is one of these, or stands below one of them."""
    return any(key == node or key.startswith(f"{node}.") for node in nodes)


@dataclass(frozen=True)
class Settings:
    """The settings of a run by dotted key. changed: the keys whose values differ from their
    defaults; None for a run that did not record them."""

    values: Mapping[str, Any]
    changed: Collection[str] | None

    def differences(self, other: Settings, aside: Collection[str]) -> dict[str, tuple[Any, Any]]:
        """The keys, not below `aside`, in which two runs differ, with both values. A setting that
        one of them does not have differs if the other one changed it."""
        found = {}
        for key in dict.fromkeys([*self.values, *other.values]):
            before, after = (one.values.get(key, UNSET) for one in (self, other))
            if before != after and not is_below(key, aside):
                holder = self if key in self.values else other
                is_shared = key in self.values and key in other.values
                if is_shared or holder.changed is None or key in holder.changed:
                    found[key] = before, after
        return found


def recorded_settings(folder: Path, manifest: Mapping[str, Any]) -> Settings:
    """The settings that a run recorded, by their present names. Raises Unreadable."""
    values = flat(present_config(read_yaml(folder / CONFIG)))
    changed = manifest.get("changed")
    return Settings(values, None if changed is None else {present_key(key) for key in changed})


def listed(differences: Mapping[str, tuple[Any, Any]]) -> str:
    """Differences as a message lists them: the recorded value first."""
    texts = [f"{key}={before} (here {after})" for key, (before, after) in differences.items()]
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return ", ".join(texts[:SHOWN]) + more
