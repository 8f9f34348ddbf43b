"""`rlhf-lab plot`: one figure of any runs; and the same call from Python."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.plots.figure import Plot, draw
from rlhf_lab_analysis.plots.lines import AXES, METRICS
from rlhf_lab_analysis.plots.panels import Form, Request
from rlhf_lab_analysis.plots.style import METADATA, Style, read_style, write
from rlhf_lab_analysis.tables.readers import read_sources
from rlhf_lab_analysis.tables.summary import printable, show_damage
from rlhf_lab_analysis.tables.table import Tables, make_tables


def plot(
    runs: Any,
    y: str | Sequence[str] = (),
    x: str | Sequence[str] = (),
    *,
    form: str = "curves",
    diff: str = "",
    by: str | Sequence[str] = (),
    facet: str | Sequence[str] = (),
    style: Style | Path | str | None = None,
    labels: Mapping[str, str] | None = None,
    order: Sequence[str] | None = None,
    colours: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """A figure of runs, as `rlhf-lab plot` draws it (docs/analysis.md).

    runs: a folder, a Run, tables, or a list of folders and Runs. y, x: metrics and axes, or their
    short names. form: curves, ends, front, heat, timeline. diff: KEY=VALUE or a condition's name,
    which the others are compared with. by, facet: keys. style: a Style or a YAML file; labels,
    order and colours are those of a style. ax: where to draw a figure of one panel. Raises
    UserError for names and keys that the runs do not have.
    """
    if form not in set(Form):
        raise UserError(f"form={form}: choose from {', '.join(Form)}")
    request = Request(listed(y), listed(x), Form(form), diff, listed(by), listed(facet))
    own = read_style(Path(style)) if isinstance(style, str | Path) else style or Style()
    given: Any = {"labels": labels, "order": order, "colours": colours}
    own = replace(own, **{key: value for key, value in given.items() if value is not None})
    return draw(selection_of(tables_of(runs), request.form), request, own, ax).figure


def listed(given: str | Sequence[str]) -> list[str]:
    """One text or several as a list."""
    return [given] if isinstance(given, str) else list(given)


def tables_of(runs: Any) -> Tables:
    """The tables of folders, Runs and files."""
    if isinstance(runs, Tables):
        return runs
    many = runs if isinstance(runs, list | tuple) else [runs]
    return make_tables(read_sources([str(getattr(one, "path", one)) for one in many]))


def selection_of(tables: Tables, form: Form) -> Selection:
    """The conditions that are drawn. Curves show unfinished runs as far as they are."""
    return cells(tables, unjudged=True, unfinished=form is Form.curves)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add("sources", nargs="+", metavar="RUNS", help="folders of runs, tables, W&B, TensorBoard, CSV")
    add("-y", nargs="+", default=[], metavar="METRIC",
        help=f"{', '.join(METRICS)}, or a metric's whole name; a panel for each")  # fmt: skip
    add("-x", nargs="+", default=[], metavar="AXIS", help=f"{', '.join(AXES)} (default: updates)")
    shape = parser.add_mutually_exclusive_group()
    for form, what in (
        (Form.ends, "y at the end: rows, or over the number in which conditions differ"),
        (Form.front, "y at the end against its cost x (default: flops), with the Pareto front"),
        (Form.heat, "means at the end over the two keys of --by"),
        (Form.timeline, "who worked when in rounds from the middle"),
    ):
        shape.add_argument(f"--{form}", dest="form", action="store_const", const=form, help=what)
    add("--diff", default="", metavar="BASELINE",
        help="KEY=VALUE or a condition's name: differences from it in pairs of seeds")  # fmt: skip
    add("--by", nargs="+", default=[], metavar="KEY",
        help="keys in which the lines of a panel differ; other keys have panels")  # fmt: skip
    add("--facet", nargs="+", default=[], metavar="KEY", help="keys whose values have panels")
    add("--style", type=Path, metavar="FILE", help="YAML: size, font, columns, order, labels, ...")
    add("--out", type=Path, default=Path("plot"), help="files without their ending (default: plot)")
    add("--formats", default="png,pdf", help="of png, pdf, svg (default: png,pdf)")
    parser.set_defaults(form=Form.curves)


def run(options: argparse.Namespace, console: Console) -> None:
    """Read, draw, write, and print what is shown."""
    formats = formats_of(options.formats)
    style = read_style(options.style) if options.style else Style()
    request = Request(options.y, options.x, options.form, options.diff, options.by, options.facet)
    with console.phase("reading the runs"):
        tables = make_tables(read_sources(options.sources))
        selection = selection_of(tables, request.form)
    show_damage(tables, console)
    with console.phase("drawing"):
        made = draw(selection, request, style)
        files = save(made, options.out, formats)
    for line in made.notes:
        console.print(printable(line))
    console.print(printable(made.sentence))
    console.print(f"wrote {', '.join(map(str, files))}")


def formats_of(text: str) -> list[str]:
    """The formats by name. Raises UserError for an unknown one."""
    kinds = [kind for kind in text.split(",") if kind]
    if not kinds or any(kind not in METADATA for kind in kinds):
        raise UserError(f"--formats {text}: choose from {','.join(METADATA)}")
    return kinds


def save(made: Plot, path: Path, formats: Sequence[str]) -> list[Path]:
    """Write the pictures, and beside them the numbers as CSV."""
    files = write(made.figure, path, formats)
    data = path.with_name(f"{path.name}.csv")
    made.data.to_csv(data, index=False, lineterminator="\n")
    return [*files, data]
