"""Declare a figure once, at the function that draws it: its name, title, runs and caption."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from rlhf_lab_analysis.comparison.families import Family
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.requirement import Requirement
from rlhf_lab_analysis.words import KL, label

# The argument by which a function draws another measure of drift than KL.
DRIFT = "drift"
# Of the families, and of the drift where a figure has such an axis.
Draw: TypeAlias = Callable[..., FigureBuilder]
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

    def by(self, drift: str) -> FigureSpec:
        """The same with another measure of drift than KL, where it draws one."""
        if drift == KL or DRIFT not in inspect.signature(self.draw).parameters:
            return self
        metrics = tuple(drift if name == KL else name for name in self.needs.metrics)
        draw: Any = functools.partial(self.draw, drift=drift)
        return replace(
            self,
            caption=self.caption.replace("KL", label(drift)),
            needs=replace(self.needs, metrics=metrics),
            draw=draw,
        )


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
