"""`rlhf-lab export`: a version of a run as a folder that transformers loads, with its card."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.derived import generation_settings
from rlhf_lab.experiment.model_card import write_card
from rlhf_lab.experiment.prepare import Artifacts
from rlhf_lab.experiment.publish import Target, publish
from rlhf_lab.experiment.run_products import products_of
from rlhf_lab.models.adapters import merged_version
from rlhf_lab.models.causal_lm import load_policy, save_policy
from rlhf_lab.models.folders import CONFIG
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.models.weights import load_weights
from rlhf_lab.runs.disk import follow_umask
from rlhf_lab.runs.folder import POLICY
from rlhf_lab.runs.saved_tensors import ADAPTER_WEIGHTS, read_version, saved_versions
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError


def export(
    config: Config,
    run: Path,
    folder: Path | None,
    version: int | None,
    console: Console,
    may_make: bool = False,
) -> Path:
    """Write weights, tokenizer and card of a version, whole or not at all. Returns the folder.

    folder: None for one in the run's own. version: None for the newest. may_make: whether the start
    of a run that has no policy yet is made, if it is not found.
    """
    version, weights = chosen_version(config, run, version)
    folder = folder or run / f"export-{version:06d}"
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already: name another, or move it away")
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".exporting-", dir=folder.parent))
    try:
        stages = Artifacts(config, console, of_run=products_of(run, may_make))
        with console.phase(f"exporting version {version}"):
            fill(config, run, weights, version, draft, stages)
        follow_umask(draft)
        if folder.exists():
            folder.rmdir()
        os.rename(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    console.print(f"exported version {version} of {run} to {folder}")
    return folder


def push(
    config: Config,
    run: Path,
    folder: Path | None,
    version: int | None,
    target: Target,
    console: Console,
    may_make: bool = False,
) -> None:
    """Export a version and upload it. folder: None for one that is deleted afterwards."""
    target.require_ready()
    with tempfile.TemporaryDirectory(prefix="rlhf-lab-push-") as draft:
        exported = export(config, run, folder or Path(draft) / POLICY, version, console, may_make)
        publish(exported, target, f"policy of rlhf_lab run {run.resolve().name}", console)


def chosen_version(config: Config, run: Path, version: int | None) -> tuple[int, Path | None]:
    """A version that a run holds, and the file of its weights; None for a final policy that is a
    whole model. version: None for the newest."""
    saved = versions(config, run)
    missing = "weights" if version is None else f"version={version}"
    version = max(saved, default=-1) if version is None else version
    if version not in saved:
        raise UserError(
            f"{run} holds no {missing}, its versions are {sorted(saved)}: choose one of them; "
            "eval.snapshots sets how many a run keeps, and one that has finished has its last"
        )
    return version, saved[version]


def versions(config: Config, run: Path) -> dict[int, Path | None]:
    """The versions that a run holds and the files of their weights; None for a final policy that is
    a whole model."""
    final: dict[int, Path | None] = {}
    if is_whole(run):
        final[config.run.num_rounds] = None
    elif (adapters := run / POLICY / ADAPTER_WEIGHTS).is_file():
        final[config.run.num_rounds] = adapters
    return {**saved_versions(run), **final}


def is_whole(run: Path) -> bool:
    """Whether a run has a final policy that is a whole model."""
    return (run / POLICY / CONFIG).is_file()


def fill(
    config: Config, run: Path, weights: Path | None, version: int, folder: Path, stages: Artifacts
) -> None:
    """The files of an export."""
    policy, tokenizer = policy_of(config, run, weights, version, stages)
    save_policy(policy, tokenizer, folder, generation_settings(config))
    write_card(config, run, folder, version)


def policy_of(
    config: Config, run: Path, weights: Path | None, version: int, stages: Artifacts
) -> tuple[Any, Any]:
    """A version of a run's policy, and its tokenizer. A run that has not finished has no policy
    yet: its start has the same shape, and adapters are merged into it. weights: a file, or None for
    a final policy that is a whole model."""
    model = config.model
    start = stages.policy(model) if not is_whole(run) else None
    dtype = model.policy_dtype if isinstance(model, PretrainedModel) else "float32"
    source = start or PretrainedModel(model.name, str(run / POLICY), dtype)
    policy, tokenizer = load_policy(source, None, config.seed)
    if weights is not None:
        load_weights(policy, merged_version(policy, read_version(version, weights)))
    return policy, tokenizer
