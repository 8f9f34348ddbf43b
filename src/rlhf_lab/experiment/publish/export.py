"""Export a version of a run as a folder of transformers, and upload it."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from huggingface_hub.utils._validators import validate_repo_id

from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.artifacts.products import products_of
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.publish.card import CARD, write_card
from rlhf_lab.experiment.rules.derived import generation_settings
from rlhf_lab.models.adapters import merged_version
from rlhf_lab.models.causal_lm import load_policy, save_policy
from rlhf_lab.models.folders import CONFIG
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.models.weights import load_weights
from rlhf_lab.runs.disk import files_in, follow_umask
from rlhf_lab.runs.folder import POLICY
from rlhf_lab.runs.saved_tensors import ADAPTER_WEIGHTS, read_version, saved_versions
from rlhf_lab.runs.secrets import masked
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.runs.verification import require_recorded
from rlhf_lab.types.errors import UserError

NO_TOKEN = "--push needs a token with write access: run `hf auth login`, or set HF_TOKEN"


@dataclass(frozen=True)
class Target:
    """Where a policy is uploaded to. repo: OWNER/NAME. is_private: what a new repository becomes;
    one that exists stays as it is. is_dry: nothing is sent."""

    repo: str
    is_private: bool = False
    is_dry: bool = False

    def require_ready(self) -> None:
        """Raise UserError for a name that no repository can have, or without a token."""
        try:
            validate_repo_id(self.repo)
        except HFValidationError as error:
            raise UserError(f"--push {self.repo}: {error}") from error
        if self.repo.count("/") != 1:
            raise UserError(f"--push {self.repo}: name the owner too, as in OWNER/NAME")
        if not self.is_dry and not huggingface_hub.get_token():
            raise UserError(NO_TOKEN)


def publish(folder: Path, target: Target, title: str, console: Console) -> None:
    """Upload a folder, or only list what would be uploaded. title: of the commit. Raises UserError
    with the hub's reason."""
    if target.is_dry:
        list_upload(folder, target, console)
        return
    # Of huggingface_hub; earlier ones, which bare machines have, use another client.
    import httpx2

    api = huggingface_hub.HfApi()
    try:
        api.create_repo(target.repo, private=target.is_private or None, exist_ok=True)
        done = api.upload_folder(repo_id=target.repo, folder_path=folder, commit_message=title)
    except (HfHubHTTPError, OfflineModeIsEnabled, httpx2.HTTPError, OSError) as error:
        reason = masked(" ".join(str(error).split()))
        raise UserError(f"--push {target.repo}: the hub did not take it: {reason}") from error
    console.print(f"pushed {title} to {done.repo_url}")


def list_upload(folder: Path, target: Target, console: Console) -> None:
    """Print the repository, the files with their sizes, and the metadata of the card."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    kind = "private" if target.is_private else "public"
    console.print(f"would be pushed to {target.repo} ({kind} if it is new):")
    for path in files:
        console.print(f"  {path.stat().st_size:>14,} bytes  {path.relative_to(folder)}")
    front = (folder / CARD).read_text(encoding="utf-8").split("---\n", 2)[1]
    console.print(f"metadata of the card:\n{front.rstrip()}")


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
    a final policy that is a whole model. Raises Unreadable where its files are not those that the
    run wrote."""
    of_policy = (path for path in files_in(run / POLICY) if path.name != CARD)
    for path in filter(None, (*of_policy, weights)):
        require_recorded(run, path)
    model = config.model
    start = stages.policy(model) if not is_whole(run) else None
    dtype = model.policy_dtype if isinstance(model, PretrainedModel) else "float32"
    source = start or PretrainedModel(model.name, str(run / POLICY), dtype)
    policy, tokenizer = load_policy(source, None, config.seed)
    if weights is not None:
        load_weights(policy, merged_version(policy, read_version(version, weights)))
    return policy, tokenizer
