"""Declare a figure once, at the function that draws it: its name, title, runs and caption."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rlhf_lab_analysis.comparison.families import Family
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.requirement import Requirement

Draw: TypeAlias = Callable[[Sequence[Family]], FigureBuilder]
PageOf: TypeAlias = Callable[[Family], Hashable]


@dataclass(frozen=True)
class FigureSpec:
    """A figure. title: what `--list` shows. caption: its first sentence. needs: which runs. sweeps:
    those whose runs are preferred. beside: sweeps whose runs stand where these have none. page_of:
    what the families of one page have in common; None for as many on a page as fit."""

    name: str
    title: str
    caption: str
    needs: Requirement
    sweeps: tuple[str, ...]
    draw: Draw
    beside: tuple[str, ...] = ()
    page_of: PageOf | None = None


DECLARED: dict[str, FigureSpec] = {}


def figure(
    name: str,
    title: str,
    caption: str,
    needs: Requirement,
    sweeps: Sequence[str] = (),
    beside: Sequence[str] = (),
    page_of: PageOf | None = None,
) -> Callable[[Draw], Draw]:
    """Declare the decorated function as the drawing of this figure."""

    def declare(draw: Draw) -> Draw:
        if name in DECLARED:
            raise ValueError(f"figure {name} is declared twice")
        DECLARED[name] = FigureSpec(
            name, title, caption, needs, tuple(sweeps), draw, tuple(beside), page_of
        )
        return draw

    return declare
