"""The table of commands: each has help of its own, and reading needs no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def test_what_only_reads_loads_no_torch(tmp_path: Path) -> None:
    program = (
        "import sys; from rlhf_lab.cli.main import COMMANDS; import rlhf_lab.runs.run_directory\n"
        "helps = [command.help() for name, command in COMMANDS.items() if name != 'report']\n"
        "COMMANDS['runs'].run(['.'])\n"
        "print(sorted({'torch', 'transformers', 'safetensors'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr
