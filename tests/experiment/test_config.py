"""Every option of every group composes; the docs say what the schema says."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rlhf_lab.cli.config_reference import reference
from rlhf_lab.cli.explain import explanation
from rlhf_lab.experiment.checks import check
from rlhf_lab.experiment.config import Config, plain
from rlhf_lab.experiment.keys import all_keys
from rlhf_lab.experiment.registry import classes, conf_folder, group_options
from rlhf_lab.runs.folder import config_hash
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig

ALGORITHMS = classes("algo")

OPTIONS = [
    f"{group}={name}"
    for group, names in group_options().items()
    for name in names
    if group not in ("launcher", "debug")
]


# What some options cannot do without.
REQUIRED = {
    "model=pretrained": ["model.path=somewhere"],
    "reward=combined": ["+reward@reward.terms.gold=task_rule"],
    "algo=distill": ["algo.teacher=somewhere"],
    "reward=per_task": ["+reward@reward.terms.sums=task_rule"],
}


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_composes_into_frozen_parts(config_of: MakeConfig, option: str) -> None:
    config = config_of(option, *REQUIRED.get(option, []))
    assert config_hash(plain(config)), "what a run records must be JSON"
    for part in dataclasses.fields(Config):
        value = getattr(config, part.name)
        if part.name not in ("seed", "stage_seed", "kernels", "deterministic", "plugins"):
            assert dataclasses.is_dataclass(value), part.name
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(value, dataclasses.fields(value)[0].name, None)


@pytest.mark.parametrize("mode", ["sync", "lagged", "async"])
@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_algorithms_and_modes_fit_each_other(config_of: MakeConfig, algo: str, mode: str) -> None:
    config = config_of(f"algo={algo}", "run.passes=2", *REQUIRED.get(f"algo={algo}", []))
    check(dataclasses.replace(config, mode=config_of(f"mode={mode}").mode))


def test_every_algorithm_has_its_file_and_row() -> None:
    root = conf_folder().parent
    table = (root / "docs" / "algorithms.md").read_text(encoding="utf-8")
    for name, algorithm in ALGORITHMS.items():
        assert algorithm().name == name
        assert f"`{name}`" in table
        source = root / "src" / "rlhf_lab" / "algos" / f"{name}.py"
        assert len(source.read_text(encoding="utf-8").splitlines()) <= 95, "about 80"


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
    ],
)
def test_a_key_a_node_and_an_option_are_explained(key: str, parts: list[str]) -> None:
    text = "\n".join(explanation(key))
    assert [part for part in parts if part not in text] == [], text


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
