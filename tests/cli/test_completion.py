"""Tab completes commands, groups, keys, values, flags, sweeps and runs, by the shells' own code."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rlhf_lab.cli import completion
from rlhf_lab.cli.completion import SCRIPTS, candidates
from rlhf_lab.cli.main import COMMANDS
from tests.support.variants import variants

SWEEPS = Path(__file__).parents[2] / "sweeps"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in, with a run and another folder, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "work"
    run = folder / "runs" / "first"
    run.mkdir(parents=True)
    (run / "manifest.json").write_text("{}")
    (folder / "runs" / "group").mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([""], {"train", "runs", "completion", "help", "--version"}),
        (["tr"], {"train"}),
        (["help", "tra"], {"train"}),
        (["train", "al"], {"algo=", "algo."}),
        (["train", "algo=gr"], {"algo=grpo"}),
        (["train", "-m", "algo=ppo,gr"], {"algo=ppo,grpo"}),
        (["train", "+exp"], {"+experiment="}),
        (["train", "model@proxy=nano_m"], {"model@proxy=nano_m"}),
        (["train", "run.u"], {"run.updates=", "run.updates_per_round="}),
        (["train", "algo=dpo", "algo.pair"], {"algo.pair_loss="}),
        (["train", "proxy.hid"], {"proxy.hidden_size="}),
        (["train", "mode.exec"], {"mode.executor="}),
        (["train", "mode.executor=thr"], {"mode.executor=thread"}),
        (["train", "output.quiet="], {"output.quiet=true", "output.quiet=false"}),
        (["train", "see"], {"seed="}),
        (["train", "--cfg", ""], {"job", "hydra", "all"}),
        (["train", "--config-n"], {"--config-name"}),
        (["train", "-m", "--config-name", "staleness_n"], {"staleness_nano"}),
        (["resume", "ru"], {"runs/", "run=", "run."}),
        (["resume", "runs/"], {"runs/first", "runs/group/"}),
        (["runs", "runs/g"], {"runs/group/"}),
        (["launch", "--sl"], {"--slurm"}),
        (["launch", "lay"], {"layout="}),
        (["completion", "z"], {"zsh"}),
        (["explain", "run.upd"], {"run.updates", "run.updates_per_round"}),
        (["nosuch", ""], set()),
    ],
)
def test_the_last_word_is_completed(words: list[str], found: set[str]) -> None:
    completed = set(candidates(words, COMMANDS))
    assert completed >= found
    # A word that is begun has no other continuation than these.
    assert words[-1] == "" or completed == found


def test_the_keys_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = completion.known_keys()
    assert len(list((tmp_path / "cache" / "rlhf_lab").iterdir())) == 1
    monkeypatch.setattr(completion, "rows_of_schema", None)
    assert completion.known_keys() == first


def test_a_home_that_cannot_be_written_to_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert [key for key in completion.known_keys() if key.name == "seed"]


def in_shell(words: list[str], path: Path) -> str:
    """What a shell prints, with this checkout's rlhf-lab on its path."""
    programs = path / "bin"
    programs.mkdir(exist_ok=True)
    program = programs / "rlhf-lab"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rlhf_lab.cli.main "$@"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "XDG_CACHE_HOME": str(path / "cache")}
    done = subprocess.run(
        words, capture_output=True, text=True, env=environment | {"HOME": str(path)}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# Bash replaces only what follows = or @, so only that is offered.
PARTS = {
    "rlhf-lab train algo=gr": "grpo",
    "rlhf-lab train model@proxy=nano_": "nano_l nano_m nano_s",
    "rlhf-lab resume runs/": "runs/first runs/group/",
}
WORDS = {
    "rlhf-lab train run.upd": "run.updates= run.updates_per_round=",
    "rlhf-lab trai": "train",
}


@pytest.mark.parametrize("completed", variants({"parts": PARTS, "words": WORDS}, ["parts"]))
def test_bash_completes(tmp_path: Path, completed: dict[str, str]) -> None:
    script = (
        'source <(rlhf-lab completion bash); for COMP_LINE in "$@"; do '
        'COMP_POINT=${#COMP_LINE}; COMPREPLY=(); _rlhf_lab; echo "${COMPREPLY[*]}"; done'
    )
    shown = in_shell(["bash", "-c", script, "bash", *completed], tmp_path).splitlines()
    assert dict(zip(completed, shown, strict=True)) == completed


@pytest.mark.parametrize("shell", sorted(SCRIPTS))
def test_the_script_of_every_shell_is_read_by_it(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "script"
    path.write_text(SCRIPTS[shell])
    in_shell([shell, "-n", str(path)], tmp_path)


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(tmp_path: Path) -> None:
    script = 'rlhf-lab completion fish | source; complete -C "rlhf-lab train run.upd"'
    found = in_shell(["fish", "-c", script], tmp_path).split()
    assert found == ["run.updates=", "run.updates_per_round="]
