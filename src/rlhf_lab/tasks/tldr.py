"""Placeholder until its author delivers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tldr:
    name: str = "tldr"
    path: str = ""
