"""What vLLM reads of a model before it has weights: a folder with its config."""

from __future__ import annotations

import copy
import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

DIGITS = 16
CONFIG = "config.json"


def model_folder(model: Any, cache: Path | None) -> Path:
    """A folder in `cache` that is named by the hash of the model's config. vLLM's caches of
    compiled code depend on the name: the next run finds what this one has compiled. Processes may
    make the same folder at the same time. Without a cache the folder is a temporary one."""
    root = (cache or Path(tempfile.gettempdir()) / "rlhf_lab") / "vllm"
    root.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".new_", dir=root))
    try:
        save_config(model, made)
        digest = hashlib.sha256((made / CONFIG).read_bytes()).hexdigest()
        folder = root / f"{model.config.model_type}_{digest[:DIGITS]}"
        # Servers may run as somebody else.
        made.chmod(0o755)
        try:
            made.rename(folder)
        except OSError:
            # Whoever came first has made the same: a folder appears whole or not at all.
            if not (folder / CONFIG).is_file():
                raise
        return folder.absolute()
    finally:
        shutil.rmtree(made, ignore_errors=True)


def save_config(model: Any, folder: Path) -> None:
    # A copy: several threads may do this with one model.
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
