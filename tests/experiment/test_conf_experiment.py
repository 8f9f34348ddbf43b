"""The paper's runs in conf/experiment compose, with the launch lines that their files show."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from rlhf_lab.cli import launch
from rlhf_lab.experiment.checks import check
from rlhf_lab.experiment.config import typed
from rlhf_lab.experiment.layout import parsed
from rlhf_lab.experiment.planning.layouts.errors import choice_of
from rlhf_lab.experiment.planning.layouts.gpus import GPUS
from rlhf_lab.experiment.planning.layouts.search import planned
from rlhf_lab.experiment.planning.layouts.workload import workload_of
from rlhf_lab.runs.trackers.console import Console
from tests.support.composed import composed

pytestmark = pytest.mark.usefixtures("costly")

FILES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted((Path(__file__).parents[2] / "conf" / "experiment").glob("*_*.yaml"))
    if "Hardware:" in path.read_text(encoding="utf-8")
}


def command_of(name: str) -> list[str]:
    """The words after `rlhf-lab launch` in the comment of a file."""
    (line,) = re.findall(r"^#   rlhf-lab launch (.*)$", FILES[name], re.MULTILINE)
    return shlex.split(line)


def test_the_runs_are_for_one_device_one_node_and_two() -> None:
    layouts = {command_of(name)[0] for name in FILES}
    assert layouts == {"layout=1x1:1+0", "layout=1x8:7+1", "layout=2x8:8+8"}


@pytest.mark.parametrize("name", FILES)
def test_an_experiment_composes_for_its_layout(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    config = typed(composed(f"experiment={name}"))
    check(config, here=False)
    layout, overrides = launch.read([word for word in command_of(name) if word[0] != "-"])
    assert overrides == [f"experiment={name}"]
    assert config.run.groups_per_update % layout.trainers == 0
    assert config.engine.dtype == "bfloat16"
    assert config.optim.lr == (8e-7 if "no_robots" in name else 3e-6)


# GB of the fullest trainer and generator that `rlhf-lab plan` predicts for each.
PREDICTED = {
    "h200_1_tldr_410m": (78, 0),
    "h200_1_tldr_1b": (77, 0),
    "node_tldr_2.8b": (114, 127),
    "node_gsm8k_rho_1b": (59, 27),
    "node_no_robots_8b": (60, 119),
    "two_nodes_no_robots_8b": (57, 30),
}


@pytest.mark.parametrize("name", FILES)
def test_its_predicted_memory_fits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    config = typed(composed(f"experiment={name}"))
    layout = parsed(command_of(name)[0].removeprefix("layout="))
    found = planned(workload_of(config), choice_of(config, layout, "cuda"), GPUS["h200"])
    assert found.fits(GPUS["h200"])
    memory = found.memory
    assert (round(memory.trainer / 1e9), round(memory.generator / 1e9)) == PREDICTED[name]


@pytest.mark.parametrize("name", FILES)
def test_its_launch_line_prints_commands_that_are_not_refused(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    words = [word for word in command_of(name) if word not in ("--run", "--slurm")]
    assert launch.COMMAND.run([*words, "--slurm"], Console(quiet=True)) == 0
    printed = capsys.readouterr().out
    assert printed.count(" serve ") == parsed(words[0].removeprefix("layout=")).generators
