"""Sweeps whose jobs use several devices and nodes: hydra.sweeper.layout=2x8:8+8 on Slurm."""

from __future__ import annotations

from collections.abc import Sequence

from omegaconf import DictConfig, open_dict, read_write

from rlhf_lab.experiment.layout import Layout, parsed
from rlhf_lab.sweeps.launchers.slurm_ready import TARGET
from rlhf_lab.sweeps.launchers.slurm_script import JOB_PORTS, slurm_script
from rlhf_lab.sweeps.launchers.torchrun import Wishes
from rlhf_lab.types.errors import UserError


def layout_of(text: str, launcher: DictConfig) -> Layout | None:
    """The layout of a sweep's jobs, if it has one; sets nodes and devices of the launcher.

    Raises UserError for a launcher without nodes.
    """
    if not text:
        return None
    layout = parsed(text)
    if launcher._target_ != TARGET:
        raise UserError(
            f"hydra.sweeper.layout={text}: only Slurm gives jobs several nodes; pass "
            "launcher=slurm, or leave the layout out"
        )
    with read_write(launcher), open_dict(launcher):
        launcher.nodes = layout.nodes
        if launcher.gpus_per_node:
            launcher.gpus_per_node = layout.devices
        launcher.additional_parameters = {"exclusive": True, **launcher.additional_parameters}
    return layout


def overrides_of(layout: Layout | None) -> list[str]:
    """The overrides of every job of a layout."""
    return ["generator=vllm_server"] if layout and layout.generators else []


def script_of(layout: Layout | None, words: Sequence[str], launcher: DictConfig) -> str:
    """The bash script that replaces the command `rlhf-lab WORDS`; empty without a layout."""
    if layout is None:
        return ""
    own = [word for word in words[1:] if word not in overrides_of(layout)]
    return slurm_script(layout, JOB_PORTS, own, Wishes(is_cpu=not launcher.gpus_per_node))
