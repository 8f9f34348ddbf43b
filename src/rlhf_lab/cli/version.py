"""`rlhf-lab --version`: what to write into a report of a bug."""

from __future__ import annotations

import platform

from rlhf_lab.runs.provenance import commit, version

# Read from what is installed: importing torch for its number would take seconds.
NAMED = ("torch", "transformers", "hydra-core")


def version_text() -> str:
    """The versions of this package, of its commit in a checkout, of Python and of libraries."""
    code = commit()
    place = ""
    if code:
        place = f" (commit {code['commit'][:12]}{', changed' if code['is_dirty'] else ''})"
    libraries = [f"{name} {version(name) or 'not installed'}" for name in NAMED]
    return ", ".join(
        [
            f"rlhf-lab {version('rlhf-lab')}{place}",
            f"Python {platform.python_version()}",
            *libraries,
        ]
    )
