"""`model.sft=true`: a base model is fine-tuned first, as a stage of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from tests.conftest import Finished, MakeConfig
from tests.support.composed import composed

pytestmark = pytest.mark.usefixtures("costly")


@pytest.fixture
def base(make_config: MakeConfig) -> list[str]:
    """Overrides of a pretrained model: what SFT of a nano model left."""
    config = make_config()
    folder = Artifacts(config, Console(quiet=True)).sft(config.model).folder
    own = [f"{node}.path={folder}" for node in ("model", "proxy")]
    return ["model=pretrained", "model@proxy=pretrained", *own]


def test_a_base_model_is_fine_tuned_for_policy_labels_and_proxy(
    base: list[str], make_config: MakeConfig
) -> None:
    config = make_config(*base, "model.sft=true", "proxy.sft=true")
    stages = Artifacts(config, Console(quiet=True))
    made = stages.sft(config.model).folder
    # The one that `rlhf-lab sft` makes of the same model, and the proxy's own start.
    alone = make_config(*base)
    assert Artifacts(alone, Console(quiet=True)).sft(alone.model).folder == made
    assert stages.folders()[0] == made and len(stages.folders()) == 3
    sources = stages.sources()
    assert sources.policy == PretrainedModel(name="pretrained", path=str(made))
    assert sources.quality["stage/sft_loss"] > 0
    assert stages.policy(config.proxy).path == str(made)
    other = Artifacts(make_config(*base), Console(quiet=True))
    assert other.folders()[0].parent.name == "labels" and other.folders() != stages.folders()[1:]
    assert other.policy(config.proxy).path == str(made), "whose sft is true"


def test_a_run_of_a_base_model_begins_as_its_sft_policy(
    base: list[str], make_config: MakeConfig, finished: Finished
) -> None:
    overrides = (*base, "model.sft=true", "reward=task_rule", "eval.snapshots=1")
    config = make_config(*overrides)
    sft = Artifacts(config, Console(quiet=True)).sft(config.model).folder
    by_path = [*base, f"model.path={sft}", "reward=task_rule", "eval.snapshots=1"]
    plain_base = (*base, "reward=task_rule", "eval.snapshots=1")
    assert finished(*overrides)[1] == finished(*by_path)[1] != finished(*plain_base)[1]


def test_a_task_without_references_has_nothing_to_fine_tune_on(
    base: list[str], make_config: MakeConfig, tmp_path: Path
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a"}\n')
    task = ["task=prompts", f"task.path={file}", "reward=task_rule", "reward@judge=none"]
    with pytest.raises(UserError, match=r"model\.sft=true.*task\.reference"):
        check(make_config(*base, *task, "model.sft=true"))


def test_a_pretrained_model_without_a_name_has_that_of_its_path() -> None:
    named = PretrainedModel(name="", path="EleutherAI/pythia-1b-deduped")
    assert named.name == "pythia-1b-deduped"
    assert PretrainedModel(name="mine", path="a/b").name == "mine"


@pytest.mark.parametrize("size", ["410m", "1b", "2.8b"])
def test_a_base_is_the_papers_start_of_its_own_sft(size: str) -> None:
    of_base, published = (
        composed("experiment=tldr_410m", f"model={name}")
        for name in (f"pythia_{size}_base", f"pythia_{size}")
    )
    assert of_base.model.sft and of_base.model.path == f"EleutherAI/pythia-{size}-deduped"
    assert of_base.reward.path == published.reward.path
