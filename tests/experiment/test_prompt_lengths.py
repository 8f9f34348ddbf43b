"""Prompts that are too long are refused by the tokenizer alone; those left out are counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from rlhf_lab.experiment.build.prompt_lengths import left_out_note, require_fit
from rlhf_lab.models.causal_lm import save_policy
from rlhf_lab.runs.jsonl import write_rows
from rlhf_lab.tasks.byte_tokenizer import byte_tokenizer
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.support.examples import call

SHORT, LONG = "how many are two and two ?", "how many ? " * 20
OPTIONS = ("task=prompts", "task.max_prompt_tokens=64", "task.max_response_tokens=8")
REWARD = "def length(prompt, completion, **_):\n    return float(len(completion))\n"


@pytest.fixture(autouse=True)
def own_reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lengths_of_answers.py").write_text(REWARD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model's folder without its weights."""
    words = byte_tokenizer()
    config = GPTNeoXConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=128,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
    )
    save_policy(GPTNeoXForCausalLM(config), words, tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    return tmp_path / "model"


def data(folder: Path, train: Sequence[str], validation: Sequence[str]) -> Path:
    """A folder of prompts with these splits."""
    folder.mkdir()
    for name, texts in (("train", train), ("validation", validation)):
        write_rows(
            folder / f"{name}.jsonl", [{"prompt": f"{text}{n}"} for n, text in enumerate(texts)]
        )
    return folder


@pytest.mark.parametrize(
    ("train", "validation", "place"),
    [([LONG, *[SHORT] * 3], [SHORT], "train"), ([SHORT] * 4, [SHORT, LONG], "validation")],
)
def test_a_run_with_a_long_prompt_is_refused_before_weights_are_loaded(
    tmp_path: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    train: list[str],
    validation: list[str],
    place: str,
) -> None:
    rows = data(tmp_path / "rows", train, validation)
    words = ["debug=tiny", *OPTIONS, f"task.path={rows}", "output.quiet=true"]
    words += ["reward=function", "reward.path=lengths_of_answers.length"]
    words += ["model=pretrained", f"model.path={model}"]
    assert call("train", *words, monkeypatch=monkeypatch) == 2
    refused = capsys.readouterr().err
    assert place in refused and "task.max_prompt_tokens=64" in refused, refused
    assert not (tmp_path / "runs").exists()


def test_what_stages_alone_would_read_is_checked_too(
    tmp_path: Path, model: Path, config_of: MakeConfig
) -> None:
    rows = data(tmp_path / "rows", [SHORT] * 199 + [LONG], [SHORT])
    words = (*OPTIONS, f"task.path={rows}", "run.updates=1", "eval.prompts=1")
    require_fit(config_of(*words, "model=pretrained", f"model.path={model}"))
    with pytest.raises(UserError, match=r"task\.max_prompt_tokens=64"):
        require_fit(config_of(*words, "model=nano_s"))


def test_prompts_that_are_left_out_are_not_refused_but_counted(
    tmp_path: Path, config_of: MakeConfig
) -> None:
    rows = data(tmp_path / "rows", [LONG, SHORT], [SHORT, LONG, LONG])
    words = (*OPTIONS, f"task.path={rows}", "task.drop_long=true", "model=nano_s")
    config = config_of(*words, "eval.prompts=3")
    require_fit(config)
    assert left_out_note(config, 3) == ""
    assert left_out_note(config, 1).startswith("eval.prompts=3: 1 prompts are judged")
    none = data(tmp_path / "none", [SHORT], [LONG])
    with pytest.raises(UserError, match=r"all prompts of split validation"):
        require_fit(config_of(*words, f"task.path={none}"))
