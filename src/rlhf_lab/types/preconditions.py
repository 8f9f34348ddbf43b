"""Optional protocols of a part of the config: what it needs of the environment, and what is
probably a mistake."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Demanding(Protocol):
    """A part that needs something which no config can hold."""

    def require_usable(self, key: str) -> None:
        """Raise UserError where it is absent: a package, a server, a function, an API key. key:
        where the part is mounted, such as `reward.terms.style`."""
        ...


@runtime_checkable
class Cautious(Protocol):
    """A part some of whose valid settings are probably mistakes."""

    @property
    def warning(self) -> str:
        """What is probably wrong and how to avoid it; '' for nothing."""
        ...
