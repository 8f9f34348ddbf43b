"""Read runs from run folders, and find jobs of a sweep that have no run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from rlhf_lab.runs.folder import EVALS, MANIFEST, METRICS, VALIDATION
from rlhf_lab.runs.identity import RULE
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.manifest import fork_changes, read_manifest, state_in
from rlhf_lab.runs.provenance import short_commit
from rlhf_lab.runs.reading import Unreadable, checked, read_yaml
from rlhf_lab.runs.trackers.mirrors import TrackedRun, tags
from rlhf_lab.runs.trackers.options import TrackerOptions
from rlhf_lab.runs.verification import changed_files, contradictions
from rlhf_lab.runs.walk import is_run, walk
from rlhf_lab.sweeps.sweep_file import RECORD, job_folders, read_record, same_path
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.conditions import FORK_CHANGES, FORK_PARENT
from rlhf_lab_analysis.sources.damage import damage_finding
from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.sources.record import (
    Cell,
    Facts,
    Reading,
    Record,
    Row,
    Source,
    as_seed,
    flat,
)
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
    problems: list[Unreadable] = []
    found = sorted(walk(root, problems), key=lambda one: str(one[0]))
    records, findings = [], list(map(damage_finding, problems))
    manifests: dict[Path, Mapping[str, Any]] = {}
    for folder in (folder for folder, files in found if is_run(files)):
        place = same_path(folder)
        try:
            manifests[place] = read_manifest(folder / MANIFEST)
        except Unreadable as error:
            manifests[place] = {}
            what = f"{MANIFEST} is damaged: {error}: its run cannot be read"
            findings.append(Finding(Kind.damaged, "", str(folder), what))
        else:
            records.append(record_of(folder, manifests[place], root))
    sweeps = (folder for folder, files in found if RECORD in files)
    findings += [one for folder in sweeps for one in check_sweep(folder, manifests)]
    return Reading(tuple(records), tuple(findings))


def record_of(folder: Path, manifest: Mapping[str, Any], root: Path) -> Record:
    """A run's folder as a record."""
    run_id = str(manifest.get("run_id") or folder)
    problems = changed_files(folder, manifest)
    rounds = read_rows_of(folder / METRICS, problems)
    for row in rounds:
        row.pop(ROW_NUMBER, None)
    evals = [
        row
        for path, label in evaluation_files(folder)
        for row in read_evaluation(path, label, problems)
    ]
    config = {**config_of(folder, manifest, problems), **fork_of(manifest)}
    findings = (Finding(Kind.damaged, run_id, str(folder), one) for one in dict.fromkeys(problems))
    facts = facts_of(manifest, config, str(root))
    return Record(Source.folder, run_id, str(folder), facts, config, rounds, evals, tuple(findings))


def fork_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The id of a fork's parent and what the fork changed; nothing for a run that is no fork."""
    fork = manifest.get("fork")
    if not fork:
        return {}
    return {FORK_PARENT: fork["parent_id"], FORK_CHANGES: ", ".join(fork_changes(fork))}


def read_rows_of(path: Path, problems: list[str]) -> list[dict[str, Cell]]:
    """The flat rows of a file; none if it is damaged. Damage and a cut line are added to
    `problems`."""
    try:
        rows = read_rows(path)
    except Unreadable as error:
        problems.append(str(error))
        return []
    if rows.is_cut:
        problems.append(f"the last line of {path.name} was cut")
    problems += contradictions(rows, path)
    return [flat(row) for row in rows]


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


def facts_of(manifest: Mapping[str, Any], config: Mapping[str, Any], project: str) -> Facts:
    """Facts of a run from its manifest, and its sweep from its config."""
    tracker = config.get("tracker") or {}
    sweep, commit = str(tracker.get("sweep", "")), short_commit(manifest)
    own = [str(tag) for tag in tracker.get("wandb_tags") or ()]
    # As a mirror would have them, so that a filter finds the run wherever it lies.
    tagged = TrackedRun(Path(), config, str(manifest.get("run_id", "")), commit=commit)
    return Facts(
        state=state_in(manifest),
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
        changed=frozenset(manifest["changed"]) if "changed" in manifest else None,
    )


def machine_of(manifest: Mapping[str, Any]) -> str:
    """Processor, cores and accelerator, as far as a manifest names them."""
    host = manifest.get("host") or {}
    cores = f"{host['cores']} cores" if "cores" in host else ""
    named = (host.get("cpu"), cores, manifest.get("accelerator"))
    return ", ".join(str(part) for part in named if part)


def is_other(content: str, theirs: str) -> bool:
    """Whether two hashes of settings differ that were taken by the same rule."""
    return content != theirs and content.startswith(RULE) == theirs.startswith(RULE)


def check_sweep(folder: Path, manifests: Mapping[Path, Mapping[str, Any]]) -> list[Finding]:
    """A finding for each job of a sweep without a run, or with a run of other settings. manifests:
    by the folder of the run."""
    try:
        sweep = read_record(folder)
    except UserError as error:
        return [Finding(Kind.damaged, "", str(folder), str(error))]
    places = job_folders(folder, sweep)
    findings = []
    for name, content in sweep["jobs"].items():
        manifest = manifests.get(places[name])
        if manifest is None:
            path, what = folder.absolute() / name, f"job {name} of {folder} has no run"
            findings.append(Finding(Kind.absent, "", str(path), what))
        elif is_other(content, theirs := str(manifest.get("content"))):
            what = f"content {theirs}, but its sweep asked for {content}"
            run_id = str(manifest.get("run_id", ""))
            findings.append(Finding(Kind.other_config, run_id, str(places[name]), what))
    return findings
