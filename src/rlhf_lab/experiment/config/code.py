"""Digests of the code that decides what a run computes: this package's and that of plugins."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import rlhf_lab
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.rewards.options import named_parts
from rlhf_lab.runs.manifest import PluginFacts
from rlhf_lab.runs.provenance import version

# Packages whose code, and libraries whose versions, decide the bits of an artifact.
PACKAGES = ("experiment", "models", "rewards", "rollout/generators", "tasks", "training", "types")
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy")
OPTIONAL_LIBRARIES = ("reasoning-gym", "math-verify")
HERE = __name__.partition(".")[0]


@functools.cache
def code_digest() -> str:
    """Digest of the package's sources and of the libraries that decide bits: new code, new key."""
    digest = hashlib.sha256()
    root = Path(rlhf_lab.__file__).parent
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.read_bytes())
    for library in LIBRARIES:
        digest.update(metadata.version(library).encode())
    for extra in OPTIONAL_LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            digest.update(f"{extra}=={metadata.version(extra)}".encode())
    return digest.hexdigest()[:16]


def computing_parts(config: Config) -> Iterator[tuple[str, Any]]:
    """The parts of a config that decide what a run computes, each with its key."""
    for key in ("algo", "correction", "task", "generator", "engine"):
        yield key, getattr(config, key)
    for key in ("reward", "judge"):
        yield from named_parts(key, getattr(config, key))


def plugins_of(config: Config) -> list[PluginFacts]:
    """The packages and modules outside of this package that the config's parts come from."""
    return facts_of([*computing_parts(config), ("tracker", config.tracker)])


def code_of_parts(config: Config) -> dict[str, str]:
    """The digests of those that decide what a run computes, by module; empty without any."""
    return digests(computing_parts(config))


def digests(parts: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """The digest of each module or package outside of this one that the parts come from."""
    return {facts["module"]: facts["sha256"] for facts in facts_of(parts)}


def facts_of(parts: Iterable[tuple[str, Any]]) -> list[PluginFacts]:
    found: dict[str, list[str]] = {}
    for key, part in parts:
        # Of a package all files count: a part may use any of them.
        module = type(part).__module__.partition(".")[0]
        if module != HERE:
            found.setdefault(module, []).append(f"{key}={part.name}")
    return [
        PluginFacts(module=module, version=version(module), sha256=digest_of(module), parts=labels)
        for module, labels in sorted(found.items())
    ]


def digest_of(module: str) -> str:
    """16 hex digits of SHA-256 over the sources of a module or package."""
    digest = hashlib.sha256()
    for root, path in sources_of(module):
        digest.update(f"{path.relative_to(root)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def sources_of(module: str) -> list[tuple[Path, Path]]:
    """The files of a module or package, each with the folder that names it."""
    loaded = sys.modules[module]
    if folders := [Path(text) for text in getattr(loaded, "__path__", ())]:
        return [(folder, path) for folder in folders for path in sorted(folder.rglob("*.py"))]
    file = getattr(loaded, "__file__", None)
    return [(Path(file).parent, Path(file))] if file else []
