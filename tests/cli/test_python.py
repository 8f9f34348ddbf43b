"""Runs from Python: the bits of the command, results as data frames, refusals as exceptions."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import rlhf_lab
from rlhf_lab.runs import given
from rlhf_lab.types.errors import UserError
from tests.support.examples import call

pytestmark = pytest.mark.usefixtures("costly")

SHORT = ("task.max_prompt_tokens=64", "task.max_response_tokens=8")
ROWS = [{"prompt": f"how many are {number} and one ?"} for number in range(40)]
OPTIONS = ("debug=tiny", "model=nano_s", "algo=rloo", "run.group_size=4", "output.quiet=true")
WEIGHT = {"e": 2.0}


def weights_of(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "weights").iterdir()}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_call_has_the_bits_of_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A function of no module, which refers to what lies around it.
    def vowels(prompt: str, completion: str, **_: Any) -> float:
        return completion.count("e") * WEIGHT["e"]

    vowels.__module__ = "__main__"
    arguments, settings = list(sys.argv), dict(os.environ)
    run = rlhf_lab.train(*OPTIONS, *SHORT, "output.dir=one", reward=vowels, data=ROWS)
    assert sys.argv == arguments and "HYDRA_FULL_ERROR" not in os.environ.keys() - settings
    assert run.state == "finished" and len(run.metrics) == 4
    assert {"reward/mean", "round"} <= set(run.metrics) and len(run.evaluations) == 2
    assert set(run.samples["prompt"]) <= {row["prompt"] for row in ROWS}
    path = given.path_of_rows(ROWS)
    assert [json.loads(line) for line in path.read_text().splitlines()] == ROWS
    named = [f"task.path={path}", f"reward.path={given.name_of_function(vowels)}"]
    words = [*OPTIONS, *SHORT, "output.dir=two", "task=prompts", "reward=function", *named]
    assert call("train", *words, monkeypatch=monkeypatch) == 0
    assert weights_of(Path("one")) == weights_of(Path("two"))


def test_a_run_that_was_left_goes_on(folder: Path) -> None:
    words = (*OPTIONS, "task=arithmetic", "reward=task_rule")
    whole = rlhf_lab.train(*words, "output.dir=whole")
    begun = rlhf_lab.train(*words, "output.dir=begun", "checkpoint.pause_round=2")
    assert begun.state == "paused"
    assert begun.resume("checkpoint.pause_round=0").state == "finished"
    assert weights_of(whole.path).items() <= weights_of(begun.path).items()
    assert rlhf_lab.Run("begun").metrics["reward/mean"].equals(whole.metrics["reward/mean"])


@pytest.mark.parametrize(
    ("words", "objects", "key"),
    [
        (("algo=gpro",), {}, "grpo"),
        (("-m", "seed=1,2"), {}, "-m"),
        ((), {"data": []}, "data"),
        ((), {"data": [{"prompt": object()}]}, "row 0"),
        ((), {"data": [{"prompt": float("nan")}]}, "row 0"),
    ],
)
def test_what_cannot_work_is_raised(
    folder: Path, words: tuple[str, ...], objects: dict[str, Any], key: str
) -> None:
    with pytest.raises(UserError, match=key):
        rlhf_lab.train(*words, "output.dir=run", **objects)
    assert not Path("run").exists()


def test_a_function_that_can_be_imported_is_called_by_its_name() -> None:
    assert given.name_of_function(json.dumps) == "json.dumps"
    assert given.name_of_function(given.keep) == "rlhf_lab.runs.given.keep"


def test_a_function_that_is_gone_is_named(folder: Path) -> None:
    with pytest.raises(AttributeError, match="vowels_0"):
        _ = given.vowels_0
