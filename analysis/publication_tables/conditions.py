"""The conditions of a table: the order of its rows, and the columns that identify them."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_lab.runs.trackers.console import counted
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.baselines import baseline_of, setting_of, usual_setting
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.claims import Pair
from rlhf_lab_analysis.comparison.names import TASK, named_value, within_sweeps
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.plots.style import Style
from rlhf_lab_analysis.ranges import first_few, listed, span_text
from rlhf_lab_analysis.words import in_words


class Conditions:
    """Conditions by sweep, task, and what they differ in within a sweep, which is their name.
    Raises UserError where the style's order has a name that no condition has."""

    def __init__(self, selection: Selection, style: Style) -> None:
        self.namings = within_sweeps(selection.cells, [TASK])
        self._names = {c: one.names[i] for one in self.namings for i, c in enumerate(one.cells)}
        style.check_order(self._names.values())
        places = {name: place for place, name in enumerate(style.ordered(style.order))}
        self.cells = sorted(
            self._names,
            key=lambda cell: (
                cell.sweep,
                task_of(cell),
                places.get(self._names[cell], len(places)),
            ),
        )
        self._titles = {cell: style.text(name) for cell, name in self._names.items()}
        self.selection = selection
        several = {"sweep": {c.sweep for c in self.cells}, TASK: {*map(task_of, self.cells)}}
        self._origins = [name for name, values in several.items() if len(values) > 1]

    @property
    def heads(self) -> tuple[str, ...]:
        """The columns that identify a condition: sweep and task where they differ, and its name."""
        return (*self._origins, "condition")

    def entries(self, cell: Cell) -> tuple[str, ...]:
        values = {"sweep": cell.sweep or "(none)", TASK: in_words(task_of(cell))}
        return (*(values[name] for name in self._origins), self._titles[cell])

    @property
    def left_out(self) -> list[str]:
        """How many runs do not count, and the first of them; nothing if all do."""
        lines = [line.removeprefix("left out: ") for line in self.selection.left_out]
        return [f"{len(lines)} left out: {'; '.join(first_few(lines))}"] if lines else []

    def title(self, cell: Cell) -> str:
        return self._titles[cell]

    def pairs(self, baseline: str) -> tuple[list[Pair], list[str]]:
        """Every condition with its baseline, and notes on those that have none. baseline:
        KEY=VALUE or a condition's name; empty: the usual one of each sweep. Raises UserError for a
        key in which no conditions of a sweep differ."""
        setting, names = setting_of(baseline), dict.fromkeys(self._names.values())
        keys = dict.fromkeys(key for one in self.namings for key in one.keys)
        if baseline and baseline not in names and (setting[0] not in keys or not setting[1]):
            raise UserError(
                f"--baseline {baseline}: pass KEY=VALUE with a key of {listed(keys) or 'none'}, or "
                f"one of {'; '.join(names)}"
            )
        both = [(cell, self._baseline(cell, baseline)) for cell in self.cells]
        lacking = [self.title(cell) for cell, base in both if base is None]
        notes = [f"without a baseline: {'; '.join(first_few(lacking))}"] if lacking else []
        return [(cell, base) for cell, base in both if base not in (None, cell)], notes

    def _baseline(self, cell: Cell, baseline: str) -> Cell | None:
        (own,) = (one for one in self.namings if cell in one.cells)
        beside = [one for one in own.cells if task_of(one) == task_of(cell)]
        if named := [one for one in beside if self._names[one] == baseline]:
            return named[0]
        setting = setting_of(baseline) if baseline else usual_setting(beside, own.keys)
        return baseline_of(cell, beside, own.keys, setting) if setting else None


def task_of(cell: Cell) -> str:
    return str(named_value(cell, TASK))


def runs_text(cells: Sequence[Cell]) -> str:
    """How many runs, conditions and seeds a table shows: `12 runs of 4 conditions, n = 3 seeds`."""
    runs = counted(sum(cell.num_runs for cell in cells), "run")
    counts = {len(cell.seeds) for cell in cells}
    seeds = f"{cells[0].unit}{'' if counts == {1} else 's'}"
    conditions = counted(len(cells), "condition")
    return f"{runs} of {conditions}, n = {span_text([*counts])} {seeds}."
