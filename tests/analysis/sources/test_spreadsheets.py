"""CSV files as spreadsheets and other people write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.cell import has_numbers
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.sources.findings import Kind
from rlhf_lab_analysis.sources.record import as_seed
from rlhf_lab_analysis.tables.gather import gather
from tests.support import table_records as made

HEAD = "run,seed,env_id,exp_name,state,version,x/wall_hours,gold/win_rate\n"


def rows(*cells_of_rate: str) -> str:
    return HEAD + "".join(
        f"a,1,E,ppo,finished,{version},{version / 2},{cell}\n"
        for version, cell in enumerate(cells_of_rate)
    )


@pytest.mark.parametrize(
    ("cell", "value"),
    [("51.0%", 0.51), ("51 %", 0.51), (" 0.51 ", 0.51), ('"0,51"', None), ("0.51 ± 0.02", None),
     ("~0.5", None), ("1 234", None), ("$3", None)],
)  # fmt: skip
def test_a_cell_that_is_no_plain_number_is_read_or_left_out_with_a_finding(
    tmp_path: Path, cell: str, value: float | None
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(rows("0.5", cell), encoding="utf-8")
    tables = gather([str(path)])
    rates = tables.versions["gold/win_rate"]
    assert rates.isna().tolist() == [False, value is None]
    assert value is None or rates.iloc[1] == value
    found = [one for one in tables.findings if one.kind is Kind.not_a_number]
    assert len(found) == (cell != " 0.51 ")
    for one in found:
        assert one.place == str(path)
        assert "line 3" in one.what and "gold/win_rate" in one.what and cell.strip('"') in one.what


def test_a_column_without_any_number_is_named_where_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(rows('"0,5"', '"0,6"'))
    with pytest.raises(UserError, match=r"--metric gold/win_rate: .*not_a_number.*1 more cell"):
        gather([str(path)], metrics=["gold/win_rate"])


def test_words_are_texts_and_no_numbers_of_a_condition(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(rows("good", "better"))
    (cell,) = cells(gather([str(path)])).cells
    assert not cell.has("gold/win_rate") and not has_numbers(cell.rows[1], "gold/win_rate")
    with pytest.raises(UserError, match="has no such numbers"):
        cell.scores("gold/win_rate")


def test_costs_beside_a_version_are_its_costs(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(rows("0.1", "0.2", "0.3"))
    assert gather([str(path)]).versions["x/wall_seconds"].tolist() == [0, 1800, 3600]
    # A recorded round knows better, also where it lacks other axes.
    run = made.record(evals=made.evals((0, 4), {"seconds/wall": 99.0, "virtual_seconds/wall": 7.0}))
    versions = made.tables(run).versions
    assert versions["x/wall_seconds"].tolist() == [0, 40]
    assert versions["x/virtual_seconds"].tolist()[1] == 7


def test_what_spreadsheets_add_is_no_part_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "\ufeff run , seed,loss ,,\n,,,,\na, 1.0 ,0.5,,\n   ,,,,\n\na,1.0,0.25,,\n,,7,,\n",
        encoding="utf-8",
    )
    tables = gather([str(path)])
    assert tables.points["loss"].tolist() == [0.5, 0.25]
    assert tables.runs["seed"].tolist() == [1]
    named = [one.what for one in tables.findings if one.kind is Kind.damaged]
    assert named == ["line 7 has no run and is left out"]


def test_a_seed_may_be_written_with_a_fraction_of_nothing() -> None:
    given = ("1", "1.0", "1e2", "1.5", "nan", "inf", "one", 2.0, True)
    assert [as_seed(one) for one in given] == [1, 1, None, None, None, None, None, 2, None]
