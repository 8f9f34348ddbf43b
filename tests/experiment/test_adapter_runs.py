"""Runs with adapters: their folders hold these alone, and who reads them reads merged weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.publish.export import export
from rlhf_lab.experiment.run import lifecycle, outputs
from rlhf_lab.experiment.run.evaluate_again import evaluate_again
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.models.weights import weights_digest
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.runs.saved_tensors import read_version, saved_versions, write_version
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.training import checkpoint_files
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.support.examples import FACTS, call
from tests.support.forks import Runs, contents
from tests.support.survival import exact_rows, killed_at, outcome

pytest.importorskip("peft", reason="pip install 'rlhf-lab[lora]'")
pytestmark = pytest.mark.usefixtures("costly")

# Three rounds of staleness: a checkpoint holds versions of earlier rounds.
SHORT = (
    *("algo=grpo", "run.group_size=4", "run.updates=6", "reward=task_rule", "eval.snapshots=3"),
    *("mode=lagged", "mode.max_staleness=2", "model.lora_rank=2", "optim.lr=3e-3"),
    *("checkpoint.minutes=0", "checkpoint.keep_every=2", "sft.threads=1", "eval.validate=proxy"),
)


@pytest.fixture(scope="module")
def parents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parents")


@pytest.fixture
def runs(tmp_path: Path, parents: Path) -> Runs:
    return Runs(tmp_path, parents)


@pytest.fixture
def run(make_config: MakeConfig, runs: Runs) -> Path:
    return runs.parent(make_config, *SHORT)


def merging(patch: pytest.MonkeyPatch, *modules: Any) -> None:
    """Have versions written as merged weights, as runs of earlier releases have them."""

    def whole(weights: Weights, stem: Path) -> list[Path]:
        return write_version(replace(weights, adapters=None), stem)

    for module in modules:
        patch.setattr(module, "write_version", whole)


def trained(config: Config) -> Path:
    return lifecycle.train(config, Console(quiet=True), FACTS)


def rows(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What evaluation and validation found."""
    names = ("evals.jsonl", "samples.jsonl", "validation.jsonl")
    return {name: exact_rows(folder / name) for name in names}


def test_a_run_leaves_adapters_alone(run: Path) -> None:
    sizes = {path: path.stat().st_size for path in run.rglob("*.safetensors")}
    adapters = [path for path in sizes if path.name == "adapter_model.safetensors"]
    places = {str(path.parent.relative_to(run)) for path in adapters}
    kept = {f"weights/{version:06d}" for version in (0, 2, 4, 6)}
    held = {f"checkpoints/{n:08d}/weights-{n:08d}" for n in (2, 4)}
    assert places >= kept | held | {"policy"}
    assert len(places) > len(kept | held) + 1, "checkpoints hold older versions too"
    others = set(sizes) - set(adapters)
    assert {path.name for path in others} == {"optimizer.safetensors"}
    # A and B, and of both the two moments of AdamW and the steps.
    assert max(sizes[path] for path in others) < 4 * max(sizes[path] for path in adapters)
    last, final = (
        load_file(run / place / adapters[0].name) for place in ("weights/000006", "policy")
    )
    assert last.keys() == final.keys()
    assert all(torch.equal(last[name], final[name]) for name in last)


def test_evaluation_reads_the_bits_that_merged_files_held(
    make_config: MakeConfig, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        merging(patch, outputs)
        merged = trained(make_config(*SHORT, f"output.dir={tmp_path}/merged"))
    assert {path.suffix for path in saved_versions(merged).values()} == {".safetensors"}
    assert all(path.parent.name == "weights" for path in saved_versions(merged).values())
    assert outcome(merged) == outcome(run)
    assert rows(merged) == rows(run)
    # Of the last version, the digest that training noted is that of what is read.
    version, path = list(saved_versions(merged).items())[-1]
    digest = read_manifest(run / "manifest.json")["weights_digest"]
    assert weights_digest(read_version(version, path)) == digest


def test_evaluate_again_gives_the_rows_of_training(make_config: MakeConfig, run: Path) -> None:
    before = rows(run)
    (run / "evals.jsonl").unlink()
    evaluate_again(make_config(*SHORT, f"output.dir={run}"), Console(quiet=True))
    assert rows(run) == before


@pytest.mark.parametrize("form", ["adapters", "merged"])
def test_a_run_is_continued_from_checkpoints_of_either_form(
    make_config: MakeConfig, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    cut = tmp_path / "cut"
    with monkeypatch.context() as patch:
        if form == "merged":
            merging(patch, outputs, checkpoint_files)
        trained(make_config(*SHORT, "checkpoint.pause_round=4", f"output.dir={cut}"))
    trained(make_config(*SHORT, f"output.dir={cut}", "output.resume=true"))
    assert outcome(cut) == outcome(run)
    assert exact_rows(cut / "evals.jsonl") == exact_rows(run / "evals.jsonl")
    names = {path.name for path in saved_versions(cut).values()}
    assert ("adapter_model.safetensors" in names) and (len(names) > 1) == (form == "merged")


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(("point", "round_"), [("file saved", 3), ("policy", 5)])
def test_a_run_that_is_killed_ends_with_the_same_bits(
    make_config: MakeConfig, run: Path, tmp_path: Path, point: str, round_: int
) -> None:
    cut = tmp_path / "cut"
    resuming = make_config(*SHORT, f"output.dir={cut}", "output.resume=true")
    killed_at(resuming, point, round_)
    trained(resuming)
    assert outcome(cut) == outcome(run) and rows(cut) == rows(run)
    one, other = (folder / "policy" / "adapter_model.safetensors" for folder in (cut, run))
    assert one.read_bytes() == other.read_bytes()


def test_a_version_is_in_one_form(run: Path, tmp_path: Path) -> None:
    weights = read_version(2, saved_versions(run)[2])
    merged = Weights(2, {"a": torch.zeros(2)})
    (tmp_path / "weights").mkdir()
    write_version(merged, tmp_path / "weights" / "000002")
    assert read_version(2, saved_versions(tmp_path)[2]).adapters is None
    write_version(weights, tmp_path / "weights" / "000002")
    assert [path.name for path in (tmp_path / "weights").iterdir()] == ["000002"]
    again = read_version(2, saved_versions(tmp_path)[2])
    assert again.adapters is not None and weights.adapters is not None
    assert again.adapters.config == weights.adapters.config


def test_a_fork_keeps_the_adapters_that_it_begins_from(
    make_config: MakeConfig, runs: Runs, run: Path
) -> None:
    before = contents(run)
    of = (f"fork.parent={run}", "fork.round=4", f"output.dir={runs.folder('fork')}")
    fork = runs.train(make_config(*SHORT, *of))
    assert outcome(fork) == outcome(run) and contents(run) == before
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        one, other = (folder / "weights/000004" / name for folder in (fork, run))
        assert one.read_bytes() == other.read_bytes()


def test_adapters_of_another_rank_are_refused(
    make_config: MakeConfig, run: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut"
    trained(make_config(*SHORT, "checkpoint.pause_round=4", f"output.dir={cut}"))
    other = make_config(*SHORT, "model.lora_rank=3", f"output.dir={cut}", "output.resume=true")
    with pytest.raises(UserError, match=r"the checkpoint is of another model: .*lora_"):
        trained(other)


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    model, _ = load_policy(PretrainedModel("x", str(folder)), None, seed=0)
    return dict(model.named_parameters())


def test_transformers_and_a_new_run_begin_from_the_policy(
    make_config: MakeConfig, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(make_config(*SHORT), run, run / "whole", None, Console(quiet=True))
    own, whole = weights_in(run / "policy"), weights_in(run / "whole")
    assert own.keys() == whole.keys()
    assert all(torch.equal(own[name], whole[name]) for name in own)
    tokens = torch.arange(3, 13).unsqueeze(0)
    with torch.inference_mode():
        adapted = AutoModelForCausalLM.from_pretrained(run / "policy").eval()(tokens).logits
        merged = AutoModelForCausalLM.from_pretrained(run / "whole").eval()(tokens).logits
    assert torch.allclose(adapted, merged, atol=1e-4)
    assert len(AutoTokenizer.from_pretrained(run / "policy")) > 0
    given = ["debug=tiny", "mode=sync", "eval=none", "algo=grpo", "run.updates=1"]
    given += ["model=pretrained", f"model.path={run}/policy", "reward=task_rule"]
    given += [f"output.cache={tmp_path}/cache", f"output.dir={tmp_path}/next"]
    assert call("train", *given, monkeypatch=monkeypatch) == 0
    (row,) = exact_rows(tmp_path / "next" / "metrics.jsonl")
    assert row["kl/sampled_reference_k1"] == pytest.approx(0, abs=1e-4)
