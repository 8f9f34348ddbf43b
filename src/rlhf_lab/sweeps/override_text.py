"""Write values and commands as text that Hydra parses back unchanged."""

from __future__ import annotations

import re
from typing import Any

PRIMARY = "config"
# Texts that YAML parses as another type.
NOT_TEXT = ("null", "true", "false", "nan", "inf", "infinity")


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


def primary_config(hydra_config: Any) -> list[str]:
    """The flags that select the primary config, such as a sweep's; none for conf/config.yaml."""
    sources = hydra_config.runtime.config_sources
    folders = [source.path for source in sources if source.provider == "command-line"]
    name = hydra_config.job.config_name
    flags = [] if name == PRIMARY else ["--config-name", str(name)]
    return [*(text for folder in folders for text in ("--config-dir", folder)), *flags]
