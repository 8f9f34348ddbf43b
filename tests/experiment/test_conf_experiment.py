"""The paper's runs in conf/experiment compose, with the launch lines that their files show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from rlhf_lab.cli import launch
from rlhf_lab.experiment.config.layout import parsed
from rlhf_lab.experiment.config.typed import typed
from rlhf_lab.experiment.planning.layouts.choice import workload_of
from rlhf_lab.experiment.planning.layouts.errors import choice_of
from rlhf_lab.experiment.planning.layouts.gpus import GPUS
from rlhf_lab.experiment.planning.layouts.search import planned
from rlhf_lab.experiment.rules.checks import check
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


def test_the_runs_are_for_one_device_four_one_node_and_two() -> None:
    layouts = {command_of(name)[0].removeprefix("layout=") for name in FILES}
    assert layouts == {"1x1:1+0", "1x4:3+1", "1x8:4+4", "1x8:7+1", "2x8:8+8"}


@pytest.mark.parametrize("name", FILES)
def test_an_experiment_composes_for_its_layout(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    config = typed(composed(f"experiment={name}"))
    check(config, here=False)
    _, overrides = launch.layout_and_overrides(
        [word for word in command_of(name) if word[0] != "-"]
    )
    assert overrides == [f"experiment={name}"]
    assert config.engine.dtype == "bfloat16"


@pytest.mark.parametrize("name", FILES)
def test_a_machine_changes_no_number_of_the_papers_run(name: str) -> None:
    """However many trainers share its prompts: an update takes any number of groups
    (tests/training/test_distributed.py trains three on two processes)."""
    preset, *_ = yaml.safe_load(FILES[name])["defaults"]
    (own, papers) = (dict(values(composed(f"experiment={one}"))) for one in (name, preset))
    differ = {key for key in own.keys() | papers.keys() if own.get(key) != papers.get(key)}
    assert {key.partition(".")[0] for key in differ} == {"engine", "generator"}
    assert own["generator.temperature"] == papers["generator.temperature"]


@pytest.mark.parametrize(
    ("preset", "engine"), [("tldr_2.8b", ["engine=fsdp"]), ("no_robots_8b", [])]
)
def test_several_trainers_get_an_engine_unless_one_is_chosen(
    preset: str, engine: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    words = [f"experiment={preset}"]
    three, one = parsed("1x4:3+1"), parsed("1x2:1+1")
    assert launch.settled(words, three) == ([*words, *engine], 1)
    assert launch.settled(words, one) == (words, 1)
    chosen = [*words, "engine=single", "generator.tensor_parallel_size=2"]
    assert launch.settled(chosen, three) == (chosen, 2)


def values(node: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a config by their whole keys."""
    if not OmegaConf.is_dict(node):
        yield key, node
        return
    for name in node:
        yield from values(node[name], f"{key}.{name}" if key else str(name))


@pytest.mark.parametrize("name", FILES)
def test_its_predicted_memory_fits_and_is_in_its_header(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    config = typed(composed(f"experiment={name}"))
    layout = parsed(command_of(name)[0].removeprefix("layout="))
    gpu = GPUS.get(name.partition("_")[0], GPUS["h200"])
    found = planned(workload_of(config), choice_of(config, layout, "cuda"), gpu)
    assert found.fits(gpu)
    (stated,) = re.findall(r"^# Memory, predicted by .*$", FILES[name], re.MULTILINE)
    memory = [found.memory.trainer, found.memory.generator][: 1 + bool(layout.generators)]
    assert re.findall(r"(\d+) GB", stated) == [f"{size / 1e9:.0f}" for size in memory]


@pytest.mark.parametrize("name", FILES)
def test_its_launch_line_prints_commands_that_are_not_refused(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    words = [word for word in command_of(name) if word not in ("--run", "--slurm")]
    assert launch.LAUNCH.run([*words, "--slurm"], Console(quiet=True)) == 0
    printed = capsys.readouterr().out
    assert printed.count(" serve ") == parsed(words[0].removeprefix("layout=")).generators
