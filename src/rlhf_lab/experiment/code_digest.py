"""The digest of the code that decides the bits of an artifact: part of every key of the cache."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import rlhf_lab

# Packages whose code, and libraries whose versions, decide the bits of an artifact.
PACKAGES = ("experiment", "models", "rewards", "rollout/generators", "tasks", "training", "types")
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy")
OPTIONAL_LIBRARIES = ("reasoning-gym", "math-verify")


@functools.cache
def code_digest() -> str:
    """Digest of the package's sources and of the libraries that decide bits: new code, new key."""
    digest = hashlib.sha256()
    root = Path(rlhf_lab.__file__).parent
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.read_bytes())
    for library in LIBRARIES:
        digest.update(version(library).encode())
    for extra in OPTIONAL_LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            digest.update(f"{extra}=={version(extra)}".encode())
    return digest.hexdigest()[:16]
