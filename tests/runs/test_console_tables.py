from __future__ import annotations

import io
import re
from collections.abc import Sequence

import pytest
import rich.console

from rlhf_lab.runs.trackers.console import Console, elided, fitted_table

NAME = "arithmetic-online_dpo-token_is-async-nano_s-N4-seed12-20261123-00"
HEADS = ("run", "state", "rounds", "reward", "gold win-rate % [95%]", "wall", "seeds", "note")
ROWS = [
    [NAME[:-2] + "01", "finished", "1024/1024", "0.12345678", "61.3 [58.8, 63.6]", "12h07m",
     "1, 2, 3", "as good as sync, at equal cost of generation"],
    ["b", "running", "6/1024", "-117.5", "", "4s", "1", ""],
    [NAME[:-2] + "02", "interrupted", "3/8", "1.5e-12", "7.1 [0.0, 31.9]", "", "none", "x"],
]  # fmt: skip
NUMBERS = [cell for row in ROWS for cell in row[2:7] if re.match(r"-?\d", cell)]
DROP = ("seeds", "wall", "note")


def drawn(
    width: int, rows: Sequence[Sequence[str]] = ROWS, drop: Sequence[str] = DROP
) -> tuple[list[str], list[str]]:
    stream = io.StringIO()
    table, hidden = fitted_table("runs", HEADS, rows, width, drop)
    rich.console.Console(file=stream, width=width, highlight=False).print(table)
    return stream.getvalue().splitlines(), hidden


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_no_number_is_broken_and_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines, hidden = drawn(width)
    assert all(len(line) <= width for line in lines)
    shown = [n for n, head in enumerate(HEADS) if head not in hidden]
    cells = [row[n] for row in ROWS for n in shown if row[n] in NUMBERS]
    for cell in cells:
        assert any(cell in line for line in lines), cell
    assert hidden == [head for head in HEADS if head in hidden]
    assert "finished" in "".join(lines)


def test_columns_are_left_out_by_priority_and_none_where_there_is_room() -> None:
    assert drawn(200)[1] == []
    assert NAME[:-2] + "01" in "".join(drawn(200)[0])
    narrow = drawn(60)[1]
    assert narrow[-2:] == ["seeds", "note"] or set(DROP) <= set(narrow)
    assert {"run", "state"}.isdisjoint(drawn(40)[1])


def test_names_lose_their_middle_and_prose_wraps_at_words() -> None:
    assert elided("abcdefghij", 10) == "abcdefghij"
    assert elided("abcdefghij", 5) == "ab…ij"
    lines, _ = drawn(100, drop=("rounds", "reward", "gold win-rate % [95%]", "wall", "seeds"))
    text = "\n".join(lines)
    assert re.search(r"arith\S*…\S*-01", text) or NAME[:-2] + "01" in text
    assert "equal" in text and "generation" in text


@pytest.mark.parametrize("width", [60, 80])
def test_the_last_line_names_what_is_not_shown(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    Console(quiet=False, is_terminal=True).table("runs", HEADS, ROWS, DROP, "--json has all")
    out = " ".join(capsys.readouterr().out.split())
    assert "not shown: " in out and "seeds" in out and "; --json has all" in out


def test_a_lone_column_and_an_empty_table_fit_too() -> None:
    table, hidden = fitted_table("t", ["n"], [["123456789" * 9]], 20)
    stream = io.StringIO()
    rich.console.Console(file=stream, width=20).print(table)
    assert hidden == [] and all(len(line) <= 20 for line in stream.getvalue().splitlines())
    assert fitted_table("t", ["a", "b"], [], 20)[1] == []
