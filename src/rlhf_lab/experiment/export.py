"""`rlhf-lab export`: a version of a run as a folder that transformers loads, with its card."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.experiment.arguments import is_option
from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.derived import generation_settings
from rlhf_lab.experiment.model_card import write_card
from rlhf_lab.experiment.prepare import Artifacts
from rlhf_lab.models.causal_lm import load_policy, save_policy
from rlhf_lab.models.forward import load_weights
from rlhf_lab.models.pretrained import PretrainedModel
from rlhf_lab.runs.disk import follow_umask
from rlhf_lab.runs.folder import POLICY
from rlhf_lab.runs.saved_tensors import kept_versions, read_tensors
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError

USAGE = "rlhf-lab export RUN [FOLDER] [version=NUMBER]"


@dataclass(frozen=True)
class Asked:
    """What to export. folder: None for one in the run's own. version: None for the newest."""

    run: Path
    folder: Path | None = None
    version: int | None = None


def asked(arguments: Sequence[str]) -> Asked:
    """The arguments of the command. Raises UserError for anything else."""
    folders = [text for text in arguments if not is_option(text)]
    others = [text for text in arguments if text not in folders]
    version = None
    for text in others:
        key, _, value = text.partition("=")
        if key != "version" or not value.isdecimal():
            raise UserError(f"{text} is no option of export: {USAGE}")
        version = int(value)
    if not 1 <= len(folders) <= 2:
        raise UserError(f"{len(folders)} folders are named: {USAGE}")
    return Asked(Path(folders[0]), Path(folders[1]) if len(folders) > 1 else None, version)


def export(config: Config, wanted: Asked, console: Console) -> Path:
    """Write weights, tokenizer and card of a version, whole or not at all. Returns the folder."""
    held = versions(config, wanted.run)
    version = max(held, default=-1) if wanted.version is None else wanted.version
    if version not in held:
        asked_for = "weights" if wanted.version is None else f"version={version}"
        raise UserError(
            f"{wanted.run} holds no {asked_for}, its versions are {sorted(held)}: choose one of "
            "them; eval.snapshots says how many a run keeps, and one that has finished has its last"
        )
    folder = wanted.folder or wanted.run / f"export-{version:06d}"
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already: name another, or move it away")
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".exporting-", dir=folder.parent))
    try:
        fill(config, wanted.run, held[version], version, draft, console)
        follow_umask(draft)
        if folder.exists():
            folder.rmdir()
        os.rename(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    console.say(f"exported version {version} of {wanted.run} to {folder}")
    return folder


def versions(config: Config, run: Path) -> dict[int, Path | None]:
    """The versions that a run holds and the files of their weights; None for its final policy."""
    found: dict[int, Path | None] = {}
    if (run / POLICY / "config.json").is_file():
        found[config.run.num_rounds] = None
    return {**kept_versions(run), **found}


def fill(
    config: Config, run: Path, weights: Path | None, version: int, folder: Path, console: Console
) -> None:
    """The files of an export. A run that has not finished has no policy yet: its start has the
    same shape."""
    model = config.model
    start = Artifacts(config, console).policy(model) if not (run / POLICY).is_dir() else None
    dtype = model.dtype if isinstance(model, PretrainedModel) else "float32"
    source = start or PretrainedModel(model.name, str(run / POLICY), dtype)
    policy, tokenizer = load_policy(source, None, config.seed)
    if weights is not None:
        load_weights(policy, Weights(version, read_tensors(weights)))
    save_policy(policy, tokenizer, folder, generation_settings(config))
    write_card(config, run, folder, version)
