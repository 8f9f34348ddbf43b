"""Every option of every group composes; the docs say what the schema says."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from conftest import MakeConfig

from rlhf_lab.cli.conf import conf_folder
from rlhf_lab.cli.config_reference import reference
from rlhf_lab.experiment.checks import check
from rlhf_lab.experiment.config import ALGORITHMS, Config, plain
from rlhf_lab.runs.folder import config_hash

MOUNT = {"budget": "budget@run"}
OPTIONS = sorted(
    f"{MOUNT.get(path.parent.name, path.parent.name)}={path.stem}"
    for path in conf_folder().glob("*/*.yaml")
    if path.parent.name not in ("launcher", "debug")
)


# What some options cannot do without.
REQUIRED = {
    "model=pretrained": ["model.path=somewhere"],
    "reward=combined": ["+reward@reward.terms.gold=task_rule"],
}


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_composes_into_frozen_parts(config_of: MakeConfig, option: str) -> None:
    config = config_of(option, *REQUIRED.get(option, []))
    assert config_hash(plain(config)), "what a run records must be JSON"
    for part in dataclasses.fields(Config):
        value = getattr(config, part.name)
        if part.name not in ("seed", "kernels"):
            assert dataclasses.is_dataclass(value), part.name
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(value, dataclasses.fields(value)[0].name, None)


@pytest.mark.parametrize("mode", ["sync", "lagged", "async"])
@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_algorithms_and_modes_fit_each_other(config_of: MakeConfig, algo: str, mode: str) -> None:
    config = config_of(f"algo={algo}", "run.passes=2")
    check(dataclasses.replace(config, mode=config_of(f"mode={mode}").mode))


def test_every_algorithm_has_its_file_and_yaml_and_row() -> None:
    root = conf_folder().parent
    table = (root / "docs" / "algorithms.md").read_text(encoding="utf-8")
    for name, algorithm in ALGORITHMS.items():
        assert algorithm().name == name
        assert (conf_folder() / "algo" / f"{name}.yaml").is_file()
        assert f"`{name}`" in table
        source = root / "src" / "rlhf_lab" / "algos" / f"{name}.py"
        assert len(source.read_text(encoding="utf-8").splitlines()) <= 95, "about 80"


def test_the_config_reference_is_current() -> None:
    page = Path(conf_folder().parent / "docs" / "config.md")
    assert page.read_text(encoding="utf-8") == reference(), "run `make docs`"
