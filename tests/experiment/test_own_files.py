"""A user's own YAML files: read as editors write them, or refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_lab.cli.exit_codes import message, refusals
from rlhf_lab.cli.main import run_command

HEAD = "# @package _global_\n"
# Slips, each with what the line names beside the file: the line, or what is wrong.
SLIPS: dict[str, tuple[str | bytes, str]] = {
    "a tab": (f"{HEAD}run:\n\tupdates: 4\n", "line 3"),
    "a tab behind spaces": (f"{HEAD}run:\n  updates: 4\n\t passes: 1\n", "line 4"),
    "a key twice": (f"{HEAD}run:\n  updates: 4\n  updates: 2\n", "line 4"),
    "a node twice": (f"{HEAD}run:\n  updates: 4\nrun:\n  passes: 2\n", "line 4"),
    "an indent": (f"{HEAD}run:\n  updates: 4\n optim:\n  lr: 1e-4\n", "line 4"),
    "an indent of the first key": (f"{HEAD}  run:\n    updates: 4\nseed: 1\n", "line 4"),
    "an open quote": (f'{HEAD}output:\n  root: "runs\n', "line"),
    "an open bracket": (f"{HEAD}plugins: [one\nseed: 1\n", "line"),
    "an open brace": (f"{HEAD}run: {{updates: 4\n", "line"),
    "a colon in a text": (f"{HEAD}output:\n  root: C: runs\n", "line 3"),
    "no blank behind a colon": (f"{HEAD}run:\n  updates:4\n", "run"),
    "a percent sign": (f"{HEAD}seed: %1\n", "line 2"),
    "an at sign": (f"{HEAD}seed: @1\n", "line 2"),
    "an unknown alias": (f"{HEAD}seed: *one\n", "line 2"),
    "a tag": (f"{HEAD}seed: !!python/object/apply:os.getpid []\n", "line 2"),
    "UTF-16": (f"{HEAD}seed: 1\n".encode("utf-16"), "UTF-8"),
    "UTF-16 without a mark": (f"{HEAD}seed: 1\n".encode("utf-16-le"), "UTF-8"),
    "Latin-1": (f"{HEAD}# Größe\nseed: 1\n".encode("latin-1"), "line 2"),
    "a NUL": (f"{HEAD}seed: \x001\n", "line 2"),
    "several documents": (f"{HEAD}seed: 1\n---\nseed: 2\n", "line 3"),
    "no package line": ("run:\n  updates: 4\n", "@package _global_"),
    "an empty file": ("", "@package _global_"),
    "a package line that is misspelt": ("# @packge _global_\nseed: 1\n", "@package _global_"),
    "a package line with more words": ("# @package _global_ mine\nseed: 1\n", "package"),
    "a list": (f"{HEAD}- seed: 1\n", "keys"),
    "a text": (f"{HEAD}seed=1\n", "keys"),
    "an interpolation that is open": (f"{HEAD}output:\n  root: ${{seed\n", "seed"),
    "defaults that are no list": (f"{HEAD}defaults:\n  algo: grpo\n", "defaults"),
    "a default without override": (f"{HEAD}defaults:\n  - algo: grpo\n", "override"),
    "a default that is misspelt": (f"{HEAD}defaults:\n  - override /algo: gpro\n", "gpro"),
    "a group that is misspelt": (f"{HEAD}defaults:\n  - override /algoo: grpo\n", "algoo"),
    "a default with several keys": (
        f"{HEAD}defaults:\n  - override /algo: grpo\n    override /mode: async\n",
        "defaults",
    ),
    "a default that is a number": (f"{HEAD}defaults:\n  - 3\n", "defaults"),
    "a default of nothing": (f"{HEAD}defaults:\n  -\n", "defaults"),
    "a default within a default": (
        f"{HEAD}defaults:\n  - override /algo:\n      name: grpo\n",
        "defaults",
    ),
    "a default glued": (f"{HEAD}defaults:\n  - override/algo: grpo\n", "override/algo"),
    "a key that is misspelt": (f"{HEAD}run:\n  updatez: 4\n", "updatez"),
    "a dotted key": (f"{HEAD}run.updates: 4\n", "run.updates"),
    "a text for a number": (f"{HEAD}run:\n  updates: many\n", "many"),
    "a number for a node": (f"{HEAD}run: 4\n", "run"),
    "nothing for a node": (f"{HEAD}run:\nseed: 1\n", "run"),
}

SWEEPS: dict[str, tuple[str, str]] = {
    "swept keys in a list": ("      - seed: 1,2\n", "params"),
    "an option within a swept key": ("      algo:\n        name: ppo\n", "algo"),
    "a swept key without values": ("      seed:\n", "seed"),
    "a swept key that is misspelt": ("      seeed: 1,2\n", "seeed"),
}


def shown(folder: Path, name: str, content: str | bytes, *words: str) -> None:
    """Let the command print the config that it composes with a file of the user's."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    run_command("train", ["--config-dir", str(folder), *words, "--cfg", "job"])


@pytest.fixture(autouse=True)
def raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # as main() sets it


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_in_a_file_is_refused_in_one_line(slip: str, tmp_path: Path) -> None:
    content, named = SLIPS[slip]
    with pytest.raises(refusals()) as refused:
        shown(tmp_path, "experiment/mine.yaml", content, "experiment=mine")
    line = message(refused.value)
    assert named in line and "mine" in line and "\n" not in line, line


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mine.yaml", ["--config-name", "mine"]),
        ("algo/mine.yaml", ["algo=mine"]),
        ("cluster/mine.yaml", ["cluster=mine"]),
    ],
)
def test_files_of_every_kind_are_read_so(name: str, words: list[str], tmp_path: Path) -> None:
    content, named = SLIPS["a key twice"]
    with pytest.raises(refusals()) as refused:
        shown(tmp_path, name, content, *words)
    assert f"{tmp_path / name}, {named}" in message(refused.value)


@pytest.mark.parametrize(
    "content",
    [
        (HEAD + "seed: 7\n").encode("utf-8-sig"),
        (HEAD + "seed: 7\n").replace("\n", "\r\n").encode(),
        (HEAD + "seed: 7\n").replace("\n", "\r\n").encode("utf-8-sig"),
        (HEAD + "seed: 7").encode(),
        ("\n" + HEAD + "# Größe\nseed: 7\n").encode(),
        (HEAD + "defaults:\n  - override /algo: grpo\n  - _self_\nseed: 7\n").encode(),
    ],
)
def test_marks_and_line_ends_of_editors_are_read(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown(tmp_path, "experiment/mine.yaml", content, "experiment=mine")
    assert "seed: 7\n" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["off", "Off", "OFF", "no", "'off'"])
def test_words_that_yaml_takes_for_truth_values_are_the_choices_of_that_name(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"{HEAD}tracker:\n  wandb: {word}\n  tensorboard: yes\n"
    shown(tmp_path, "experiment/mine.yaml", text, "experiment=mine")
    printed = capsys.readouterr().out
    assert "wandb: 'off'" in printed.replace("wandb: off", "wandb: 'off'")
    assert "tensorboard: true" in printed


@pytest.mark.parametrize("slip", SWEEPS)
def test_a_slip_in_the_file_of_a_sweep_is_refused_in_one_line(slip: str, tmp_path: Path) -> None:
    params, named = SWEEPS[slip]
    head = "defaults:\n  - config\n  - _self_\nhydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n"
    path = tmp_path / "mine.yaml"
    path.write_text(head + params, encoding="utf-8")
    with pytest.raises(refusals()) as refused:
        run_command("sweep", [str(path), "dry=true", "debug=tiny", f"output.root={tmp_path}"])
    line = message(refused.value)
    assert named in line and "\n" not in line, line


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("hydra:\nseed: 1\n", "hydra"),
        ("hydra: one\n", "hydra"),
        ("seed: 1\n", "- config"),
        ("defaults:\n  - _self_\nseed: 1\n", "- config"),
        ("defaults:\n  - confg\n  - _self_\n", "config"),
    ],
)
def test_a_slip_in_a_primary_config_is_refused_in_one_line(
    content: str, named: str, tmp_path: Path
) -> None:
    if "defaults" not in content and "hydra" in content:
        content = f"defaults:\n  - config\n  - _self_\n{content}"
    with pytest.raises(refusals()) as refused:
        shown(tmp_path, "mine.yaml", content, "--config-name", "mine")
    line = message(refused.value)
    assert named in line and "mine" in line and "\n" not in line, line
