"""`rlhf-lab sweep`: by the name of a shipped file or by the path of one's own, from any folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_lab.cli.main import run_command
from rlhf_lab.cli.sweep import flags_of
from rlhf_lab.sweeps.options import questions, sweeps_folder
from rlhf_lab.types.errors import UserError
from tests.support.examples import call

OWN = """
# Does it matter?
defaults:
  - config
  - base: nano
  - _self_
  - override task: arithmetic
hydra:
  mode: MULTIRUN
  sweeper:
    params:
      seed: 1,2
"""


def test_every_shipped_sweep_is_listed_with_its_question(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command("sweep", []) == 2
    text = capsys.readouterr().err
    assert run_command("sweep", ["--help"]) == 0
    assert capsys.readouterr().out == text
    for path in sweeps_folder().glob("*.yaml"):
        assert f"  {path.stem} " in text
    assert all(question.endswith("?") for question in questions().values())


def test_a_name_and_a_path_choose_the_primary_config(tmp_path: Path) -> None:
    words = ["dry=true", "seed=1,2", "layout=1x2:1+1"]
    folder = str(sweeps_folder())
    assert flags_of(["staleness_nano", *words]) == [
        *("-m", "--config-dir", folder, "--config-name", "staleness_nano"),
        *("hydra.sweeper.dry=true", "seed=1,2", "hydra.sweeper.layout=1x2:1+1"),
    ]
    (tmp_path / "own.yaml").write_text(OWN)
    chosen = flags_of([f"{tmp_path}/own.yaml"])
    assert chosen == ["-m", "--config-dir", str(tmp_path), "--config-name", "own"]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("stalenes_nano", "is no sweep of this package: did you mean staleness_nano"),
        ("xyz", "`rlhf-lab sweep` lists them"),
        ("nowhere/own.yaml", "is no file"),
    ],
)
def test_what_is_no_sweep_is_refused(name: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        run_command("sweep", [name])


def test_a_file_of_ones_own_begins_with_what_this_package_ships(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "questions").mkdir()
    (tmp_path / "questions/own.yaml").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    words = ["questions/own.yaml", "dry=true", f"output.cache={tmp_path}/cache"]
    assert call("sweep", *words, monkeypatch=monkeypatch) == 0
    text = capsys.readouterr().out
    assert "sweep runs/own" in text
    assert f"--config-dir {tmp_path}/questions --config-name own" in text
    assert text.count("[new]") == 2
    assert not (tmp_path / "runs").exists()
