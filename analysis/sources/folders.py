"""Read runs from run folders, and find jobs of a sweep that have no run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from rlhf_lab.runs.extents import Extent, difference, extent_of
from rlhf_lab.runs.folder import EVALS, METRICS, VALIDATION
from rlhf_lab.runs.jsonl import Rows, read_rows
from rlhf_lab.runs.manifest import fork_changes
from rlhf_lab.runs.provenance import short_commit
from rlhf_lab.runs.reading import Unreadable, checked, read_yaml
from rlhf_lab.runs.summaries import RunSummary, list_runs
from rlhf_lab.runs.trackers.identity import TrackedRun, tags
from rlhf_lab.runs.trackers.options import TrackerOptions
from rlhf_lab.sweeps.sweep_file import RECORD, job_folders, read_record, same_path
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.conditions import FORK_CHANGES, FORK_PARENT
from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.sources.record import Facts, Reading, Record, Row, Source, as_seed, flat
from rlhf_lab_analysis.sources.starts import kernels_of, precision_of

CONFIG = "config.yaml"
ROW_NUMBER = "step"


class TrackerConfig(TypedDict, total=False):
    sweep: str
    condition: str
    wandb_tags: list[str] | None


class TrackedConfig(TypedDict, total=False):
    """The nested values of config.yaml that are read; they must have these types."""

    tracker: TrackerConfig | None


# Parts of the config that the manifest has too, for a run without its config.yaml.
NAMED = ("task", "algo", "mode", "model", "correction")


def read_folder(root: Path) -> Reading:
    """Every run in a folder or below it. Damaged runs, and jobs of sweeps without a run, become
    findings."""
    runs = list_runs(root)
    sweeps = [path.parent for path in sorted(root.rglob(RECORD))]
    read = [record_of(run, root) for run in runs if run.state != "unreadable"]
    unreadable = [
        Finding(Kind.damaged, "", str(run.folder), f"{run.problem}: its run cannot be read")
        for run in runs
        if run.state == "unreadable"
    ]
    lacking = [one for folder in sweeps for one in check_sweep(folder, runs)]
    return Reading(tuple(read), (*unreadable, *lacking))


def record_of(run: RunSummary, root: Path) -> Record:
    """A run's folder as a record."""
    place, manifest = str(run.folder), run.manifest
    run_id = str(manifest.get("run_id") or place)
    problems: list[str] = [run.problem] if run.problem else []
    problems += check_rounds(run.folder, manifest)
    rounds = [drop_key(row, ROW_NUMBER) for row in read_rows_of(run.folder / METRICS, problems)]
    evals = [
        row
        for path, label in evaluation_files(run.folder)
        for row in read_evaluation(path, label, problems)
    ]
    config = {**config_of(run.folder, manifest, problems), **fork_of(manifest)}
    findings = (Finding(Kind.damaged, run_id, place, what) for what in dict.fromkeys(problems))
    facts = facts_of(manifest, config, run.state, str(root))
    return Record(Source.folder, run_id, place, facts, config, rounds, evals, tuple(findings))


def fork_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The id of a fork's parent and what the fork changed; nothing for a run that is no fork."""
    fork = manifest.get("fork")
    if not fork:
        return {}
    return {FORK_PARENT: fork["parent_id"], FORK_CHANGES: ", ".join(fork_changes(fork))}


def read_rows_of(path: Path, problems: list[str]) -> list[Row]:
    """The flat rows of a file; none if it is damaged, which is added to `problems`."""
    rows: Rows | Sequence[Mapping[str, Any]] = []
    try:
        rows = read_rows(path)
    except Unreadable as error:
        problems.append(str(error))
    return [flat(row) for row in rows]


def check_rounds(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    """A problem if the file of rounds is not the one that the run wrote."""
    wrote = manifest.get("records", {}).get(METRICS)
    if wrote is None:
        return []
    wanted = Extent(**wrote)
    path = folder / METRICS
    there = extent_of(path, wanted.size)
    return [] if there == wanted else [f"{path}: {difference(there, wanted)} that the run wrote"]


def drop_key(row: Row, name: str) -> Row:
    return {key: value for key, value in row.items() if key != name}


def evaluation_files(folder: Path) -> list[tuple[Path, str]]:
    """The files of a run's evaluations with the label of each, the one that a search reads where
    it pauses the run included."""
    stem = Path(EVALS).stem
    labelled = sorted(folder.glob(f"{stem}-*.jsonl"))
    named = [(path, path.stem[len(stem) + 1 :]) for path in labelled]
    return [(folder / EVALS, ""), *named, (folder / VALIDATION, Path(VALIDATION).stem)]


def read_evaluation(path: Path, label: str, problems: list[str]) -> list[Row]:
    return [{"label": label, **row} for row in read_rows_of(path, problems)]


def config_of(folder: Path, manifest: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """The resolved config; if it cannot be read, the parts of it that the manifest has."""
    known: dict[str, Any] = {name: {"name": manifest[name]} for name in NAMED if name in manifest}
    known |= {"run": dict(manifest.get("settings", {})), "seed": manifest.get("seed")}
    try:
        read = read_yaml(folder / CONFIG)
        checked(read, TrackedConfig, folder / CONFIG)
    except Unreadable as error:
        problems.append(str(error))
        return known
    return read


def facts_of(
    manifest: Mapping[str, Any], config: Mapping[str, Any], state: str, project: str
) -> Facts:
    """Facts of a run from its manifest, and its sweep from its config."""
    tracker = config.get("tracker") or {}
    sweep, commit = str(tracker.get("sweep", "")), short_commit(manifest)
    own = [str(tag) for tag in tracker.get("wandb_tags") or ()]
    # As a mirror would have them, so that a filter finds the run wherever it lies.
    tagged = TrackedRun(Path(), config, str(manifest.get("run_id", "")), commit=commit)
    return Facts(
        state=state,
        seed=as_seed(manifest.get("seed")),
        sweep=sweep,
        swept=str(tracker.get("condition", "")),
        project=project,
        code=str(manifest.get("code", "")),
        content=str(manifest.get("content", "")),
        commit=commit,
        started=str(manifest.get("started", "")),
        planned_rounds=manifest.get("num_rounds"),
        tags=tags(tagged, TrackerOptions(sweep=sweep, wandb_tags=own)),
        step="total/updates",
        machine=machine_of(manifest),
        kernels=kernels_of(manifest),
        precision=precision_of(manifest),
    )


def machine_of(manifest: Mapping[str, Any]) -> str:
    """Processor, cores and accelerator, as far as a manifest names them."""
    host = manifest.get("host") or {}
    cores = f"{host['cores']} cores" if "cores" in host else ""
    named = (host.get("cpu"), cores, manifest.get("accelerator"))
    return ", ".join(str(part) for part in named if part)


def check_sweep(folder: Path, runs: Sequence[RunSummary]) -> list[Finding]:
    """A finding for each job of a sweep without a run, or with a run of other settings."""
    try:
        sweep = read_record(folder)
    except UserError as error:
        return [Finding(Kind.damaged, "", str(folder), str(error))]
    here = {same_path(run.folder): run for run in runs}
    places = job_folders(folder, sweep)
    findings = []
    for name, content in sweep["jobs"].items():
        path = folder.absolute() / name
        run = here.get(places[name])
        if run is None:
            findings.append(
                Finding(Kind.absent, "", str(path), f"job {name} of {folder} has no run")
            )
        elif content != (theirs := run.manifest.get("content")):
            what = f"content {theirs}, but its sweep asked for {content}"
            run_id = str(run.manifest.get("run_id", ""))
            findings.append(Finding(Kind.other_config, run_id, str(run.folder), what))
    return findings
