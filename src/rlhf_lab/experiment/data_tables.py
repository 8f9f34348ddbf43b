"""The tables of `rlhf-lab data`, and what their numbers mean for a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.derived import has_references
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.audit import Overlap, Repeats, SplitAudit
from rlhf_lab.tasks.references import LongReferences, reference_form

# What becomes of them.
OF_LONG = {
    LongReferences.left_out: "SFT leaves them out, evaluation cuts them without an end token",
    LongReferences.cut: "SFT and evaluation cut them without an end token",
    LongReferences.cut_with_end: (
        "SFT and evaluation cut them and put an end token behind the cut, which teaches to stop "
        "there"
    ),
}


def show_tables(
    config: Config,
    console: Console,
    audits: Sequence[SplitAudit],
    overlaps: Sequence[Overlap],
    has_tokens: bool,
) -> None:
    """Tables, then what they mean for a run."""
    console.table(
        f"rows of task={config.task.name}",
        ["split", "rows", "same prompt", "nearly the same", "same id"],
        [
            [
                a.split.value,
                f"{a.rows:,}",
                *(share(r.num, a.rows) for r in (a.same, a.near)),
                ids(a),
            ]
            for a in audits
        ],
    )
    show_columns(config, console, audits)
    counted = f", tokens of model={config.model.name}" if has_tokens else ""
    console.table(
        f"\nlengths{counted}",
        ["split", "of", "min", "mean", "median", "p95", "max", "limit", "over"],
        [row for a in audits for row in length_rows(a, has_references(config))],
    )
    if overlaps:
        console.table(
            f"\noverlap of prompts ({config.data.ngram} words in a row, in {config.data.common} "
            "rows at most)",
            ["prompts of", "in", "overlap", "same words throughout"],
            [
                [o.of.value, o.against.value, share(o.num, o.total), share(o.num_equal, o.total)]
                for o in overlaps
            ],
        )
    lines = [line for audit in audits for line in remarks(config, audit)]
    console.print("\n".join(["", *lines, *overlap_lines(overlaps)]))


def show_columns(config: Config, console: Console, audits: Sequence[SplitAudit]) -> None:
    """The columns of every split, how often they are empty, and if the task knows, their use."""
    task = config.task
    uses = task.uses()
    rows = [
        [a.split.value, name, share(a.empty[name], a.rows), used_as(name, uses)]
        for a in audits
        for name in a.columns
    ]
    if rows and uses:
        console.table("\ncolumns", ["split", "column", "empty", "used as"], rows)
    elif rows:
        console.table("\ncolumns", ["split", "column", "empty"], [row[:3] for row in rows])
    for note in task.notes():
        console.print(note)


def used_as(column: str, uses: Mapping[str, str]) -> str:
    """What a column is used for; of an object, what the parts of it are used for."""
    inner = [f"{use} ({name})" for name, use in uses.items() if name.startswith(f"{column}.")]
    return ", ".join([*([uses[column]] if column in uses else []), *inner]) or "-"


def ids(audit: SplitAudit) -> str:
    """Repeated ids, a dash where rows have none."""
    has_ids = any(name in audit.columns for name in ("id", "uid"))
    return share(audit.ids.num, audit.rows) if has_ids else "-"


def share(part: int, whole: int) -> str:
    """`12 (0.9%)`, or `0`."""
    if not part:
        return "0"
    percent = 100 * part / whole
    return f"{part:,} ({percent:.0f}%)" if percent >= 10 else f"{part:,} ({percent:.2g}%)"


def length_rows(audit: SplitAudit, has_references: bool) -> list[list[str]]:
    """The table's rows of one split, characters before tokens."""
    rows = []
    for kind, lengths in sorted(audit.lengths.items()):
        if kind.startswith("reference") and not has_references:
            continue
        limit = [f"{lengths.limit:,}", share(lengths.num_over, lengths.num)]
        quantiles = [f"{lengths.quantile(q):,}" for q in (0.5, 0.95, 1.0)]
        rows.append(
            [
                audit.split.value,
                kind,
                f"{lengths.quantile(0.0):,}",
                f"{lengths.mean:,.1f}",
                *quantiles,
                *(limit if lengths.limit else ["-", "-"]),
            ]
        )
    return rows


def remarks(config: Config, audit: SplitAudit) -> list[str]:
    """What a run would do about a split, and rows that repeat."""
    limit = config.task.max_prompt_tokens
    lines = []
    if audit.shortened:
        lines.append(f"{audit.split.value}: {audit.shortened:,} prompts are shortened to {limit}")
    if audit.too_long:
        lines.append(
            f"{audit.split.value}: {len(audit.too_long):,} prompts have more than "
            f"task.max_prompt_tokens={limit}; a run stops at the first: raise it, or pass data.out"
        )
    references, long = audit.lengths.get("reference tokens"), reference_form(config.task).long
    if references and references.num_over and has_references(config):
        lines.append(
            f"{audit.split.value}: {references.num_over:,} of {references.num:,} references have "
            f"more than {references.limit} tokens: {OF_LONG[long]} "
            f"(task.long_references={long})"
        )
    kinds: dict[str, Repeats] = {
        "the prompt of": audit.same,
        "nearly the prompt of": audit.near,
        "the id of": audit.ids,
    }
    for kind, repeats in kinds.items():
        lines += [f"{audit.split.value}: {row} has {kind} {first}" for row, first in repeats.named]
    return lines


def overlap_lines(overlaps: Sequence[Overlap]) -> list[str]:
    """The first few prompts that overlap, and what they share."""
    return [
        f"{o.of.value}: {row} shares with {other} of {o.against.value}: {text}"
        for o in overlaps
        for row, other, text in o.named
    ]
