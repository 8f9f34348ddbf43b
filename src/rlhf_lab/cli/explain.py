"""`rlhf-lab explain KEY`: what a key of the config is, or which keys a node or an option has."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.experiment.config.plugins import activate_for
from rlhf_lab.experiment.config.registry import group_options
from rlhf_lab.runs.renames import present_override
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from rlhf_lab.experiment.config.keys import Key, Option


WIDTH = 88


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", help="mode.max_staleness, mode, algo=grpo or experiment=demo")
    text = "modules with parts of your own, besides installed ones"
    parser.add_argument("plugins", nargs="?", default="", metavar="plugins=[...]", help=text)


def show(options: argparse.Namespace, console: Console) -> int:
    """Print what is known of a key, a node, a group or an option. Returns 0."""
    activate_for([options.plugins])
    console.print("\n".join(explanation(options.key)))
    return 0


def explanation(name: str) -> Iterator[str]:
    """The lines about a key, a node, a group or an option. Raises UserError for anything else."""
    from rlhf_lab.experiment.config import keys

    if (present := present_override(name)) != name:
        yield f"{name} is now {present}"
        name = present
    first, dot, rest = name.partition(".")
    group = keys.MOUNTS.get(first, first)
    chosen, _, option = name.partition("=")
    titles = [title for title in keys.sections() if name == title or title.startswith(f"{group}=")]
    if found := [key for key in keys.all_keys() if key.name in (name, f"{group}.{rest}")]:
        yield from about_key(name, found)
    elif not dot and (titles or group in (*keys.sections(), *keys.OVERLAYS)):
        yield from about_node(group, titles or [one for one in [group] if one in keys.sections()])
    elif preset := [o for o in preset_options(chosen) if o.name == option]:
        yield from about_preset(chosen, preset[0])
    else:
        from rlhf_lab.experiment.config.suggestions import no_key

        raise UserError(no_key(name))


def preset_options(group: str) -> list[Option]:
    """The options of a group that are files; none of what is no group."""
    from rlhf_lab.experiment.config import keys

    group = keys.MOUNTS.get(group, group)
    is_group = group in keys.OVERLAYS or group in group_options()
    return keys.options_of(group) if is_group else []


def about_preset(group: str, option: Option) -> Iterator[str]:
    """What an option is for, and every key that it sets, as overrides."""
    from rlhf_lab.experiment.config import keys

    yield from textwrap.wrap(f"{group}={option.name}: {option.about}", WIDTH)
    yield from (f"  {choice}" for choice in option.choices)
    node = "" if group in keys.OVERLAYS else group
    for key, value in leaves(option.values, node):
        yield f"  {key}={value}"


def leaves(values: Mapping[str, Any], node: str) -> Iterator[tuple[str, Any]]:
    """Every single value below a node, with its key."""
    for name, value in values.items():
        key = f"{node}.{name}" if node else name
        if isinstance(value, Mapping):
            yield from leaves(value, key)
        else:
            yield key, value


def about_key(name: str, found: Sequence[Key]) -> Iterator[str]:
    """A key, as every class declares it that has it."""
    from rlhf_lab.experiment.config.keys import set_by

    yield name
    alike: dict[tuple[str, ...], list[Key]] = {}
    for key in found:
        alike.setdefault((key.about, key.default, key.allowed, key.source), []).append(key)
    for same in alike.values():
        if options := ", ".join(f"{key.group}={key.option}" for key in same if key.option):
            yield f"with {options}:"
        key = same[0]
        yield from textwrap.wrap(key.about, WIDTH, initial_indent="  ", subsequent_indent="  ")
        yield f"  type:         {key.kind}"
        yield f"  default:      {key.default}"
        if key.allowed:
            yield f"  allowed:      {key.allowed}"
        if key.source:
            yield f"  source:       {key.source}"
        yield f"  declared in:  {', '.join(sorted({one.part.__module__ for one in same}))}"
    if files := sorted({text for key in found for text in set_by(key)}):
        yield f"  set by:       {', '.join(files)}"


def about_node(group: str, titles: Sequence[str]) -> Iterator[str]:
    """The options of a group, and one line for each of the keys."""
    from rlhf_lab.experiment.config import keys

    if options := keys.options_of(group):
        yield f"{group}=OPTION: {', '.join(option.name for option in options)}"
    for title in titles:
        part, own = keys.sections()[title]
        yield f"{title}: {keys.summary(part)}"
        for key in own:
            yield f"  {key.name} ({key.default}): {key.about}"


EXPLAIN = OptionsCommand(
    "explain",
    "what a key of the config is: type, default, range, description, source",
    "mode.max_staleness",
    usage="KEY [plugins=[my_module]]",
    completes="keys",
    add_options=add_options,
    action=show,
)
