"""What a run that is resumed prints before it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlhf_lab.experiment.run.lifecycle import resume_text
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.runs.run_directory import RunDirectory

CPU = {"engine": {"device": "cpu", "dtype": "float32", "micro_tokens": 0, "tf32": False}}
GPU = {"engine": {"device": "cuda", "dtype": "bfloat16", "micro_tokens": 9, "tf32": False}}


def manifest(precision: dict[str, Any]) -> dict[str, Any]:
    return {"precision": precision}


def test_a_run_that_goes_on_with_another_precision_is_warned_of(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    RunDirectory.create(folder, manifest(GPU), "").finish("stopped")
    (folder / "checkpoints" / "00000001").mkdir(parents=True)
    same = RunDirectory.resume(folder, manifest(GPU), "")
    assert resume_text(same.manifest, folder) == ""
    same.finish("stopped")
    other = RunDirectory.resume(folder, manifest(CPU), "")
    assert resume_text(other.manifest, folder) == (
        "warning: it computed with engine bfloat16 on cuda before, and goes on with engine float32 "
        "on cpu: its rounds compare with no run of one kind; name engine.device and engine.dtype "
        "to keep the former"
    )
    told = [again["precision"] for again in read_manifest(folder / "manifest.json")["resumed"]]
    assert told == ["engine bfloat16 on cuda"] * 2
