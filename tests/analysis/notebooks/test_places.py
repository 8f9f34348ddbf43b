"""Which folder a relative path of RLHF_LAB_TABLES is looked for in."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.notebooks.view import from_start


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where jupyter was started; the kernel stands in that of the notebooks."""
    notebooks = tmp_path / "project" / "analysis" / "notebooks"
    notebooks.mkdir(parents=True)
    monkeypatch.setenv("PWD", str(tmp_path / "project"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(notebooks)
    return tmp_path / "project"


def test_a_relative_path_is_one_of_the_folder_where_jupyter_was_started(project: Path) -> None:
    (project / "runs" / "one").mkdir(parents=True)
    (project / "analysis" / "notebooks" / "runs" / "one").mkdir(parents=True)
    assert from_start("runs/one") == str(project / "runs" / "one")


def test_or_one_of_the_notebook(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "analysis" / "notebooks" / "own").mkdir()
    assert from_start("own") == str(project / "analysis" / "notebooks" / "own")
    monkeypatch.delenv("PWD")
    assert from_start("own") == str(project / "analysis" / "notebooks" / "own")


def test_the_home_folder_whole_paths_and_trackers_stay_what_they_are(project: Path) -> None:
    assert from_start("~/runs") == str(project.parent / "runs")
    assert from_start("/runs/one") == "/runs/one"
    assert from_start("wandb:team/project") == "wandb:team/project"


def test_what_is_nowhere_is_refused_with_both_folders(project: Path) -> None:
    with pytest.raises(UserError, match=f"RLHF_LAB_TABLES=runs/two: .*{project}.*a whole path"):
        from_start("runs/two")
