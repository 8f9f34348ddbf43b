"""Every option of every group composes, and every key is explained."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import pytest

from rlhf_lab.cli.explain import explanation
from rlhf_lab.cli.reference_pages import reference
from rlhf_lab.experiment.config.config import Config, plain
from rlhf_lab.experiment.config.groups import conf_folder
from rlhf_lab.experiment.config.keys import all_keys
from rlhf_lab.experiment.config.own_parts import classes
from rlhf_lab.experiment.config.registry import group_options
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.runs.identity import hash_of
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig

ALGORITHMS = classes("algo")

GROUPS = {
    group: names for group, names in group_options().items() if group not in ("launcher", "debug")
}
OPTIONS = [f"{group}={name}" for group, names in GROUPS.items() for name in names]
# Their files set keys of other groups.
WHOLE = [option for option in OPTIONS if option.startswith(("experiment=", "task="))]
PARTS = {group: names for group, names in GROUPS.items() if group not in ("experiment", "task")}
# In each round one option of every other group, until each was in one.
ROUNDS = [
    [f"{group}={names[round_ % len(names)]}" for group, names in PARTS.items()]
    for round_ in range(max(map(len, PARTS.values())))
]


# What some options cannot do without.
REQUIRED = {
    "model=pretrained": ["model.path=somewhere"],
    "reward=combined": ["+reward@reward.terms.gold=task_rule"],
    "algo=distill": ["algo.teacher=somewhere"],
    "reward=per_task": ["+reward@reward.terms.sums=task_rule"],
}


@pytest.mark.usefixtures("costly")
@pytest.mark.parametrize(
    "options",
    [
        *(*ROUNDS, *([option] for option in WHOLE)),
        *(pytest.param([option], marks=pytest.mark.slow) for option in OPTIONS),
    ],
)
def test_every_option_composes_into_frozen_parts(config_of: MakeConfig, options: list[str]) -> None:
    required = [word for option in options for word in REQUIRED.get(option, [])]
    config = config_of(*options, *required)
    assert hash_of(plain(config)), "what a run records must be JSON"
    for part in dataclasses.fields(Config):
        value = getattr(config, part.name)
        if part.name not in ("seed", "stage_seed", "kernels", "deterministic", "plugins"):
            assert dataclasses.is_dataclass(value), part.name
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(value, dataclasses.fields(value)[0].name, None)


@pytest.mark.usefixtures("costly")
@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_algorithms_and_modes_fit_each_other(config_of: MakeConfig, algo: str) -> None:
    config = config_of(f"algo={algo}", "run.passes=2", *REQUIRED.get(f"algo={algo}", []))
    for mode in ("sync", "lagged", "async"):
        check(dataclasses.replace(config, mode=config_of(f"mode={mode}").mode))


def test_every_algorithm_is_a_small_class_with_its_name() -> None:
    for name, algorithm in ALGORITHMS.items():
        assert algorithm().name == name
        assert len(inspect.getsource(algorithm).splitlines()) <= 95, name


@pytest.mark.pages
def test_every_algorithm_has_its_row() -> None:
    table = (conf_folder().parent / "docs" / "algorithms.md").read_text(encoding="utf-8")
    assert [name for name in ALGORITHMS if f"`{name}`" not in table] == []


def test_the_config_reference_has_every_key() -> None:
    page = reference()
    assert [key.name for key in all_keys() if key.name.rpartition(".")[2] not in page] == []


@pytest.mark.pages
def test_the_config_reference_is_current() -> None:
    page = Path(conf_folder().parent / "docs" / "config.md")
    assert page.read_text(encoding="utf-8") == reference(), "run `make docs`"


def test_every_key_has_a_sentence_that_says_what_it_changes() -> None:
    every = list(all_keys())
    assert len(every) > 450
    for key in every:
        assert key.about[:1].isupper() and key.about.endswith("."), key.name
        assert len(key.about) < 240, key.name


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        (
            "mode.max_staleness",
            ["0 to 1024", "type:         int", "mode=async (1)", "rollout.mode"],
        ),
        ("algo.clip", ["algo=grpo, algo=dr_grpo", "with algo=a_lol:", "arXiv:1707.06347"]),
        ("judge.retries", ["reward=endpoint", "default:      4"]),
        ("run.updates", ["types.run_options", "debug=tiny (4)", "run=nano (64)"]),
        ("mode", ["mode=OPTION: async, free", "mode.executor ('inline'): Where samples"]),
        ("algo=dpo", ["algo=dpo: Offline", "algo.pair_loss ('sigmoid')"]),
        ("sft", ["sft.loss_on"]),
        ("seed", ["Keys all randomness"]),
        ("mode=async", ["mode=async: Generation", "mode.max_staleness=1"]),
        ("stages", ["stages=OPTION: async_rlhf"]),
        ("experiment=tldr_410m", ["  algo=online_dpo", "  optim.lr="]),
    ],
)
def test_a_key_a_node_and_an_option_are_explained(key: str, parts: list[str]) -> None:
    text = "\n".join(explanation(key))
    assert [part for part in parts if part not in text] == [], text


@pytest.mark.parametrize("group", group_options())
def test_every_option_of_every_group_is_explained(group: str) -> None:
    for option in group_options()[group]:
        assert f"{group}={option}: " in " ".join(explanation(f"{group}={option}"))


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("mode.max_stalenes", "mode.max_staleness"),
        ("max_staleness", "mode.max_staleness"),
        ("x", ""),
    ],
)
def test_an_unknown_key_is_refused_with_what_was_meant(key: str, meant: str) -> None:
    with pytest.raises(UserError, match=f"{key} is no key of the config: .*{meant}"):
        list(explanation(key))
