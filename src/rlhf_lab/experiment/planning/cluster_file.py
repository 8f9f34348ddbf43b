"""The options of a virtual cluster as a file of config group `cluster`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rlhf_lab.rollout.cluster.options import ClusterOptions


def cluster_yaml(options: ClusterOptions, comments: Sequence[str]) -> str:
    """A file for conf/cluster of a project, chosen by its name. comments: its first lines, the
    first of which lists of options show."""
    values = asdict(options)
    lines = [f"{name}: {getattr(value, 'value', value)}" for name, value in values.items()]
    head = [*(f"# {comment}" for comment in comments), "defaults:"]
    return "\n".join([*head, "  - schema/cluster@_here_", "  - _self_", *lines, ""])
