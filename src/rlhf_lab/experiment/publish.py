"""`rlhf-lab export --push`: an exported policy and its card as a repository on the hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from huggingface_hub.utils._validators import validate_repo_id

from rlhf_lab.experiment.model_card import CARD
from rlhf_lab.runs.secrets import masked
from rlhf_lab.runs.trackers.console import Console
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
