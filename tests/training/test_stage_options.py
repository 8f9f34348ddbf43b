"""Options of the supervised stages: rates, presets, what a model takes, lengths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from torch.optim.lr_scheduler import LRScheduler

from rlhf_lab.experiment.artifacts.keys import ArtifactKeys
from rlhf_lab.experiment.artifacts.models import sft_prompts
from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.build.prompts import build_prompts
from rlhf_lab.experiment.config.config import plain
from rlhf_lab.experiment.config.groups import option_files
from rlhf_lab.experiment.config.typed import typed
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.chat import answer_tokens
from rlhf_lab.tasks.references import reference_form
from rlhf_lab.training.optim import Optim
from rlhf_lab.training.stages.options import RewardModelOptions, SFTOptions, StageSchedule
from rlhf_lab.training.stages.supervised import StageReferences
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Finish, Split
from tests.conftest import MakeConfig
from tests.support.composed import composed

# What each preset sets: SFT, then the reward model. N+: arXiv:2403.17031, details 4, 9, 10, 11 and
# 15, and its code (AdamW with PyTorch's decay, no clipping). async_rlhf: published configs and the
# defaults of transformers' Trainer. no_robots: arXiv:2410.18252, section on chat.
PRESETS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nano": (
        {"lr": 3e-3, "steps": 450, "epochs": 0, "batch": 64, "loss_on": "response"},
        {"lr": 1e-3, "epochs": 1, "batch": 64, "head_std": 0.0, "normalize": True},
    ),
    "nplus": (
        {
            **{"lr": 3e-6, "schedule": "cosine", "warmup_share": 0, "epochs": 1, "batch": 128},
            **{"loss_on": "all", "eps": 1e-5, "weight_decay": 0.01, "max_grad_norm": 0},
            **{"max_response_tokens": 53, "max_tokens": 562},
        },
        {
            **{"lr": 3e-6, "schedule": "cosine", "warmup_share": 0, "epochs": 1, "batch": 64},
            **{"eps": 1e-5, "weight_decay": 0.01, "max_grad_norm": 0, "head_std": 0},
            **{"max_response_tokens": 169, "max_tokens": 638, "normalize": True},
        },
    ),
    "async_rlhf": (
        {
            **{"lr": 1e-5, "schedule": "cosine", "warmup_share": 0, "epochs": 1, "batch": 128},
            **{"loss_on": "all", "eps": 1e-8, "weight_decay": 0, "max_grad_norm": 1},
            **{"max_response_tokens": 0, "max_tokens": 580},
        },
        {
            **{"lr": 1e-5, "schedule": "cosine", "warmup_share": 0, "epochs": 1, "batch": 64},
            **{"eps": 1e-8, "weight_decay": 0, "max_grad_norm": 1, "head_std": 0.02},
            **{"max_response_tokens": 0, "max_tokens": 640, "normalize": False},
        },
    ),
    "no_robots": (
        {
            **{"lr": 5e-6, "schedule": "linear", "warmup_share": 0.03, "epochs": 2},
            **{"batch": 128, "max_tokens": 4096},
        },
        {
            **{"lr": 3e-6, "schedule": "linear", "warmup_share": 0, "epochs": 1},
            **{"batch": 256, "max_tokens": 1024},
        },
    ),
}
NODES = ("sft", "reward_model")


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_numbers_of_its_source(name: str) -> None:
    config = typed(composed("task=tldr", f"stages={name}"))
    for node, expected in zip(NODES, PRESETS[name], strict=True):
        found = plain(getattr(config, node))
        assert {key: found[key] for key in expected} == expected
    assert set(PRESETS) == set(option_files("stages"))


def test_the_stages_of_the_paper_are_one_word_each() -> None:
    config = typed(composed("experiment=tldr_sft"))
    check(config, here=False)
    assert plain(config.model)["path"] == "EleutherAI/pythia-410m-deduped"
    assert (config.sft.lr, config.sft.batch, config.sft.max_tokens) == (1e-5, 128, 580)
    config = typed(composed("experiment=tldr_rm"))
    check(config, here=False)
    assert plain(config.proxy)["path"] == "mnoukhov/pythia410m-sft-tldr"
    assert config.labels.path.endswith("_relabel_pythia6.9b")
    found = config.reward_model
    assert (found.lr, found.batch, found.max_tokens, found.normalize) == (1e-5, 64, 640, False)


def test_an_option_beside_a_preset_is_taken() -> None:
    config = typed(composed("stages=nplus", "sft.lr=1e-4"))
    assert (config.sft.lr, config.sft.batch, config.reward_model.lr) == (1e-4, 128, 3e-6)


def test_pretrained_models_never_get_the_rates_of_random_weights() -> None:
    options = (SFTOptions(), RewardModelOptions())
    assert [one.for_model(False).lr for one in options] == [3e-3, 1e-3]
    assert [one.for_model(True).lr for one in options] == [1e-5, 1e-5]
    assert replace(options[0], lr=2e-4).for_model(True).lr == 2e-4
    config = typed(composed("task=tldr", "model@proxy=pythia_410m"))
    keys = ArtifactKeys(config)
    assert keys.sft(config.model)["options"]["lr"] == 1e-5
    assert keys._trained(keys._reward_model)["options"]["lr"] == 1e-5


def test_rates_by_hand() -> None:
    rate = SFTOptions(lr=1.0 - 1e-9, schedule=StageSchedule.linear).rate
    assert [rate(step, 4) for step in range(4)] == pytest.approx([1, 0.75, 0.5, 0.25])
    rate = SFTOptions(lr=0.5, schedule=StageSchedule.cosine).rate
    assert [rate(step, 4) for step in (0, 2)] == pytest.approx([0.5, 0.25])
    rate = SFTOptions(lr=0.5, schedule=StageSchedule.constant, warmup_share=0.5).rate
    assert [rate(step, 4) for step in range(4)] == [0.25, 0.5, 0.5, 0.5]
    # Up over a tenth of the steps, then along a cosine to 0.
    rate = SFTOptions(lr=0.5).rate
    assert [rate(step, 20) for step in (0, 1, 2, 11)] == pytest.approx([0.25, 0.5, 0.5, 0.25])


@pytest.mark.parametrize("name", ["cosine", "linear"])
def test_a_schedule_is_that_of_transformers(name: str) -> None:
    import torch
    from transformers import get_scheduler

    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    theirs: LRScheduler = get_scheduler(name, optimizer, 0, 10)
    ours = RewardModelOptions(lr=0.1, schedule=StageSchedule(name))
    for step in range(10):
        assert ours.rate(step, 10) == pytest.approx(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()


def test_the_optimizer_is_the_one_of_the_options() -> None:
    assert SFTOptions(lr=3e-3).optim == Optim(lr=3e-3)
    nplus = typed(composed("stages=nplus")).reward_model.optim
    assert (nplus.eps, nplus.weight_decay) == (1e-5, 0.01)
    assert nplus.largest_norm == float("inf")


def test_epochs_are_whole_batches_of_the_rows() -> None:
    # N+ detail 9: 116,722 rows, 911 batches of 128.
    assert SFTOptions(epochs=1, batch=128).num_steps(116_722) == 911
    assert SFTOptions(epochs=3, batch=128).num_steps(130) == 3
    assert SFTOptions(steps=7).num_steps(130) == 7
    with pytest.raises(UserError, match=r"sft\.batch=128 is larger than the 100 training rows"):
        SFTOptions(epochs=1, batch=128).num_steps(100)


def test_references_are_cut_at_both_lengths_and_end(make_config: MakeConfig) -> None:
    config = make_config()
    tokenizer = config.task.tokenizer()
    stream = build_prompts(config, tokenizer, Split.train, "sft")
    prompts = [stream[index] for index in range(20)]
    plain_ones = StageReferences(tokenizer, 24, SFTOptions())(prompts)
    longest = max(len(one.samples[0].tokens) for one in plain_ones)
    shorter = StageReferences(tokenizer, longest - 2, SFTOptions())(prompts)
    assert max(len(one.samples[0].tokens) for one in shorter) == longest - 2
    most = max(len(one.prompt.tokens) for one in plain_ones) + 2
    both = StageReferences(tokenizer, 24, SFTOptions(max_tokens=most))(prompts)
    for one in both:
        assert len(one.prompt.tokens) + len(one.samples[0].tokens) <= most
        assert one.samples[0].tokens[-1] == tokenizer.eos_token_id


def test_rows_with_long_references_are_left_out_of_sft(make_config: MakeConfig) -> None:
    sizes = ("task.train_size=40", "task.validation_size=8", "task.test_size=8")
    config = make_config("task.long_references=left_out", *sizes)
    tokenizer = config.task.tokenizer()
    form, console = reference_form(config.task), Console(quiet=True)
    lengths = [
        len(answer_tokens(tokenizer, form.chat, row, row.reference))
        for row in config.task.examples(Split.train)
    ]
    limit = sorted(lengths)[len(lengths) // 2] - 1
    answers = StageReferences(tokenizer, limit, SFTOptions(), form)
    stream = sft_prompts(config, console, tokenizer, Split.train, answers)
    assert len(stream) == sum(length <= limit for length in lengths) < len(lengths)
    groups = answers([stream[index] for index in range(len(stream))])
    assert all(group.samples[0].finish is Finish.eos for group in groups) and not answers.note
    with pytest.raises(UserError, match=r"task\.long_references=left_out.*max_response_tokens"):
        none = StageReferences(tokenizer, 1, SFTOptions(), form)
        sft_prompts(config, console, tokenizer, Split.train, none)


def test_a_length_without_room_for_a_reference_is_refused(make_config: MakeConfig) -> None:
    most = make_config().task.max_prompt_tokens
    with pytest.raises(UserError, match=rf"sft\.max_tokens={most} leaves no room"):
        check(make_config(f"sft.max_tokens={most}"))


def test_stages_with_the_recipe_of_nplus_train(make_config: MakeConfig) -> None:
    """Everything of the recipe but its sizes, on nano."""
    config = make_config(
        *("stages=nplus", "sft.epochs=0", "sft.steps=3", "sft.batch=8", "labels.pairs=32"),
        *("labels.held_out_pairs=16", "reward_model.batch=8", "model.hidden_size=32"),
        *("proxy.hidden_size=32", "sft.max_tokens=0", "reward_model.max_tokens=0"),
        *("sft.max_response_tokens=20", "reward_model.max_response_tokens=8"),
    )
    stages = Artifacts(config, Console(quiet=True))
    assert stages.sft(config.model).metrics["validation_loss"] > 0
    assert abs(stages.reward_model().metrics["offset"]) > 0


def test_scores_are_left_as_they_are_without_normalisation(make_config: MakeConfig) -> None:
    config = make_config(
        *("reward_model.normalize=false", "reward_model.head_std=0.02", "sft.steps=3"),
        *("labels.pairs=32", "labels.held_out_pairs=16", "reward_model.batch=16"),
    )
    assert Artifacts(config, Console(quiet=True)).reward_model().metrics["offset"] == 0
