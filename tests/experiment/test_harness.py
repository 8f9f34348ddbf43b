"""Benchmarks of lm-evaluation-harness on a run's policy: the real one, where it is installed, on a
task of a local file."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlhf_lab.experiment.publish.card import card
from rlhf_lab.experiment.publish.harness import run_harness, scores_of, task_manager
from rlhf_lab.runs.reading import Unreadable
from rlhf_lab.runs.schema import read_harness
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.support.examples import call

OPTIONS = ("debug=tiny", "task=arithmetic", "reward=task_rule", "output.quiet=true")
NEEDS = pytest.mark.skipif(
    importlib.util.find_spec("lm_eval") is None, reason="needs the extra harness"
)
TASK = """\
task: tiny_sums
dataset_path: json
dataset_kwargs:
  data_files:
    test: {file}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: ["1", "2"]
doc_to_target: label
target_delimiter: ""
metric_list:
  - metric: acc
"""


@pytest.fixture(scope="module")
def run(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("run") / "mine"
    own = [*OPTIONS, "eval=none", f"output.cache={cache}", f"output.dir={folder}"]
    with pytest.MonkeyPatch.context() as patch:
        assert call("train", *own, monkeypatch=patch) == 0
    return folder


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one task of four questions."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "tasks"
    folder.mkdir()
    rows = [{"question": f"{n}+{n}=", "label": 0} for n in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "tiny.yaml").write_text(TASK.format(file=tmp_path / "rows.jsonl"))
    return folder


@NEEDS
@pytest.mark.filterwarnings("ignore")
def test_a_task_of_ones_own_is_run_on_the_policy_and_its_scores_are_in_the_card(
    run: Path, tasks: Path, make_config: MakeConfig, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        options = ("eval=harness", "eval.tasks=[tiny_sums]", f"eval.tasks_folder={tasks}")
        limits = ("eval.prompts=3", "eval.threads=1", "output.quiet=false")
        assert call("evaluate", str(run), *options, *limits, monkeypatch=patch) == 0
    ((label, found),) = read_harness(run)
    assert (label, found["limit"], found["examples"]) == ("", 3, {"tiny_sums": 3})
    assert 0 <= found["tasks"]["tiny_sums"]["acc"] <= 1
    assert "tiny_sums" in capfd.readouterr().out
    text = card(make_config(*OPTIONS), run, found["version"])
    (index,) = yaml.safe_load(text.split("---\n")[1])["model-index"]
    of_dataset = {result["dataset"]["name"]: result["metrics"] for result in index["results"]}
    assert of_dataset["tiny_sums"][0]["value"] == found["tasks"]["tiny_sums"]["acc"]


@NEEDS
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_task_that_is_not_there_is_refused(
    run: Path, tasks: Path, make_config: MakeConfig
) -> None:
    options = make_config(*OPTIONS, "eval.tasks=[no_such_task]").eval
    with pytest.raises(UserError, match="has no task 'no_such_task'"):
        task_manager(options)
    nowhere = make_config(*OPTIONS, "eval.tasks=[a]", "eval.tasks_folder=nowhere").eval
    with pytest.raises(UserError, match=r"eval.tasks_folder=nowhere is no folder"):
        task_manager(nowhere)


def test_without_the_package_or_a_task_it_is_refused(
    run: Path, make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console(quiet=True)
    with pytest.raises(UserError, match=r"pass eval.tasks="):
        run_harness(make_config(*OPTIONS, "eval=harness"), run, console)
    monkeypatch.setitem(sys.modules, "lm_eval.tasks", None)
    with pytest.raises(UserError, match=r"pip install 'rlhf-lab\[harness\]'"):
        run_harness(make_config(*OPTIONS, "eval.tasks=[arc_easy]"), run, console)


def test_a_run_does_not_train_with_benchmarks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = (*OPTIONS, "eval=harness", "eval.tasks=[arc_easy]", f"output.dir={tmp_path}/run")
    assert call("train", *options, monkeypatch=monkeypatch) == 2
    assert "pass them to `rlhf-lab evaluate RUN`" in capfd.readouterr().err


def test_numbers_of_filters_keep_their_filter() -> None:
    row: dict[str, Any] = {
        "alias": "gsm8k", "exact_match,strict-match": 0.25, "acc,none": 1,
        "acc_stderr,none": "N/A", "sample_len": 4,
    }  # fmt: skip
    assert scores_of(row) == {"exact_match/strict-match": 0.25, "acc": 1.0}


def test_a_damaged_file_of_results_is_refused(tmp_path: Path) -> None:
    (tmp_path / "evaluations").mkdir()
    (tmp_path / "evaluations" / "harness.json").write_text('{"version": -1}')
    with pytest.raises(Unreadable, match=r"harness\.json"):
        list(read_harness(tmp_path))
