"""How figures look: fonts and sizes of a paper, colours that also differ in grey, an own style."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import matplotlib
import yaml
from matplotlib import colormaps
from matplotlib.colors import is_color_like, to_hex
from matplotlib.figure import Figure

from rlhf_lab.types.errors import UserError

# Inches: one column of a paper of two, and the whole page.
WIDTHS = {"half": 3.3, "page": 6.8}
GREY = "#767676"
# Okabe and Ito (2008), in an order in which neighbours differ in lightness.
HUES = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
LINES: tuple[Any, ...] = (
    "-",
    (0, (4, 1.5)),
    (0, (1, 1)),
    (0, (4, 1, 1, 1)),
    (0, (6, 1, 1, 1, 1, 1)),
)
# Of conditions that differ in one number, by its rank; yellow is too light for paper.
RAMP, LIGHTEST = "viridis", 0.85
RC: Any = {
    "font.family": "DejaVu Sans",
    "axes.titlelocation": "left",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.solid_capstyle": "butt",
    "lines.markersize": 3.6,
    "figure.constrained_layout.use": True,
    # Letters that can be searched and edited in PDF, PostScript and SVG.
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "none",
    # Names of conditions may have dollars, which are no mathematics.
    "text.parse_math": False,
    "svg.hashsalt": "rlhf_lab",
    "savefig.dpi": 200,
}
# What would put the date or the tool into a file.
METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
}


@dataclass(frozen=True)
class Style:
    """An own look, of a YAML file with these keys.

    size: `half` or `page` of a paper, or width and height in inches. font: letters in points.
    columns: panels beside each other. order: names of conditions, first to last; others follow.
    labels: other texts for names of conditions, panels, axes and heads of tables. heads: columns of
    a table by their names, first to last; all where none is named. colours: of conditions by name.
    log: axes, of x and y. title, legend: whether there are some. seeds: whether each run is drawn.
    """

    size: str | Sequence[float] = ""
    font: float = 7
    columns: int = 3
    heads: Sequence[str] = ()
    order: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    colours: Mapping[str, str] = field(default_factory=dict)
    log: Sequence[str] = ()
    title: bool = True
    legend: bool = True
    seeds: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.size, str):
            if self.size and self.size not in WIDTHS:
                raise UserError(f"size: {self.size}: pass half, page, or [width, height] in inches")
        elif len(self.size) != 2 or not all(0 < float(one) <= 60 for one in self.size):
            raise UserError(f"size: {self.size}: pass [width, height] in inches, up to 60")
        if wrong := [one for one in self.log if one not in ("x", "y")]:
            raise UserError(f"log: {', '.join(wrong)}: axes are x and y")
        if wrong := [one for one in self.colours.values() if not is_color_like(one)]:
            raise UserError(f"colours: {', '.join(wrong)}: pass #rrggbb or a name of matplotlib")
        if self.columns < 1 or not 2 <= self.font <= 40:
            raise UserError(f"columns: {self.columns}, font: {self.font}: pass 1 or more, 2 to 40")

    def ordered(self, names: Iterable[str]) -> list[str]:
        """The names once, those of `order` first."""
        last = len(self.order)
        ranks = dict(zip(self.order, range(last), strict=True))
        return sorted(dict.fromkeys(names), key=lambda name: ranks.get(name, last))

    def check_order(self, names: Iterable[str]) -> None:
        """Raises UserError where `order` has a name that is none of these."""
        known = dict.fromkeys(names)
        if wrong := [name for name in self.order if name not in known]:
            there = "; ".join(filter(None, known))
            raise UserError(f"order: {wrong[0]}: no condition has this name; there are {there}")

    def text(self, name: str) -> str:
        """A name as a figure or table has it: on one line."""
        return "".join(one if one.isprintable() else " " for one in self.labels.get(name, name))


def read_style(path: Path) -> Style:
    """The style of a YAML file. Raises UserError for a file or key that there is not."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"--style {path}: it cannot be read ({error})") from error
    known = [one.name for one in fields(Style)]
    if not isinstance(found, dict) or (wrong := [key for key in found if key not in known]):
        what = f"{', '.join(map(str, wrong))}: no key of a style" if isinstance(found, dict) else ""
        raise UserError(f"--style {path}: {what or 'no mapping'}; keys are {', '.join(known)}")
    try:
        return Style(**found)
    except TypeError as error:
        raise UserError(f"--style {path}: {error}") from error


@dataclass(frozen=True)
class Look:
    """Colour, marker and line of a condition: no two of a figure have the same three."""

    colour: str
    marker: str
    line: Any


def looks(names: Sequence[str], style: Style, is_number: bool) -> dict[str, Look]:
    """A look for each name. is_number: whether the conditions differ in one number, whose colours
    rise in lightness."""
    found = {}
    for index, name in enumerate(names):
        hue = HUES[index % len(HUES)]
        if is_number and len(names) > 2:
            hue = to_hex(colormaps[RAMP](LIGHTEST * index / (len(names) - 1)))
        marker, line = MARKERS[index % len(MARKERS)], LINES[index % len(LINES)]
        found[name] = Look(to_hex(style.colours.get(name, hue)), marker, line)
    return found


@contextmanager
def on_paper(style: Style) -> Iterator[None]:
    """What is drawn inside has this style."""
    letters: Any = {
        "font.size": style.font,
        "axes.labelsize": style.font,
        "axes.titlesize": style.font + 0.5,
        "xtick.labelsize": style.font - 0.5,
        "ytick.labelsize": style.font - 0.5,
        "legend.fontsize": style.font - 0.5,
    }
    with no_rc_file():
        matplotlib.rcParams.update(RC | letters)
        yield


@contextmanager
def no_rc_file() -> Iterator[None]:
    """Inside, no matplotlibrc of the working folder or the user changes a figure."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        yield


def write(figure: Figure, path: Path, formats: Sequence[str]) -> list[Path]:
    """Write path.png and so on; the same figure gives the same bytes. Raises UserError for an
    unknown format."""
    if unknown := [kind for kind in formats if kind not in METADATA]:
        raise UserError(f"--formats {','.join(unknown)}: choose from {','.join(METADATA)}")
    files = [path.with_name(f"{path.name}.{kind}") for kind in formats]
    path.parent.mkdir(parents=True, exist_ok=True)
    with no_rc_file():
        matplotlib.rcParams.update(RC)
        for kind, file in zip(formats, files, strict=True):
            figure.savefig(file, format=kind, metadata=METADATA[kind])
    return files
