"""A sweep's jobs have the configs that Hydra composes, whatever they share with each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.config.groups import conf_folder
from rlhf_lab.experiment.config.typed import typed
from rlhf_lab.sweeps.composition import Composer
from rlhf_lab.types.errors import UserError
from tests.support.composed import registered

TINY = ("debug=tiny", "task=arithmetic")


@pytest.fixture
def composer() -> Iterator[Composer]:
    """Of a sweep without keys of its own."""
    registered()
    instance = GlobalHydra.instance()
    outer, before = instance.hydra, HydraConfig.instance().cfg
    instance.clear()
    try:
        with initialize_config_dir(str(conf_folder()), version_base="1.3"):
            loader = instance.config_loader()
            master = loader.load_configuration("config", [], run_mode=RunMode.MULTIRUN)
            yield Composer(loader, master)
    finally:
        GlobalHydra.instance().hydra, HydraConfig.instance().cfg = outer, before


def by_hydra(composer: Composer, *overrides: str) -> Config:
    cfg: DictConfig = composer.loader.load_sweep_config(composer.master, list(overrides))
    HydraConfig.instance().set_config(cfg)
    return typed(cfg)


def ours(composer: Composer, *overrides: str) -> Config:
    with composer.config(overrides) as config:
        return config


def test_jobs_are_what_hydra_composes_and_files_are_merged_once_a_choice(
    composer: Composer, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [
        (*TINY, f"algo={algo}", f"optim.lr={rate}", f"seed={seed}", *more)
        for algo, more in (("grpo", ("algo.clip=0.1",)), ("rloo", ("++optim.eps=1e-9",)))
        for rate in ("1e-5", "2e-5")
        for seed in (1, 2, 3)
    ]
    wanted = [by_hydra(composer, *job) for job in jobs]
    calls: list[Any] = []
    real = composer.loader.load_sweep_config

    def counted(*given: Any) -> DictConfig:
        calls.append(given)
        cfg: DictConfig = real(*given)
        return cfg

    monkeypatch.setattr(composer.loader, "load_sweep_config", counted)
    assert [ours(composer, *job) for job in jobs] == wanted
    assert len(calls) == 2


@pytest.mark.parametrize(
    "overrides",
    [
        ("optim.lr=1e-5", "optim=paper"),
        ("reward=combined", "+reward@reward.terms.rule=task_rule", "reward.closed=1"),
        ("model=pretrained", "model.path=a", "reward=paper_proxy", "model.reward_model=b"),
        ("experiment=demo", "seed=7"),
        ("output.dir=${hydra:job.name}/x", "seed=3"),
        ("output.dir=runs/${seed}", "seed=4"),
        ("+eval.ks=[1,2]", "eval.samples=2"),
        ("tracker.wandb_tags=[a,b]", "labels.noise=bradley_terry"),
        ("seed=1", "seed=2"),
        ("optim.lr=1e-5", "optim.lr=2e-5"),
    ],
)
def test_whatever_overrides_are_is_composed_alike(
    composer: Composer, overrides: tuple[str, ...]
) -> None:
    ours(composer, *TINY, "seed=11")
    assert ours(composer, *TINY, *overrides) == by_hydra(composer, *TINY, *overrides)


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("optim.lr=abc", "'abc'"),
        ("optim.nothing=1", "nothing"),
        ("algo=nothing", "algo/nothing"),
        ("seed=abc", "abc"),
        ("seed=-1", "seed=-1 is out of range"),
        ("optim.lr=2", "optim.lr=2.0 is out of range"),
    ],
)
def test_what_is_wrong_is_refused_in_the_same_words(
    composer: Composer, override: str, complaint: str
) -> None:
    words = []
    for compose in (by_hydra, ours):
        with pytest.raises((UserError, HydraException)) as refused:
            compose(composer, *TINY, override)
        words.append(f"{refused.value} {refused.value.__cause__}")
    assert words[0] == words[1]
    assert complaint in words[0]
