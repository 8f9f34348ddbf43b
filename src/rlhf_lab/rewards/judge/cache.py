"""Answers of judges on disk, keyed by the request, so that no process sends a request twice."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from rlhf_lab.runs.disk import atomic_write, discard
from rlhf_lab.runs.reading import content
from rlhf_lab.types.errors import UserError


class JudgeCache:
    """One small file an answer, whole or not there. Anything else in its place counts as damaged
    and is written anew."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.num_damaged = 0

    def read(self, key: str) -> str | None:
        """The answer to a question, if it is there and whole."""
        if not os.path.lexists(self._path(key)):
            return None
        text = self._text(key)
        if text is None:
            self.num_damaged += 1
        return text

    def settle(self, key: str, text: str) -> str:
        """Keep an answer. If another process was first, its answer is the one that counts."""
        existing = self._text(key)
        if existing is not None:
            return existing
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise UserError(
                f"reward.cache={self._folder}: {path.parent} is no folder: move it away"
            ) from error
        if path.is_dir():
            discard(path)
        atomic_write(path, json.dumps({"key": key, "answer": text, "digest": digest(key + text)}))
        return text

    def forget(self, key: str) -> None:
        """Remove an answer that is of no use."""
        discard(self._path(key))
        self.num_damaged += 1

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"

    def _text(self, key: str) -> str | None:
        # By json's own parser: an answer may have half a character, which the typed one refuses.
        try:
            entry: Any = json.loads(content(self._path(key)))
            text = entry["answer"]
            is_whole = entry["key"] == key and entry["digest"] == digest(key + text)
        except (ValueError, LookupError, TypeError, RecursionError):
            return None
        return str(text) if is_whole else None


def digest(text: str) -> str:
    """SHA-256 of a text, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
