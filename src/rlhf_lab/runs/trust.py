"""Runs that another user or machine wrote: the code that they name runs with --trust alone.

A run's folder names code: modules of its working folder, plugins, files of options, which can
configure Hydra. It names addresses too, and the variables whose values are sent there as keys.
Reading a run follows none of these; commands that build a run again from its folder do.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlhf_lab.runs.folder import MANIFEST, manifest_path
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.runs.provenance import is_this_host, user_name
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.limits import TRUST

FLAG = "--trust"
# Whether the command has the flag, and the runs whose configs are composed.
_flags: list[bool] = []
_runs: list[Path] = []


@contextmanager
def trusting(is_trusted: bool) -> Iterator[None]:
    """Let another author's run execute its code while the block runs, if is_trusted."""
    _flags.append(is_trusted)
    try:
        yield
    finally:
        _flags.pop()


@contextmanager
def composing(run: Path | None) -> Iterator[None]:
    """While the block runs, configs are composed from this run's folder; None: from options that
    the user wrote."""
    runs = [] if run is None else [run]
    _runs.extend(runs)
    try:
        yield
    finally:
        del _runs[len(_runs) - len(runs) :]


def require_trust(named: str, run: Path | None = None) -> None:
    """Refuse what the run names, code or an address for keys, unless this user wrote the run here
    or passed --trust. run: the one whose config is composed, if there is one."""
    for one in [*_runs, *([run] if run else [])]:
        if not any(_flags) and (author := author_of(one)):
            raise UserError(
                f"{one} was written by {author}, and would run here or send a key to: {named}: "
                f"read that first, then pass {FLAG}"
            )


def require_trusted_values(config: Any) -> None:
    """The same for the values of a composed config that name code or addresses."""
    if _runs and (named := ", ".join(named_in("", config))):
        require_trust(named)


def named_in(key: str, part: Any) -> Iterator[str]:
    """The options that name code or addresses, as KEY=VALUE, in a part of a config."""
    if isinstance(part, Mapping):
        for name, inner in part.items():
            yield from named_in(f"{key}.{name}", inner)
    if not dataclasses.is_dataclass(part):
        return
    for column in dataclasses.fields(part):
        name, value = f"{key}.{column.name}".lstrip("."), getattr(part, column.name)
        if column.metadata.get(TRUST) and value != column.default:
            yield f"{name}={value}"
        yield from named_in(name, value)


def author_of(run: Path) -> str:
    """Who wrote a run, in words; "" for this user on this machine, who started it elsewhere than in
    its own folder. Archives lose the owner of files, and their senders choose what is recorded:
    each must be as here."""
    manifest = read_manifest(manifest_path(run))
    owners = {path.stat().st_uid for path in (run, run / MANIFEST)}
    if others := owners - {os.getuid()}:
        return f"the user {user_name(others.pop())}"
    user = user_name(os.getuid())
    recorded: Mapping[str, Any] = manifest.get("host") or {}
    author = recorded.get("user", user)
    if author != user or not is_this_host(manifest):
        return f"{author} on the host {recorded.get('name', '?')}"
    start = Path(manifest.get("working_folder") or "/").resolve()
    return "a command within its own folder" if start.is_relative_to(run.resolve()) else ""
