"""What other projects call the options, by other_names.yaml: answers to wrong names, a table."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml

PROJECTS = {"trl": "TRL", "verl": "verl", "openrlhf": "OpenRLHF", "cleanrl": "CleanRL"}
LAUNCHER = "hydra.launcher."


@dataclass(frozen=True)
class OtherName:
    """What one thing is called here and elsewhere.

    here: overrides with a value, blanks between those that belong together, ` or ` between others;
    "" where there is no such thing. trl, verl, openrlhf, cleanrl: names of these projects. other:
    names of tables, manifests and further programs. note: what differs, or why there is none.
    beside: overrides that the examples compose with, ` or ` between them.
    """

    here: str
    trl: Sequence[str] = ()
    verl: Sequence[str] = ()
    openrlhf: Sequence[str] = ()
    cleanrl: Sequence[str] = ()
    other: Sequence[str] = ()
    note: str = ""
    beside: str = ""

    def of(self, project: str) -> Sequence[str]:
        """The names that a project has for it."""
        names: Sequence[str] = getattr(self, project)
        return names

    @property
    def names(self) -> list[str]:
        return [name for project in (*PROJECTS, "other") for name in self.of(project)]

    @property
    def examples(self) -> list[list[str]]:
        """The overrides of each way to say it here."""
        return [one.split() for one in self.here.split(" or ")] if self.here else []

    @property
    def shown(self) -> list[str]:
        """The same as a reader needs it: keys without the value, options of groups with it."""
        return [" ".join(map(without_value, words)) for words in self.examples]

    @property
    def answer(self) -> str:
        """What a refusal of another name adds."""
        if not self.here:
            return f"there is none here: {self.note}"
        *most, last = self.shown
        question = f"did you mean {', '.join(most)}{' or ' if most else ''}{last}?"
        return f"{question} {self.note}".strip()


def without_value(override: str) -> str:
    key, _, _ = override.partition("=")
    return key if "." in key else override


@functools.cache
def content() -> Any:
    text = files(__package__).joinpath("other_names.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


@functools.cache
def table() -> tuple[OtherName, ...]:
    """Every row."""
    return tuple(OtherName(**row) for row in content()["rows"])


@functools.cache
def by_name() -> dict[str, list[OtherName]]:
    """The rows that have each name."""
    found: dict[str, list[OtherName]] = {}
    for row in table():
        for name in dict.fromkeys(row.names):
            found.setdefault(name, []).append(row)
    return found


def answer_to(name: str) -> str:
    """The answer to a name that another project has for something, or sbatch for an option of
    launcher=slurm; `''` for any other. Its last part is looked up too: `run.num_rounds`."""
    plain = name.strip("-").replace("-", "_")
    if plain.startswith(LAUNCHER):
        return answer_to_launcher(plain.removeprefix(LAUNCHER))
    rows = by_name().get(plain) or by_name().get(plain.rpartition(".")[2], [])
    return "; ".join(row.answer for row in rows)


def answer_to_launcher(name: str) -> str:
    """The answer to a name below hydra.launcher that the chosen launcher does not have."""
    own = content()["sbatch"]
    if name in own:
        return f"did you mean {LAUNCHER}{own[name]}, with launcher=slurm?"
    option = f"{name.replace('_', '-')}: VALUE"
    return (
        "docs/slurm.md lists the keys of launcher=slurm, which passes any other option of sbatch "
        f"as '+{LAUNCHER}additional_parameters={{{option}}}'; launcher=joblib has {LAUNCHER}n_jobs"
    )


def option_for(group: str, name: str) -> list[str]:
    """The option of a group that others call so, if any."""
    options = content()["options"].get(group, {})
    return [own for own, others in options.items() if name.lower().replace("-", "_") in others]


def page_table() -> Iterator[str]:
    """The lines of the table of docs/coming_from.md."""
    yield f"| here | {' | '.join(PROJECTS.values())} | |"
    yield "|---|" + "---|" * (len(PROJECTS) + 1)
    for row in table():
        if any(map(row.of, PROJECTS)):
            names = [", ".join(map(code, row.of(project))) for project in PROJECTS]
            here = " or ".join(map(code, row.shown)) or "none"
            yield f"| {' | '.join([here, *names, row.note])} |"


def code(text: str) -> str:
    return f"`{text}`"
