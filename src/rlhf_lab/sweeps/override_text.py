"""Write values and commands as text that Hydra parses back unchanged."""

from __future__ import annotations

import os
import re
from typing import Any

PRIMARY = "config"
# How Hydra calls a source that `hydra.searchpath` on the command line names.
SEARCHPATH = "hydra.searchpath in command-line"
# Texts that YAML parses as another type.
NOT_TEXT = ("null", "true", "false", "nan", "inf", "infinity")
# A value, in quotes or not, that has no structure and no interpolation.
SIMPLE = re.compile(r"""(['"]?)([^'"=\[\]{}()\\$]*)\1""")
WHOLE = re.compile(r"-?(0|[1-9]\d*)")
HOME = "~/"


def quoted(value: object) -> str:
    """A value as an override spells it, whatever characters it contains."""
    # A name such as 1e5 or null would be a number or nothing.
    if (
        re.fullmatch(r"[a-zA-Z/][\w./+-]*", str(value), re.ASCII)
        and str(value).lower() not in NOT_TEXT
    ):
        return str(value)
    # OmegaConf interpolates ${ unless an odd number of backslashes precedes it.
    plain = re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + "\\${", str(value))
    # Backslashes escape only before a quote, the closing one included.
    escaped = re.sub(
        r"(\\*)('|\Z)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), plain
    )
    return f"'{escaped}'"


def plain_override(text: str) -> str:
    """An override without quotes that change nothing, and with the home folder for `~/`: of equal
    values the texts are equal, by which sweeps name their conditions."""
    key, sign, value = text.partition("=")
    found = [SIMPLE.fullmatch(one) for one in value.split(",")]
    if not sign or text.startswith("-") or not all(found):
        return text
    return f"{key}={','.join(plain_value(key, *one.groups()) for one in found if one)}"


def plain_value(key: str, quote: str, value: str) -> str:
    """One value of a key, which stands in these quotes."""
    if value.startswith(HOME):
        return quoted(os.path.expanduser(value))
    # Below an option, as in reward.arguments.KEY, a whole number in quotes is a text.
    is_number = key.count(".") < 2 and WHOLE.fullmatch(value)
    return value if is_number or quoted(value) == value else f"{quote}{value}{quote}"


def primary_config(hydra_config: Any) -> list[str]:
    """The flags that select the primary config, such as a sweep's, and the folders beside conf/;
    none for conf/config.yaml alone."""
    sources = hydra_config.runtime.config_sources
    folders = [source.path for source in sources if source.provider == "command-line"]
    name = hydra_config.job.config_name
    flags = [] if name == PRIMARY else ["--config-name", str(name)]
    added = [absolute(one) for one in sources if one.provider == SEARCHPATH]
    flags += [f"hydra.searchpath=[{','.join(map(quoted, added))}]"] if added else []
    return [*(text for folder in folders for text in ("--config-dir", folder)), *flags]


def absolute(source: Any) -> str:
    """A source of configs from whatever folder it is looked for."""
    path = os.path.abspath(source.path) if source.schema == "file" else source.path
    return f"{source.schema}://{path}"
