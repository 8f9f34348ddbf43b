"""What others wrote is printed without what a terminal obeys."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from rlhf_lab.cli.exit_codes import complain
from rlhf_lab.cli.main import run_command
from rlhf_lab.runs.live.display import PlainScreen
from rlhf_lab.runs.output import printable
from rlhf_lab.runs.trackers.console import Console

# A title, the end of a line, eight-bit CSI, an order of writing, and a bell.
EVIL = "a\x1b]0;title\x07\x1b[2Kb\x9b31mc\u202ed\r\x08e"
OBEYED = "\x1b\x07\x9b\u202e\r\x08"


@given(st.text())
def test_no_character_that_is_left_controls_anything(text: str) -> None:
    found = printable(text)
    assert not [one for one in found if one != "\n" and unicodedata.category(one)[0] == "C"]
    assert printable(found) == found


def test_texts_of_all_scripts_stay() -> None:
    for text in ("é ü\nß", "中文\u3000文", "a\u00a0b", "שלום", "🙂"):
        assert printable(text) == text


def test_consoles_escape_lines_tables_and_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    for is_terminal in (False, True):
        console = Console(quiet=False, is_terminal=is_terminal)
        console.print(EVIL)
        console.table(EVIL, ["name", EVIL], [["one", EVIL], [EVIL, "2"]])
    complain("train", EVIL)
    inner = Table(EVIL)
    inner.add_row(EVIL)
    PlainScreen(force_terminal=True, color_system=None).print(inner, EVIL)
    printed = "".join(capsys.readouterr())
    # Its own styles of a terminal are left.
    for own in ("\x1b[0m", "\x1b[1m", "\x1b[3m"):
        printed = printed.replace(own, "")
    assert "title" in printed and not set(OBEYED) & set(printed)


@pytest.mark.parametrize("command", ["runs", "samples", "timeline", "watch"])
def test_commands_that_read_print_nothing_that_a_terminal_obeys(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    names = ("task", "algo", "mode", "correction", "model", "working_folder", "error", "command")
    manifest = {
        "state": "failed",
        "started": "2026-01-01T00:00:00+00:00",
        "host": {"name": EVIL},
        "overrides": [],
        **dict.fromkeys(names, EVIL),
    }
    (run / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    for is_sound in (True, False):
        if not is_sound:
            (run / "rollouts.jsonl").write_text(json.dumps({EVIL: EVIL}) + "\n", encoding="utf-8")
        try:
            run_command(command, [str(run), *(["--once"] if command == "watch" else [])])
        except ValueError as error:
            complain(command, str(error))
    printed = "".join(capsys.readouterr())
    assert printed and not set(OBEYED) & set(printed)
