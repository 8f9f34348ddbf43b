"""The commands of rlhf_lab_analysis, from any folder and beside anybody's own `analysis`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_lab.cli import analysis_command
from rlhf_lab.cli.main import run_command
from rlhf_lab.types.errors import UserError

NAMES = ("figures", "tables", "compare", "publication-tables")
RECORDED = Path(__file__).parents[1] / "data" / "run_of_0_1"


@pytest.mark.parametrize("name", NAMES)
def test_its_help_lists_its_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(name, ["--help"]) == 0
    text = capsys.readouterr().out
    assert f"usage: rlhf-lab {name} " in text
    assert "--out" in text and f"example: rlhf-lab {name} " in text


def test_tables_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "tables.parquet"
    assert run_command("tables", [str(RECORDED), "--out", str(out)]) == 0
    assert out.is_file()
    assert "online_dpo-free" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_without_the_extra_it_names_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> None:
        raise ModuleNotFoundError("No module named 'pandas'", name="pandas")

    monkeypatch.setattr(analysis_command, "import_module", missing)
    with pytest.raises(UserError, match=r"needs the package pandas: pip install 'rlhf-lab\[ana"):
        run_command(name, ["runs", "--out", "somewhere"])
