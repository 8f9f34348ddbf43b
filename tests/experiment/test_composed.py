"""Configs that tests compose are those that Hydra composes, and so are the complaints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import Container, DictConfig, ListConfig, OmegaConf

from rlhf_lab.experiment.config.groups import conf_folder
from rlhf_lab.experiment.config.typed import typed
from tests.support import composed as module
from tests.support.composed import by_hydra, composed
from tests.support.quick_hydra import quickened

pytestmark = pytest.mark.usefixtures("costly")
FOLDER = conf_folder()

OVERRIDES = {
    "values": [
        "run.updates=7",
        "seed=3",
        "run.updates=9",
        "output.dir='a b/${output.root}'",
        "model.lora_targets=[dense,query_key_value]",
        "output.quiet=TRUE",
        "optim.lr=1e-3",
        "+reward.extra=1",
        "++reward.other=2",
        "++run.updates=int(3.0)",
        "+algo.new={a: [1, 2], b: 3}",
        "~algo.new.b",
    ],
    "choices": ["algo.lam=0.5", "algo=ppo", "mode=lagged", "debug=tiny", "mode.max_staleness=3"],
    "other packages": ["reward@judge=function", "judge.path=a.b", "run=paper"],
    "terms": [
        "reward=combined",
        "+reward@reward.terms.gold=task_rule",
        "+reward@reward.terms.words=function",
        "reward.terms.words.path=a.b",
    ],
    "interpolation": [
        "experiment=demo",
        "output.root=x",
        "reward=paper_proxy",
        "model=pythia_410m",
    ],
    "a whole node": ["sft.batch=1", "sft={steps: 3}", "optim.lr=1", "optim={lr: 2}", "optim.lr=3"],
    "deleted": ["~algo", "run.updates=5"],
}
ERRORS = {
    "no such key": ["run.updates=3", "run.nope=1"],
    "no such option": ["algo=nope"],
    "wrong type": ["run.updates=abc"],
    "added twice": ["+run.updates=3"],
    "nothing to delete": ["~run.nope"],
    "a sweep": ["run.updates=1,2"],
    "syntax": ["run.updates=["],
    "a package of no group": ["run.updates@x=3"],
}


def shape(node: Any) -> Any:
    """All that makes a node what it is: types, flags, and values before interpolation."""
    facts = node._metadata
    kind = (type(node), facts.object_type, facts.ref_type, facts.flags)
    if not isinstance(node, Container):
        return kind, node._value()
    if node._is_none() or node._is_missing() or node._is_interpolation():
        return kind, node._value()
    if isinstance(node, ListConfig):
        return kind, [shape(node._get_node(index)) for index in range(len(node))]
    assert isinstance(node, DictConfig)
    return kind, [(key, shape(node._get_node(key))) for key in node]


@pytest.mark.parametrize("overrides", OVERRIDES.values(), ids=OVERRIDES)
def test_composed_is_what_hydra_composes(overrides: list[str]) -> None:
    with quickened(False):
        hydras = by_hydra(FOLDER, "config", overrides)
    ours = composed(*overrides)
    assert shape(ours) == shape(hydras)
    assert OmegaConf.to_yaml(ours) == OmegaConf.to_yaml(hydras)


@pytest.mark.parametrize("overrides", [*OVERRIDES.values(), ["hydra.sweep.dir=x", "seed=3"]])
def test_a_quick_hydra_composes_what_hydra_composes(overrides: list[str]) -> None:
    with quickened(False):
        hydras = by_hydra(FOLDER, "config", overrides, hydra=True)
    with quickened(True):
        ours = [by_hydra(FOLDER, "config", overrides, hydra=True) for _ in range(2)]
    # Both when it merges files and when it knows them.
    assert shape(ours[0]) == shape(hydras) == shape(ours[1])


def test_a_quick_hydra_reads_files_that_tests_write(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    for value in (1, 2):
        (tmp_path / "part" / "own.yaml").write_text(f"a: {value}\ndefaults: [_self_]\n")
        with quickened(True):
            assert by_hydra(tmp_path, "part/own", []).part.a == value


@pytest.mark.parametrize("overrides", ERRORS.values(), ids=ERRORS)
def test_a_complaint_is_hydras_own(overrides: list[str]) -> None:
    with pytest.raises(Exception) as hydras, quickened(False):
        by_hydra(FOLDER, "config", overrides)
    with pytest.raises(type(hydras.value)) as ours:
        composed(*overrides)
    assert type(ours.value) is type(hydras.value) and str(ours.value) == str(hydras.value)


def test_each_choice_of_groups_is_composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    once = composed("algo=ppo", "run.updates=3", "output.dir=x")
    monkeypatch.setattr(module, "by_hydra", None)
    assert composed("algo=ppo", "run.updates=5").run.updates == 5
    # The copies share nothing.
    once.run.updates = 7
    assert composed("algo=ppo", "run.updates=3", "output.dir=x").run.updates == 3
    assert typed(once).run.updates == 7
