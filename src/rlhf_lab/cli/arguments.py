"""Arguments of commands: folders or options, the overrides that a run was started with, and the
folder that their paths are relative to.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.config.groups import conf_folder
from rlhf_lab.experiment.config.plugins import require_plugins
from rlhf_lab.runs.folder import CONFIG, MANIFEST, manifest_path
from rlhf_lab.runs.manifest import Replayed, Started, read_manifest
from rlhf_lab.runs.output import printable
from rlhf_lab.runs.reading import checked, read_yaml
from rlhf_lab.runs.renames import is_removed, present_options, present_override
from rlhf_lab.runs.secrets import masked, secret_in
from rlhf_lab.runs.trust import require_trust
from rlhf_lab.sweeps.options import sweeps_folder
from rlhf_lab.sweeps.override_text import quoted
from rlhf_lab.types.errors import UserError

# What a fork does not take over from its parent: where it writes, and how the parent began.
NOT_OF_FORKS = (
    *("output.dir=", "output.resume=", "output.log=", "output.quiet="),
    *("fork.", "checkpoint.pause_round="),
)
HYDRA, CONFIG_DIR, CONFIG_NAME = "hydra", "--config-dir", "--config-name"
PATH_KEYS = (
    *("path", "paths", "cache", "dir", "root", "schedule", "weights_folder", "log", "parent"),
)


def is_option(text: str) -> bool:
    """Whether an argument is an override or a flag, and no folder.

    A folder may have any name: one with `=` in it is recognised by the run that it holds, or by a
    path that no override begins with. One that begins with a dash is written ./-NAME.
    """
    if text.startswith(("/", "./", "../")):
        return False
    if text.startswith(("-", "~")):
        return True
    # Not Path.is_file, which raises at a text that is too long for a name.
    return "=" in text and not os.path.isfile(os.path.join(text, MANIFEST))


def refuse_secrets(arguments: Sequence[str]) -> None:
    """Refuse secrets before Hydra sees them: it repeats the overrides of a run that is refused. And
    bytes that are no UTF-8, which neither a config nor a manifest could hold."""
    for text in arguments:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            shown = text.encode("utf-8", "backslashreplace").decode()
            raise UserError(
                f"{shown}: its bytes are no UTF-8: rename the file or folder"
            ) from error
        if secret := secret_in(text):
            raise UserError(
                f"{masked(text.partition('=')[0])}: its value holds {secret}, which would be "
                "written down: keep it in the environment and take it out"
            )


def leading_folders(arguments: Sequence[str]) -> list[str]:
    """The folders that are named before the first option."""
    return list(takewhile(lambda text: not is_option(text), arguments))


def overrides_again(folder: Path, changes: Sequence[str], *added: str) -> list[str]:
    """The overrides of a run that works in its own folder again: added and changed ones last."""
    own = [text for text in recorded_overrides(folder) if not text.startswith("output.dir=")]
    return [
        *primary_flags(folder, changes),
        *merged([*own, f"output.dir={quoted(folder)}", *added], changes),
    ]


def overrides_to_resume(folder: Path, changes: Sequence[str]) -> list[str]:
    return overrides_again(folder, changes, "output.resume=true")


def overrides_of_replay(folder: Path, changes: Sequence[str]) -> list[str]:
    """The overrides of a run in another folder that repeats the recorded schedule of this one."""
    own = [text for text in recorded_overrides(folder) if not text.startswith("output.")]
    own = with_schedule(folder, own)
    return [*primary_flags(folder, changes), *merged(own, changes)]


def overrides_of_fork(folder: Path, changes: Sequence[str]) -> list[str]:
    """The overrides of a run that starts from a round of this one, with changes. A change of a
    group's option takes the place of all that the run had set in the group."""
    path = manifest_path(folder)
    rounds = [text for text in changes if text.startswith("round=")]
    changes = [text for text in changes if text not in rounds]
    if not rounds:
        raise UserError(
            f"rlhf-lab fork {folder} needs the round to go on from, such as round=10: the run has "
            f"{read_manifest(path).get('num_rounds')}"
        )
    groups = {key for text in changes if "." not in (key := text.partition("=")[0])}
    own = [
        text
        for text in recorded_overrides(folder)
        if not text.startswith(NOT_OF_FORKS) and text.partition(".")[0] not in groups
    ]
    own += [f"fork.parent={quoted(folder)}", f"fork.{rounds[-1]}"]
    if "mode" not in groups and is_timed(folder):
        own = with_schedule(folder, own)
    return [*primary_flags(folder, changes), *merged(own, changes)]


def is_timed(folder: Path) -> bool:
    """Whether timing decided which version wrote the samples of a run."""
    return str((recorded_config(folder).get("mode") or {}).get("weights")).startswith("latest")


def with_schedule(folder: Path, overrides: Sequence[str]) -> list[str]:
    """Overrides by which a run repeats the recorded schedule of another."""
    path = manifest_path(folder)
    settings = checked(read_manifest(path), Replayed, path)["mode_settings"]
    own = [text for text in overrides if not text.startswith(("mode=", "mode."))]
    own += ["mode=recorded", f"mode.schedule={quoted(folder)}"]
    return [*own, *(present_override(f"mode.{key}={value}") for key, value in settings.items())]


def recorded_overrides(folder: Path) -> list[str]:
    """The overrides that a run was started with, by their present names. Raises UserError if a
    plugin is missing."""
    path = manifest_path(folder)
    manifest = read_manifest(path)
    require_plugins(folder, manifest.get("plugins", []))
    recorded = checked(manifest, Started, path)["overrides"]
    texts = [present_override(text) for text in recorded if not is_removed(text.partition("=")[0])]
    config = recorded_config(folder)
    found = present_options(texts, lambda group, key: key in (config.get(group) or {}))
    for text in found:
        if text.startswith("-") or HYDRA in re.split(r"[\s+~.@:/]+", text.partition("=")[0]):
            raise UserError(
                f"{path}: overrides has {text}, which sets up Hydra itself; a run records none "
                "such, so this was added: delete it there"
            )
    return found


def recorded_config(folder: Path) -> dict[str, Any]:
    """The resolved config of a run; empty if it has none."""
    path = folder / CONFIG
    return read_yaml(path) if path.is_file() else {}


def primary_flags(folder: Path, changes: Sequence[str]) -> list[str]:
    """The flags that choose a run's primary config, without those that are changed. The file of a
    sweep would start the sweep again, so Hydra is set to a single run."""
    path = manifest_path(folder)
    flags = read_manifest(path).get("primary_config") or []
    rest = iter(flags)
    for flag in rest:
        is_search = flag.startswith("hydra.searchpath=")
        if not is_search and flag not in (CONFIG_DIR, CONFIG_NAME):
            raise UserError(f"{path}: primary_config has {flag}, which is no such flag: delete it")
        value = flag if is_search else next(rest, "")
        is_shipped = value in map(str, (conf_folder(), sweeps_folder()))
        # A name with a folder in it is looked for there.
        if "/" in value if flag == CONFIG_NAME else not is_shipped:
            require_trust(f"files of options ({value})", folder)
    changed = {text.partition("=")[0] for text in changes if "=" in text}
    kept = [text for text in flags if text.partition("=")[0] not in changed]
    return [*kept, "hydra.mode=RUN"] if kept else []


def without_flag(arguments: Sequence[str], flag: str) -> tuple[list[str], bool]:
    """Arguments without a flag, and whether it was among them."""
    return [text for text in arguments if text != flag], flag in arguments


def merged(own: Sequence[str], changes: Sequence[str]) -> list[str]:
    """Overrides, without those of keys that are changed, and the changes."""
    changed = {present_override(text).split("=")[0] for text in changes}
    return [*(text for text in own if text.split("=")[0] not in changed), *changes]


def enter_start_folder(run: Path, arguments: Sequence[str]) -> list[str]:
    """Change to the folder in which a run was started, if settings of it name files there that are
    not here, and print so. Returns the command's arguments, the run first, whose paths stay those
    of the present folder."""
    start = read_manifest(manifest_path(run)).get("working_folder", "")
    here = Path.cwd()
    only_there = [
        text
        for text in recorded_overrides(run)
        if start
        and not text.startswith("output.")  # a run finds its products by itself
        and names_file(text, Path(start))
        and not names_file(text, here)
    ]
    if not only_there:
        return list(arguments)
    require_trust(f"{only_there[0]} in {start}", run)
    sys.stderr.write(printable(f"in {start}, where the run was started with {only_there[0]}\n"))
    os.chdir(start)
    folders = [text for text in arguments if not is_option(text)]
    changes = [absolute(text, here) for text in arguments if is_option(text)]
    if not any(text.startswith(("output.dir=", "output.root=")) for text in changes):
        changes.append(f"output.root={quoted(here / 'runs')}")
    return [*(str(here / text) for text in folders), *changes]


def path_in(override: str) -> tuple[str, str]:
    """The key and the relative path of an override; "" where it has none."""
    key, _, value = override.partition("=")
    value = value.strip("'\"")
    is_path = key.rpartition(".")[2] in PATH_KEYS and "." in key
    return key, value if is_path and value and not os.path.isabs(value) else ""


def names_file(override: str, folder: Path) -> bool:
    """Whether an override names a file or a folder, or a module of Python, by its relative path."""
    _, path = path_in(override)
    module = folder / f"{path.partition('.')[0]}.py"
    return bool(path) and ((folder / path).exists() or module.is_file())


def absolute(override: str, folder: Path) -> str:
    """An override with the path that its relative one means in a folder."""
    key, path = path_in(override)
    is_module = path and not (folder / path).exists() and not key.startswith("output.")
    return override if not path or is_module else f"{key}={quoted(folder / path)}"
