"""The commands of rlhf_lab_analysis, from any folder and beside anybody's own `analysis`."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

import rlhf_lab_analysis
from rlhf_lab.cli import analysis
from rlhf_lab.cli.main import run_command
from rlhf_lab.types.errors import UserError

NAMES = ("figures", "tables", "compare", "publication-tables")
RECORDED = Path(__file__).parents[1] / "data" / "run_of_0_1"
PACKAGE = Path(rlhf_lab_analysis.__path__[0])
# What `python -m` runs, with options of its own; TRL and vLLM have environments of their own.
PROGRAMS = sorted(
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
    if "ArgumentParser(" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", NAMES)
def test_its_help_lists_its_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(name, ["--help"]) == 0
    text = capsys.readouterr().out
    assert f"usage: rlhf-lab {name} " in text
    assert "--out" in text and f"example: rlhf-lab {name} " in text


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_help_of_a_program_lists_its_options(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        import_module(f"rlhf_lab_analysis.{name}").main()
    assert ended.value.code == 0
    assert "--help" in capsys.readouterr().out


def test_tables_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "tables.parquet"
    assert run_command("tables", [str(RECORDED), "--out", str(out)]) == 0
    assert out.is_file()
    assert "online_dpo-free" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_without_the_extra_it_names_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> None:
        raise ModuleNotFoundError("No module named 'pandas'", name="pandas")

    monkeypatch.setattr(analysis, "import_module", missing)
    with pytest.raises(UserError, match=r"needs the package pandas: pip install 'rlhf-lab\[ana"):
        run_command(name, ["runs", "--out", "somewhere"])
