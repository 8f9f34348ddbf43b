"""The command that writes notebooks: which ones it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_lab_analysis.notebooks import __main__ as command
from rlhf_lab_analysis.notebooks.pairing import scripts


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the notebooks that are written, none of which is run."""
    names: list[str] = []

    def write(script: Path, folder: Path | None) -> Path:
        names.append(script.stem)
        return script.with_suffix(".ipynb")

    monkeypatch.setattr(command, "write", write)
    return names


def test_named_notebooks_are_written_once_in_their_order(written: list[str]) -> None:
    assert command.main(["paper_tables", "paper_figures", "paper_tables"]) == 0
    assert written == ["paper_tables", "paper_figures"]


def test_all_are_written_without_a_name(written: list[str]) -> None:
    assert command.main([]) == 0
    assert written == [script.stem for script in scripts()]


def test_an_unknown_name_is_refused_before_any_is_run(
    written: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["paper_tables", "figure_33"]) == 2
    error = capsys.readouterr().err
    assert "figure_33: there is no such notebook, choose from" in error and "paper_tables," in error
    assert not written


def test_an_unknown_option_is_refused(written: list[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--all"])
    assert not written
