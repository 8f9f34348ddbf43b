"""The command that draws figures: files beside each other, the same bytes, what is not drawn."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.figures import __main__ as command
from rlhf_lab_analysis.figures.__main__ import main
from rlhf_lab_analysis.figures.catalogue import FIGURES, draw, draw_pages
from rlhf_lab_analysis.figures.style import write
from rlhf_lab_analysis.tables.gather import gather
from rlhf_lab_analysis.tables.store import save
from rlhf_lab_analysis.words import KL
from tests.support.figure_tables import EVERY, end_of, grid, run_of
from tests.support.table_records import tables

pytestmark = pytest.mark.usefixtures("costly")

PPL = "ppl/sft_paper"
FIG3 = "fig3_off_policy_ladder"
NAMES = ["a$b$_%", "online_dpo"]
CONDITIONS = [{"algo": name, "updates_per_round": n} for name in NAMES for n in (1, 4)]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stored") / "tables.parquet"
    save(grid(CONDITIONS), path)
    return path


@pytest.fixture(scope="module")
def folder(stored: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command writes of a figure, in all formats."""
    out = tmp_path_factory.mktemp("written")
    assert main([str(stored), "--out", str(out), "--only", FIG3]) == 0
    return out


def test_a_figure_has_its_data_and_caption_beside_it(folder: Path) -> None:
    kinds = ("png", "pdf", "svg", "csv", "txt")
    assert {path.name for path in folder.iterdir()} == {f"{FIG3}.{kind}" for kind in kinds}
    made = draw(FIG3, grid(CONDITIONS))
    assert (folder / f"{FIG3}.txt").read_text(encoding="utf-8") == made.caption + "\n"
    read = pd.read_csv(folder / f"{FIG3}.csv")
    pd.testing.assert_frame_equal(read[["x", "y", "low"]], made.data[["x", "y", "low"]])


def test_what_was_drawn_and_what_was_not_is_said(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--out", str(tmp_path), "--formats", "svg", "--only", FIG3, "staleness"]
    assert main([str(stored), *asked]) == 0
    said = capsys.readouterr().out
    assert "not drawn: staleness: it needs" in said and "staleness[_nano]" in said
    assert f"drew {tmp_path / FIG3}" in said.replace("\n", "")


@pytest.mark.parametrize("name", [FIG3, "fig4_losses"])
def test_perplexity_stands_where_another_drift_is_asked_for(name: str) -> None:
    ends = [end_of(1, 0.02 * at) | {PPL: 1 + at / 10} for at in range(len(CONDITIONS))]
    made = [run_of(1, parts, end, "own") for parts, end in zip(CONDITIONS, ends, strict=True)]
    selection = cells(tables(*made))
    (drawn,) = draw_pages(name, selection, PPL)
    shown = {*drawn.data["x_name"], *drawn.data["y_name"]}
    assert PPL in shown and KL not in shown
    assert "KL" not in drawn.caption
    (usual,) = draw_pages(name, selection)
    assert KL in {*usual.data["x_name"], *usual.data["y_name"]}


def test_every_figure_of_the_paper_with_drift_takes_another_one() -> None:
    of_paper = [spec for spec in FIGURES.values() if spec.name.startswith("fig")]
    with_kl = [spec for spec in of_paper if KL in spec.needs.metrics]
    assert len(with_kl) == 7
    for spec in with_kl:
        assert set(spec.by(PPL).needs.metrics) == {*spec.needs.metrics, PPL} - {KL}


def test_the_same_runs_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    kinds = ("png", "pdf", "svg")
    write(draw(FIG3, grid(CONDITIONS)).figure, tmp_path / FIG3, kinds)
    for kind in kinds:
        first, second = ((place / f"{FIG3}.{kind}").read_bytes() for place in (folder, tmp_path))
        assert first == second
    pages = (folder / f"{FIG3}.pdf").read_bytes()
    assert b"CreationDate" not in pages and b"/Type3" not in pages


def test_text_of_an_svg_is_text_and_marks_are_themselves(tmp_path: Path) -> None:
    (path,) = write(draw("fig4_losses", grid(CONDITIONS)).figure, tmp_path / "f", ("svg",))
    text = path.read_text(encoding="utf-8")
    assert "a$b$_% (n=3)" in text and "dc:date" not in text


def test_widths_are_those_of_a_papers_columns() -> None:
    wide = draw(FIG3, grid(CONDITIONS)).figure
    narrow = draw("differences", grid(CONDITIONS)).figure
    assert (wide.get_figwidth(), narrow.get_figwidth()) == (6.8, 3.3)
    assert not any(
        axes.spines[side].get_visible() for axes in wide.axes for side in ("top", "right")
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "nothing"], "--only nothing: there is no such figure"),
        (["--formats", "gif"], "--formats gif: choose from png,pdf,svg"),
        (["--formats", ""], "choose from png,pdf,svg"),
        (["--only", "staleness"], "no figure can be drawn"),
    ],
)
def test_what_cannot_be_is_said(
    stored: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    words: str,
) -> None:
    assert main([str(stored), "--out", str(tmp_path / "out"), *options]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_no_runs_and_no_tables_are_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([]) == 2
    assert "no runs: pass a folder of runs" in capsys.readouterr().err
    assert main([str(tmp_path / "none.parquet")]) == 2
    assert "there is no such file" in capsys.readouterr().err


def test_the_list_has_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    said = capsys.readouterr().out
    assert all(f"{name}: " in said for name in FIGURES) and len(FIGURES) == len(EVERY)


def test_tables_are_put_together_and_no_run_counts_twice(tmp_path: Path) -> None:
    files = [tmp_path / "first.parquet", tmp_path / "second.parquet"]
    for file, conditions in zip(files, (CONDITIONS[:1], CONDITIONS[1:]), strict=True):
        save(grid(conditions), file)
    both = gather([str(file) for file in (*files, files[0])])
    assert len(both.runs) == 12 and len(both.findings) == 3
    assert set(draw(FIG3, both).data["condition"]) == {"N=1", "N=4"}


def test_what_was_drawn_comes_first_and_the_rest_is_counted(
    stored: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = {name: FIGURES[name] for name in ("staleness", "differences", "corrections")}
    monkeypatch.setattr(command, "FIGURES", few)
    asked = [str(stored), "--out", str(tmp_path), "--formats", "svg"]
    assert main(asked) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "drawn:" in line]
    assert len(lines) == 1 and lines[0].startswith("not drawn: 2 figures") and "-v" in lines[0]
    assert main([*asked, "-v"]) == 0
    said = capsys.readouterr().out
    assert said.index("drew ") < said.index("not drawn: ")
    assert "it needs that" not in said
