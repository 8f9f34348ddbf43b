"""Names that settings had in runs of before: what they are called now, and what they are hashed as.

A hash over settings is recorded with runs, sweeps and cached stages, and compared later: it is
taken over the names that the settings had first, so that a new name changes no hash.
"""

from __future__ import annotations

from typing import Any

# Classes whose name is recorded with a part's values, by their present name.
FORMER_CLASSES = {"RunOptions": "Recipe"}


def as_first_recorded(values: Any) -> Any:
    """Plain values with the names that they were recorded under first."""
    if isinstance(values, dict):
        named = {name: as_first_recorded(value) for name, value in values.items()}
        if (part := named.get("part")) in FORMER_CLASSES:
            named["part"] = FORMER_CLASSES[part]
        return named
    return [as_first_recorded(one) for one in values] if isinstance(values, list) else values
