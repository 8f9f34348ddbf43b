"""What Hydra's documentation offers works, or is refused with the key of this project."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_lab.cli.compose import flags_first
from rlhf_lab.cli.exit_codes import refusals
from rlhf_lab.cli.main import run_command
from rlhf_lab.experiment.config.typed import typed
from rlhf_lab.sweeps.override_text import plain_override
from rlhf_lab.types.errors import UserError
from tests.support.composed import composed


@pytest.fixture(autouse=True)
def raised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # as main() sets it
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (["seed=1,2", "-m", "mode=async"], ["-m"]),
        (["seed=1", "--cfg", "job", "mode=async"], ["--cfg", "job"]),
        (["-c", "job", "seed=1", "-cn", "mine", "mode=async"], ["-c", "job", "-cn", "mine"]),
        (["seed=1", "--cfg=job", "mode=async", "--resolve"], ["--cfg=job", "--resolve"]),
        (["seed=1", "--info", "mode=async"], ["--info", "--"]),
        (["seed=1", "--info", "all", "mode=async"], ["--info", "all"]),
        (["-cp", "a", "seed=1", "mode=async"], ["--config-dir", "a"]),
        (["seed=1", "--config-path=a", "mode=async"], ["--config-dir=a"]),
    ],
)
def test_flags_may_stand_anywhere(words: list[str], flags: list[str]) -> None:
    found = flags_first(words)
    assert found[: len(flags)] == flags
    assert [text.partition("=")[0] for text in found[len(flags) :]] == ["seed", "mode"]


@pytest.mark.parametrize(
    "words",
    [
        ["hydra.run.dir=runs/one"],
        ["hydra.sweep.subdir=one"],
        ["hydra.output_subdir=one"],
        ["hydra.job.chdir=true"],
        ["--config-dir", "a", "--config-path", "b"],
        ["-m", "--cfg", "job"],
        ["--no-such-flag"],
    ],
)
def test_what_has_no_effect_here_is_refused(words: list[str]) -> None:
    with pytest.raises(UserError):
        flags_first(words)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("algo='grpo'", "algo=grpo"),
        ('optim.schedule="constant","linear"', "optim.schedule=constant,linear"),
        ("optim.schedule='constant',linear", "optim.schedule=constant,linear"),
        ("seed='1','2'", "seed=1,2"),
        ("+reward.arguments.one='1'", "+reward.arguments.one='1'"),
        ("output.dir='null'", "output.dir='null'"),
        ("output.dir='1e5'", "output.dir='1e5'"),
        ("output.dir='a,b'", "output.dir='a,b'"),
        ("output.dir='a b'", "output.dir='a b'"),
        ("output.dir='${seed}'", "output.dir='${seed}'"),
        ("plugins=['a','b']", "plugins=['a','b']"),
        ("output.root=~/runs", "output.root=/far/one/runs"),
        ("output.root='~/runs'", "output.root=/far/one/runs"),
        ("output.root=~/a,~/b", "output.root=/far/one/a,/far/one/b"),
        ("~algo.beta", "~algo.beta"),
        ("output.dir=", "output.dir="),
        ("-m", "-m"),
    ],
)
def test_equal_values_are_equal_texts(
    text: str, plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/far/one")
    assert plain_override(text) == plain


def test_quotes_stay_where_a_value_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/far/a b")
    text = plain_override("output.root=~/runs")
    assert typed(composed(text)).output.root == "/far/a b/runs"


def test_the_home_folder_is_meant_in_files_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/far/one")
    cfg = composed("task=prompts", "task.path='~/a.jsonl'", "output.dir='${output.root}/one'")
    cfg.output.root = "~/runs"
    config = typed(cfg)
    assert config.output.root == "/far/one/runs" and config.output.dir == "/far/one/runs/one"
    assert config.task.path == "/far/one/a.jsonl"


@pytest.mark.parametrize("flag", ["--config-path", "-cp", "--config-dir"])
def test_a_folder_of_files_may_hold_the_primary_config(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "own.yaml").write_text(
        "defaults:\n  - config\n  - _self_\nseed: 7\n", encoding="utf-8"
    )
    run_command("train", ["mode=async", flag, "mine", "--config-name", "own", "--cfg", "job"])
    assert "seed: 7\n" in capsys.readouterr().out
    with pytest.raises(refusals()):
        run_command("train", [flag, "missing", "--config-name", "own", "--cfg", "job"])
