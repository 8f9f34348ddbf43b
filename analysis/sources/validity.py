"""Clean records of any source so that tables can hold them, and report what is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.sources.record import EXACT, Facts, Reading, Record, Row, whole

WHOLE_FACTS = ("seed", "planned_rounds")


def clean_reading(reading: Reading) -> Reading:
    """The reading with evaluations whose versions are whole numbers, cells that are numbers or
    texts, and texts that can be written down; a finding names what was left out."""
    findings = (replace(one, place=writable(one.place)) for one in reading.findings)
    return Reading(tuple(map(clean_record, reading.records)), tuple(findings))


def clean_record(record: Record) -> Record:
    problems: list[str] = []
    facts = clean_facts(record.facts, problems)
    rounds = [cells(row, problems) for row in record.rounds]
    judged = [cells(row, problems) for row in record.evals]
    evals = [{**row, "version": version_of(row)} for row in judged if has_version(row)]
    if lost := [row.get("version") for row in judged if not has_version(row)]:
        problems.append(
            f"{len(lost)} evaluations are left out, since their version is no whole number from 0 "
            f"on, the first of them {shown(lost[0])}"
        )
    run, place = writable(record.run), writable(record.place)
    found = (Finding(Kind.damaged, run, place, what) for what in dict.fromkeys(problems))
    return replace(
        record, run=run, place=place, facts=facts, rounds=rounds, evals=evals,
        findings=(*record.findings, *found),
    )  # fmt: skip


def clean_facts(facts: Facts, problems: list[str]) -> Facts:
    """Facts whose numbers fit a column and whose texts can be written down."""
    changed: dict[str, Any] = {}
    for name in WHOLE_FACTS:
        value = getattr(facts, name)
        if value is not None and (known := whole(value)) != value:
            changed[name] = known
            problems.append(f"{name} is {shown(value)}, which is no whole number")
    texts = {field.name: getattr(facts, field.name) for field in fields(facts)}
    for name, value in texts.items():
        if isinstance(value, str) and writable(value) != value:
            changed[name] = writable(value)
    return replace(facts, **changed)


def cells(row: Row, problems: list[str]) -> Row:
    """A row without what is neither a number nor a text."""
    if all(type(value) in (int, float, str) for value in row.values()):
        return row
    kept = {}
    for name, value in row.items():
        if isinstance(value, int | float | str):
            kept[name] = value
        else:
            problems.append(f"{name} holds {type(value).__name__}, not numbers: it is left out")
    return kept


def version_of(row: Mapping[str, Any]) -> int:
    """The version that a row evaluates, -1 if it is no whole number."""
    found = whole(row.get("version"))
    return -1 if found is None else found


def has_version(row: Mapping[str, Any]) -> bool:
    return 0 <= version_of(row) <= EXACT


def writable(text: str) -> str:
    """A text with what no file can hold, such as the bytes of a name that is not UTF-8, written
    out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def shown(value: object) -> str:
    return repr(value)[:60]
