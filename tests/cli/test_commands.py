"""The table of commands: each has help of its own."""

from __future__ import annotations

import pytest

from rlhf_lab.cli.main import COMMANDS, run_command


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_its_own_help_and_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(name, ["--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: rlhf-lab {name}")
    assert f"example: rlhf-lab {name} " in text
    assert COMMANDS[name].summary in " ".join(text.split())
