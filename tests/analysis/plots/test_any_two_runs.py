"""Two runs that differ in any one setting give a figure of two named lines, everywhere."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pandas as pd
import pytest
import yaml
from matplotlib.figure import Figure
from omegaconf import OmegaConf

import rlhf_lab
from rlhf_lab.cli.main import main
from rlhf_lab_analysis.sources.record import Record
from rlhf_lab_analysis.tables.gather import gather
from tests.support.composed import composed
from tests.support.table_records import record, write_run

# Two values of a setting each, as they are written on the command line.
PAIRS = [
    ("optim.lr=1e-4", "optim.lr=3e-4"),
    ("optim.weight_decay=0", "optim.weight_decay=0.1"),
    ("optim.schedule_per=update", "optim.schedule_per=round"),
    ("run.updates_per_round=1", "run.updates_per_round=4"),
    ("run.passes=1", "run.passes=2"),
    ("run.group_size=2", "run.group_size=4"),
    ("run.groups_per_update=4", "run.groups_per_update=8"),
    ("run.oversample=0", "run.oversample=0.5"),
    ("algo=ppo", "algo=grpo"),
    ("algo.beta=0.1", "algo.beta=0.3"),
    ("algo=ppo algo.kl_coef=0.05", "algo=ppo algo.kl_coef=0.1"),
    ("mode=sync", "mode=async"),
    ("mode=lagged mode.max_staleness=1", "mode=lagged mode.max_staleness=4"),
    ("correction=none", "correction=truncated_is"),
    ("model=nano_s", "model=nano_m"),
    ("model@proxy=nano_s", "model@proxy=nano_m"),
    ("model.lora_rank=0", "model.lora_rank=8"),
    ("task.max_response_tokens=24", "task.max_response_tokens=16"),
    ("generator.temperature=0.7", "generator.temperature=1"),
    ("generator.round_weights=none", "generator.round_weights=fp8_e4m3"),
    ("reward.missing_eos=-1", "reward.missing_eos=-10"),
    ("sft.steps=32", "sft.steps=64"),
    ("labels.noise=none", "labels.noise=bradley_terry"),
    ("eval.temperature=0.01", "eval.temperature=0.7"),
    ("engine.dtype=float32", "engine.dtype=bfloat16"),
]


def run_of(words: str, name: str, seed: int = 1) -> Record:
    """A run with the whole config of these overrides."""
    text = OmegaConf.to_yaml(composed(*words.split(), f"seed={seed}"))
    return record(name, seed, config=yaml.safe_load(text))


def both(folder: Path, pair: tuple[str, str]) -> Path:
    for name, words in zip(("first", "second"), pair, strict=True):
        write_run(folder / name, run_of(words, name))
    return folder


def command(*words: str) -> None:
    """`rlhf-lab plot` of these words, in this process."""
    with patch("sys.argv", ["rlhf-lab", "plot", *words]):
        assert main() in (0, None)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[1].split()[-1])
def test_two_runs_that_differ_in_one_setting_give_two_named_lines(
    pair: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = both(tmp_path / "runs", pair)
    command(str(runs), "--out", str(tmp_path / "own"), "--formats", "png")
    data = pd.read_csv(tmp_path / "own.csv")
    assert data["condition"].nunique() == 2
    assert "left out" not in capsys.readouterr().out
    figure = rlhf_lab.plot(str(runs))
    assert isinstance(figure, Figure)
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert sorted(names) == sorted(set(data["condition"])) and len(set(names)) == 2
    tables = gather([str(runs)])
    assert len(tables.runs.groupby(["env_id", "condition"])) == 2
    assert set(tables.runs["repeat"]) == {0}


def test_what_follows_from_another_setting_is_in_no_name(tmp_path: Path) -> None:
    for place, (algo, rate) in enumerate([("ppo", 1e-4), ("grpo", 3e-4)]):
        made = run_of(f"algo={algo} optim.lr={rate}", f"run{place}")
        write_run(tmp_path / f"run{place}", made)
    figure = rlhf_lab.plot(str(tmp_path))
    names = {text.get_text() for text in figure.legends[0].get_texts()}
    assert names == {"PPO", "GRPO"}


def test_runs_of_equal_settings_are_one_condition_and_a_second_one_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place, seed in enumerate((1, 1, 2)):
        write_run(tmp_path / "runs" / f"run{place}", run_of("optim.lr=1e-4", f"run{place}", seed))
    command(str(tmp_path / "runs"), "--out", str(tmp_path / "own"))
    assert "left out" in (shown := capsys.readouterr().out) and "run1" in shown
    data = pd.read_csv(tmp_path / "own.csv", dtype={"seed": str})
    assert data["condition"].nunique() == 1 and set(data["seed"]) == {"1", "2", "mean"}
