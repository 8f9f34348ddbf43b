"""Parts of one's own: found, listed, explained, trained with, recorded; wrong ones are refused."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlhf_lab.cli.explain import explanation
from rlhf_lab.cli.main import run_command
from rlhf_lab.experiment.config import plugins
from rlhf_lab.experiment.config.code import code_of_parts, plugins_of
from rlhf_lab.experiment.config.own_parts import own_class
from rlhf_lab.experiment.config.registry import group_options
from rlhf_lab.experiment.config.schema import register
from rlhf_lab.experiment.config.typed import typed
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.runs.provenance import with_plugins
from rlhf_lab.sweeps.job import content_of
from rlhf_lab.sweeps.run_job import JobRunner, StopFiles
from rlhf_lab.types.errors import UserError
from tests.support.composed import composed
from tests.support.examples import call
from tests.support.own_parts import MODULE, SOURCE, no_plugins, write_plugin

NAMES = {
    **{"algo": "halved", "correction": "unchanged", "task": "sums"},
    **{"reward": "brief", "generator": "copied", "engine": "alone", "tracker": "lines"},
}
OWN = [f"{group}={name}" for group, name in NAMES.items()]
KEY = f"plugins=[{MODULE}]"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with the plugin, which no other test knows."""
    monkeypatch.chdir(tmp_path)
    write_plugin(tmp_path)
    with no_plugins(MODULE, "wrong"):
        yield tmp_path


def test_its_parts_are_listed_in_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("train", ["--help", KEY]) == 0
    text = capsys.readouterr().out
    for group, name in NAMES.items():
        assert name in group_options()[group]
        assert f" {name} " in text.replace("\n", " ")


def test_its_options_are_explained() -> None:
    plugins.activate([MODULE])
    text = "\n".join(explanation("algo=halved"))
    assert "RLOO with a factor." in text
    assert "algo.factor (0.5): Factor of the credit." in text


def test_its_parts_compose_with_their_options_checked() -> None:
    plugins.activate([MODULE])
    register()
    config = typed(composed(*OWN, "algo.factor=0.25"))
    assert (config.algo.factor, config.task.name, config.reward.name) == (0.25, "sums", "brief")
    with pytest.raises(UserError, match=r"algo\.factor=2\.0 is out of range: choose 0 to 1"):
        typed(composed(*OWN, "algo.factor=2"))


def test_its_code_is_part_of_what_a_run_is(folder: Path) -> None:
    plugins.activate([MODULE])
    register()
    config = typed(composed(*OWN))
    (facts,) = plugins_of(config)
    assert (facts["module"], facts["version"]) == (MODULE, None)
    assert sorted(facts["parts"]) == sorted(OWN)
    before = content_of(config), with_plugins("code", [facts])
    write_plugin(folder, SOURCE + "\n# Another version.\n")
    (changed,) = plugins_of(config)
    assert changed["sha256"] != facts["sha256"]
    assert content_of(config) != before[0]
    assert with_plugins("code", [changed]) != before[1] != "code"


def test_naming_it_changes_nothing_of_a_run_without_its_parts() -> None:
    plugins.activate([MODULE])
    without, named = typed(composed()), typed(composed(KEY))
    assert content_of(without) == content_of(named)
    assert code_of_parts(named) == {}
    assert with_plugins("code", plugins_of(named)) == "code"


def test_a_run_with_it_is_trained_resumed_and_missed(
    folder: Path, cache: Path, processes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = folder / "run"
    words = [KEY, *OWN, "debug=tiny", "mode=async", f"output.cache={cache}", f"output.dir={run}"]
    assert call("train", *words, "output.quiet=true", monkeypatch=monkeypatch) == 0
    assert (run / "lines.txt").read_text().split() == ["0", "1", "2", "3"]
    path = run / "manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest["plugins"][0]["module"] == MODULE
    path.write_text(json.dumps(manifest | {"state": "stopped"}))
    with no_plugins(MODULE):
        assert call("resume", str(run), "output.quiet=true", monkeypatch=monkeypatch) == 0
    (folder / f"{MODULE}.py").unlink()
    with no_plugins(MODULE), pytest.raises(UserError, match=r"made with algo=halved.*install it"):
        run_command("resume", [str(run)])


def test_a_file_may_name_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "conf/experiment").mkdir(parents=True)
    (folder / "conf/experiment/own.yaml").write_text(
        f"# @package _global_\ndefaults:\n  - override /algo: halved\nplugins: [{MODULE}]\n"
    )
    words = ["hydra.searchpath=[file://conf]", "experiment=own", "--cfg", "job"]
    assert call("train", *words, monkeypatch=monkeypatch) == 0
    assert plugins.active() == (MODULE,)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("import no_such_module", r"plugins=\[wrong\]: the module wrong could not be imported .*"),
        ("", "wrong has no table PARTS: write PARTS = "),
        ("PARTS = {'optimiser': {'a': 'b:C'}}", "'optimiser'.* is no group: choose algo, "),
        ("PARTS = {'algo': {'a b': 'b:C'}}", "has the name 'a b'"),
        ("PARTS = {'algo': {'a': 'b.C'}}", "algo=a leads to 'b.C': write 'MODULE:CLASS'"),
        ("PARTS = {'algo': {'grpo': 'b:C'}}", "algo=grpo is taken .*choose another name"),
        ("raise SystemExit(3)", "could not be imported .*sys.exit"),
    ],
)
def test_a_wrong_table_is_refused(folder: Path, source: str, complaint: str) -> None:
    write_plugin(folder, source, "wrong")
    with pytest.raises(UserError, match=complaint):
        plugins.activate(["wrong"])


HEAD = (
    "from dataclasses import dataclass\n"
    "from rlhf_lab.types import limits\n"
    "from rlhf_lab.algos.rloo import RLOO\n"
)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("", "wrong has no class Mine"),
        ("class Mine: pass", "is no frozen dataclass"),
        ("@dataclass(frozen=True)\nclass Mine(RLOO):\n    x: int = 1", "name: str = limits.name"),
        (
            "@dataclass(frozen=True)\nclass Mine(RLOO):\n"
            "    name: str = limits.name('mine')\n    x: str = ''",
            "field x has no sentence",
        ),
        (
            "@dataclass(frozen=True)\nclass Mine(RLOO):\n    name: str = limits.name('mine')\n"
            "    x: int = limits.option(1, about='A number.')",
            "field x is a number without a range",
        ),
        (
            "@dataclass(frozen=True)\nclass Mine:\n    name: str = limits.name('mine')",
            "has no objective, reduction, needs, credit, loss.*: extend .*AlgorithmOptions",
        ),
        (
            "@dataclass(frozen=True)\nclass Mine(RLOO):\n    name: str = limits.name('mine')\n"
            "    x: object = limits.option(None, about='Anything.')",
            "its fields are no options",
        ),
    ],
)
def test_a_class_that_cannot_be_an_option_is_refused(
    folder: Path, source: str, complaint: str
) -> None:
    write_plugin(folder, HEAD + source, "wrong")
    with pytest.raises(UserError, match=complaint):
        own_class("algo", "mine", "wrong:Mine")


@pytest.mark.parametrize(
    ("group", "base", "module"),
    [
        ("generator", "GeneratorOptions", "rlhf_lab.rollout.generators.options"),
        ("engine", "EngineOptions", "rlhf_lab.training.engines.options"),
    ],
)
def test_a_generator_or_engine_that_builds_nothing_is_refused(
    folder: Path, group: str, base: str, module: str
) -> None:
    source = (
        f"{HEAD}from {module} import {base}\n@dataclass(frozen=True)\nclass Mine({base}):\n"
        "    name: str = limits.name('mine')\n"
    )
    write_plugin(folder, source, "wrong")
    with pytest.raises(UserError, match=rf"{group}=mine \(wrong:Mine\) has no build: extend .*\."):
        own_class(group, "mine", "wrong:Mine")


WHOLE = """
from dataclasses import dataclass
from rlhf_lab.rollout.generators.options import GeneratorOptions
from rlhf_lab.types import limits

PARTS = {"generator": {"whole": "wrong:Whole"}}

@dataclass(frozen=True)
class Whole(GeneratorOptions):
    name: str = limits.name("whole")

    def build(self, context):
        raise AssertionError
"""


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["mode=lagged", "mode.segment_tokens=4"], r"mode\.segment_tokens=4 .* Ability\.segments"),
        (["algo=remax"], r"algo=remax with generator=whole: .* Ability\.greedy"),
        (["task=ask_nano", "reward=environment"], r"task=ask_nano with .* Ability\.turns"),
        (["generator.round_weights=int8"], "does not round the weights that it loads"),
    ],
)
def test_a_generator_is_asked_for_nothing_that_it_does_not_declare(
    folder: Path, words: list[str], complaint: str
) -> None:
    write_plugin(folder, WHOLE, "wrong")
    plugins.activate(["wrong"])
    register()
    with pytest.raises(UserError, match=complaint):
        check(typed(composed("generator=whole", *words)), here=False)


@pytest.mark.parametrize(
    ("group", "bases", "complaint"),
    [
        ("task", "", r"does not extend rlhf_lab.tasks.task_options.Task, .*extend it"),
        ("reward", "", r"does not extend rlhf_lab.rewards.options.RewardOptions, "),
        ("generator", "", r"does not extend rlhf_lab.rollout.generators.options.GeneratorOptions"),
        ("engine", "", r"does not extend rlhf_lab.training.engines.options.EngineOptions, "),
        ("task", "(Task)", "has no examples, max_prompt_tokens, max_response_tokens: "),
        ("reward", "(RewardOptions)", r"has no build: extend .*RewardOptions"),
    ],
)
def test_a_part_without_its_base_class_or_its_methods_is_refused(
    folder: Path, group: str, bases: str, complaint: str
) -> None:
    head = (
        "from rlhf_lab.rewards.options import RewardOptions\n"
        "from rlhf_lab.tasks.task_options import Task\n"
    )
    source = f"@dataclass(frozen=True)\nclass Mine{bases}:\n    name: str = limits.name('mine')\n"
    write_plugin(folder, HEAD + head + source, "wrong")
    with pytest.raises(UserError, match=complaint):
        own_class(group, "mine", "wrong:Mine")


def test_a_launchers_worker_activates_it(tmp_path: Path) -> None:
    sent = pickle.dumps(JobRunner((), "", (), StopFiles(tmp_path), (MODULE,)))
    assert plugins.active() == ()
    pickle.loads(sent)
    assert plugins.active() == (MODULE,)


@pytest.mark.parametrize("text", ["plugins=mine", "plugins=[1]", "plugins=['a b']"])
def test_a_value_that_is_no_list_of_modules_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="pass a list of modules"):
        plugins.modules_in([text])
