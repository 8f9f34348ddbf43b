"""Folders of runs, sweeps and stages to damage, and everything of the lab that reads them."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import save_file

from rlhf_lab.cli import runs, timeline
from rlhf_lab.cli.arguments import overrides_again, overrides_of_replay, overrides_to_resume
from rlhf_lab.cli.samples import SampleChoice, sample_lines
from rlhf_lab.cli.sync import outboxes
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.config.typed import typed
from rlhf_lab.experiment.planning import planner
from rlhf_lab.experiment.publish.card import card
from rlhf_lab.experiment.publish.export import versions
from rlhf_lab.experiment.run.evaluate import saved_weights
from rlhf_lab.experiment.run.outputs import progress, refuse_occupied
from rlhf_lab.rollout.chunk_states import QueuedChunk
from rlhf_lab.rollout.recorded_schedule import read_schedule
from rlhf_lab.runs.folder import GROWING, ROLLOUTS
from rlhf_lab.runs.jsonl import JsonlFile
from rlhf_lab.runs.run_directory import RunDirectory
from rlhf_lab.runs.schema import RolloutSample
from rlhf_lab.runs.summaries import list_runs
from rlhf_lab.runs.timeline import read_virtual_spans
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.runs.trackers.mirrors import sent_digests
from rlhf_lab.sweeps.job import Job, JobTable
from rlhf_lab.sweeps.search.runs import usage_of
from rlhf_lab.training.checkpoint import Checkpoints
from rlhf_lab.training.checkpoint_files import Snapshot
from rlhf_lab.training.checkpoint_options import CheckpointOptions
from rlhf_lab.types.data import Weights
from rlhf_lab.types.rollouts import Chunk, Rollout, Span
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.plots.figure import draw
from rlhf_lab_analysis.plots.style import Style
from rlhf_lab_analysis.report.make import Options, html
from rlhf_lab_analysis.studies.compare import ENDS, print_means, requests_of
from rlhf_lab_analysis.tables.gather import gather
from rlhf_lab_analysis.tables.summary import show
from tests.support.composed import composed
from tests.support.fuzz import Case
from tests.support.table_records import evals, record, rounds, write_lines, write_run

ROUNDS = 4
SETTINGS = {
    "updates": ROUNDS, "groups_per_update": 4, "updates_per_round": 1, "passes": 1,
    "group_size": 2, "oversample": 1.0, "max_staleness": 1, "segment_tokens": 0,
    "num_generators": 1, "chunk_groups": 64, "compares": True,
}  # fmt: skip
MANIFEST: dict[str, Any] = {
    "state": "finished", "started": "2026-11-22T16:52:42+00:00", "run_id": "a",
    "command": "train", "primary_config": [], "overrides": ["debug=tiny", "mode=async"],
    "task": "arithmetic", "algo": "grpo", "correction": "none", "mode": "async",
    "model": "nano_s", "content": "c1", "changed": ["seed"], "log": None,
    "mode_settings": {"max_staleness": 1, "at_bound": "wait", "ahead": 1},
    "accelerator": None, "settings": SETTINGS, "versions": {"python": "3.11.7", "peft": None},
    "code": "c0de" * 4, "git": {"commit": "cc6846f6", "is_dirty": True},
    "host": {"name": "there", "platform": "Linux", "cpu": "x", "cores": 2, "memory_bytes": 2**34},
    "process": {"pid": 31575, "born": "1252580", "job": None}, "weights_digest": "b514",
    "wall_seconds": 40.0, "ended": "2026-11-22T16:52:53+00:00",
    "resumed": [{"after": "stopped", "at": "2026-11-22T16:52:50+00:00"}],
    "peak_memory_bytes": {"self": 2**29, "child": 2**28},
}  # fmt: skip
CLOCK = {
    f"seconds/{name}": 1.0
    for name in ("generate", "score", "train", "sync", "wait", "generator_wait", "other")
}
JUDGED: dict[str, Any] = {
    "gold/win_rate_low": 0.1, "gold/win_rate_high": 0.9, "gold/tie_rate": 0.0, "gold/mean": 0.5,
    "gold/reference_mean": 0.4, "proxy/mean": 0.1, "eval/prompts_unjudged": 0, "eval/samples": 1,
    "eval/split": "validation", "sample/eos_rate": 1.0, "timing/seconds": 1.0,
    "timing/samples_per_second": 16.0, "kl/sft_k3": 0.0, "eval/generated_tokens": 125,
}  # fmt: skip


def write_whole(folder: Path, run_id: str = "a", seed: int = 1, content: str = "c1") -> None:
    """All that a run of four rounds leaves behind, with a checkpoint of two and one of four."""
    extra = {"reward/mean_generated": 0.5, "kl/sampled_reference_k1": 0.1, **CLOCK}
    by_lag: dict[str, Any] = {"by_lag/ratio/mean": {"0": 1.0}}
    made = record(
        run_id,
        seed,
        rounds=rounds(ROUNDS, extra | by_lag),
        evals=evals((0, 2, ROUNDS), JUDGED),
    )
    write_run(folder, made, **MANIFEST | {"run_id": run_id, "seed": seed, "content": content})
    validation = {"validate": "proxy", "version": 4, "proxy/mean": 0.5, "timing/seconds": 0.1}
    write_lines(folder / "validation.jsonl", [validation])
    schedule = [
        {"round": n, "chunk": n, "segments": [[0, max(0, n - 1)]], "dropped": False}
        for n in range(ROUNDS)
    ]
    write_lines(folder / "schedule.jsonl", schedule)
    write_lines(folder / "timeline.jsonl", list(spans()))
    write_lines(folder / ROLLOUTS, [sampled_at(n).row() for n in range(ROUNDS)])
    for name in ("weights", "policy", "wandb"):
        (folder / name).mkdir()
    for version in (0, 2, ROUNDS):
        save_file({"a": torch.ones(3)}, folder / "weights" / f"{version:06d}.safetensors")
    (folder / "policy" / "config.json").write_text("{}")
    (folder / "wandb" / "evaluations.json").write_text('["a1b2c3d4"]\n')
    checkpoints = Checkpoints(folder / "checkpoints", CheckpointOptions(), growing(folder))
    for round_ in (2, ROUNDS):
        checkpoints.save(snapshot(round_))


def growing(folder: Path) -> list[JsonlFile]:
    return [JsonlFile(folder / name) for name in GROWING]


def sampled_at(round_: int) -> RolloutSample:
    """A sample that a round kept."""
    return RolloutSample(
        round=round_, updates=round_, prompt_id=round_, uid="a", sample=0, prompt="1 + 1 =",
        response="2", reward=1.0, credit=0.5, is_kept=True, version=max(0, round_ - 1),
        newest_version=max(0, round_ - 1), lag_rounds=min(1, round_), lag_updates=min(1, round_),
        tokens=2, finish="eos", steps=[],
    )  # fmt: skip


def spans() -> Iterator[dict[str, Any]]:
    """Rounds of eight seconds, which one generator writes ahead."""
    for n in range(ROUNDS):
        for lane, phase, start, end in (
            ("generator-0", "generate", 0, 4), ("generator-0", "score", 4, 5),
            ("trainer", "take", 0, 5), ("trainer", "reference", 5, 6),
            ("trainer", "update", 6, 7), ("trainer", "sync", 7, 8),
        ):  # fmt: skip
            chunk = n if lane != "trainer" else None
            span = {"lane": lane, "phase": phase, "start": 8.0 * n + start, "end": 8.0 * n + end}
            yield {**span, "round": n, "version": n, "chunk": chunk}


def chunk(number: int) -> Chunk:
    return Chunk(number, 0, (Prompt(number, (1, 2), Example("1", "a", "b")),), 1)


def snapshot(round_: int) -> Snapshot:
    whole = chunk(round_)
    groups = (
        Group(
            whole.prompts[0],
            (Sample((5, 6), (-0.1, -0.2), round_, Finish.length, "é", (3, 4)),),
            (0.5,),
        ),
    )
    tokens, seconds = {"generated_tokens": 2}, (Span("generate", 1.0, 2.0),)
    rollout = Rollout(whole, groups, ((0, round_),), tokens, seconds, 1)
    counters = {"budget": {"seen": 4, "refunds": 0, "held": []}, "taken_tokens": 5}
    ledger = {"seconds": {"save": 0.1}, "counts": {"rounds": round_}, "wall": 1.5, "lost": 0.0}
    queue = [
        QueuedChunk(round_, round_, True, rollout),
        QueuedChunk(round_ + 1, round_, False, None),
    ]
    weights = {round_: Weights(round_, {"a": torch.ones(3)})}
    return Snapshot(round_, weights, {"a/exp": torch.ones(3)}, counters, queue, ledger)


SILENT = Console(quiet=False)


@functools.cache
def config() -> Config:
    return typed(composed("debug=tiny", "mode=async"))


def write_sweep(folder: Path) -> None:
    """A sweep of two runs."""
    jobs = {"seed=1": "c1", "seed=2": "c2"}
    for seed, (name, content) in enumerate(jobs.items(), start=1):
        write_whole(folder / name, name, seed, content)
    sweep = {
        "command": "train", "name": "it", "fixed": ["debug=tiny"], "swept": {"seed": ["1", "2"]},
        "base": "ba5e", "code": "c0de", "jobs": jobs, "folders": {n: f"gone/{n}" for n in jobs},
        "started": "2026-11-22T16:52:42+00:00",
    }  # fmt: skip
    (folder / "sweep.json").write_text(json.dumps(sweep))


def listed(folder: Path) -> None:
    """`rlhf-lab runs`: the good run is there, whatever became of the other."""
    states = {run.name: run.state for run in list_runs(folder)}
    assert states["seed=2"] == "finished", states
    runs.RUNS.run([str(folder)], SILENT)


def tabled(folder: Path) -> None:
    tables = gather([str(folder)])
    assert "seed=2" in set(tables.runs["run"])
    has_manifest = os.path.lexists(folder / "seed=1" / "manifest.json")
    assert len(tables.runs) == 2 or tables.findings or not has_manifest


def reported(folder: Path) -> None:
    assert "seed=2" in html(gather([str(folder)]), Options(beside=folder))


def compared(folder: Path) -> None:
    tables = gather([str(folder)])
    selection = cells(tables)
    assert 2 in [seed for cell in selection.cells for seed in cell.seeds]
    show(tables, SILENT)
    print_means(ENDS, draw(selection, requests_of(selection, "")[ENDS], Style()), SILENT)


def watched(folder: Path) -> None:
    none = Path("nowhere")
    jobs = [
        Job(f"seed={seed}", (), (), folder / f"seed={seed}", none, none, f"c{seed}", (), ROUNDS)
        for seed in (1, 2)
    ]
    table = JobTable(jobs, 1)
    rows = table.read()
    assert [row.state for row in rows][1] == "finished"
    table.seconds_left(rows)


def drawn(folder: Path) -> None:
    found = timeline.drawable_spans(folder)
    timeline.html(found, timeline.heading("run", found))
    read_virtual_spans(folder)


def sampled(folder: Path) -> None:
    list(sample_lines(folder, SampleChoice(count=2), 60))


def planned(folder: Path) -> None:
    planner.show(folder, ["mode=sync,async"], SILENT)


def replayed(folder: Path) -> None:
    overrides_of_replay(folder, [])
    recipe: Any = SimpleNamespace(num_rounds=ROUNDS)
    read_schedule(folder, config().mode, recipe, config().generator)


def resumed(folder: Path) -> None:
    """What is read before a run goes on; another checkpoint is taken where one is damaged."""
    overrides_to_resume(folder, [])
    RunDirectory.resume(folder, {"changed": MANIFEST["changed"]}, "seed: 1\n")
    refuse_occupied(folder)
    checkpoints = Checkpoints(folder / "checkpoints", CheckpointOptions(), growing(folder))
    found = checkpoints.newest(chunk, print)
    progress(folder)
    checkpoints.cut_records(found.round if found else 0)


def evaluated(folder: Path) -> None:
    overrides_again(folder, [])
    saved_weights(folder)
    sent_digests(folder)
    list(outboxes(folder))
    usage_of(folder)


def exported(folder: Path) -> None:
    for version in versions(config(), folder):
        card(config(), folder, version)


CASES = (
    Case(
        "runs",
        write_sweep,
        {"list": listed, "tables": tabled, "compare": compared, "board": watched},
        ("seed=1", "sweep.json"),
    ),
    Case("page", write_sweep, {"report": reported}, ("seed=1", "sweep.json")),
    Case(
        "run",
        write_whole,
        {
            "timeline": drawn,
            "samples": sampled,
            "plan": planned,
            "replay": replayed,
            "resume": resumed,
            "evaluate": evaluated,
            "export": exported,
        },
    ),
)
