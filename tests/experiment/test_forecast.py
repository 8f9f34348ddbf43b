"""What cannot fit memory, disk or a century is refused before anything is made."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from rlhf_lab.experiment.build.prompts import build_eval_prompts
from rlhf_lab.experiment.planning import forecast
from rlhf_lab.experiment.planning.forecast import (
    Machine,
    few_prompts,
    kept_weights,
    num_parameters,
    require_room,
    size,
    this_machine,
)
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.options import ScratchModel
from rlhf_lab.tasks.arithmetic import Arithmetic
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.support.examples import call

LAPTOP = Machine(memory=16 * 10**9, disk=50 * 10**9)
BILLION = 10**9


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (
            [f"run.groups_per_update={BILLION}"],
            r"run.groups_per_update=1000000000 with .*group_size=2: the samples of a round take at "
            r"least 800 GB of memory, and this machine has 16 GB: lower them",
        ),
        (
            [f"run.updates={BILLION}", "run.updates_per_round=100000000"],
            "run.updates_per_round=100000000 and",
        ),
        ([f"run.updates={BILLION}"], r"run.updates=1000000000 \(1000000000 rounds\): .* 1 TB of"),
        (
            ["run.updates=1000000000", "run.passes=100000", "run.groups_per_update=2000000"],
            r"run.updates=1000000000 with .*: its samples are 4e\+15 rows, at least 1e\+02 years",
        ),
        (
            [
                "task.max_response_tokens=10000000",
                "run.groups_per_update=1000",
                "generator.chunk_groups=1000",
            ],
            "task.max_response_tokens=10000000 with generator.chunk_groups=1000: the random",
        ),
        ([f"labels.pairs={BILLION}"], "labels.pairs=1000000000 with labels.held_out_pairs=32"),
        ([f"sft.steps={BILLION}", "sft.batch=10000000"], "sft.batch=10000000 is out of range"),
        ([f"sft.steps={BILLION}", "sft.batch=1000000"], ""),
        (["model.num_layers=100000"], "model.hidden_size=.* with model.num_layers=100000: its wei"),
        (["proxy.num_layers=100000"], "proxy.hidden_size=.* with proxy.num_layers=100000"),
        ([f"eval.prompts={BILLION}"], "eval.prompts=1000000000 with eval.samples=1: the samples"),
        (["eval.snapshots=1000000", "run.updates=1000000"], "eval.snapshots=1000000: the kept wei"),
    ],
)
def test_totals_that_cannot_fit_are_refused(
    config_of: MakeConfig, overrides: list[str], complaint: str
) -> None:
    def look() -> None:
        require_room(config_of("reward=paper_proxy", *overrides), True, LAPTOP)

    if not complaint:
        return look()
    with pytest.raises(UserError, match=complaint):
        look()


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["run.updates=1000000", "checkpoint=rounds"],
        ["model=nano_l", "model@proxy=nano_l", "mode=async", "eval=full", "eval.prompts=2048"],
        ["run=paper", "model=pythia_6.9b", "model@proxy=pythia_2.8b"],
        ["task.train_size=1000000000"],
        ["labels.pairs=1000000", "reward_model.epochs=10"],
    ],
)
def test_what_a_laptop_can_do_is_not(config_of: MakeConfig, overrides: list[str]) -> None:
    require_room(config_of(*overrides), True, LAPTOP)


def test_stages_alone_are_not_refused_for_their_run(config_of: MakeConfig) -> None:
    require_room(config_of(f"run.groups_per_update={BILLION}"), False, LAPTOP)


def test_parameters_are_those_of_the_model() -> None:
    for model in (
        ScratchModel("s", 16, 3, 2, rotary_dims=4),
        ScratchModel("s", 24, 1, 3, tie_embeddings=False),
    ):
        policy, tokenizer = load_policy(model, Arithmetic().tokenizer(), seed=0)
        real = sum(parameter.numel() for parameter in policy.parameters())
        assert num_parameters(model, len(tokenizer)) == real


def test_more_prompts_than_the_split_has_are_reported(config_of: MakeConfig) -> None:
    assert not few_prompts(config_of("eval.prompts=2048"))
    assert not few_prompts(config_of("eval.prompts=2049", "eval.snapshots=0"))
    for override in ("eval.snapshots=1", "eval.validate=proxy"):
        note = few_prompts(config_of("eval.prompts=2049", "eval.snapshots=0", override))
        assert "eval.prompts=2049" in note and "2048" in note


def test_what_a_run_leaves_on_the_disk_is_reported_where_it_is_much(
    config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of("eval.snapshots=1", "run.updates=4", "checkpoint=minutes")
    model = torch.nn.Linear(1000, 1000, bias=False)
    assert not kept_weights(config, model)
    monkeypatch.setattr(forecast, "MUCH_DISK", 12e6)
    # Versions 0 and 4 and the policy, of 4 MB each; weights and moments of a checkpoint.
    note = kept_weights(config, model)
    assert all(part in note for part in ("3 copies", "12 MB", "eval.snapshots=1"))
    monkeypatch.setattr(forecast, "MUCH_DISK", 13e6)
    assert not kept_weights(config, model)


def test_adapters_are_counted_without_the_weights_beside_them(
    config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 2 beside each linear module of O outputs and I inputs: 2 (O + I) numbers of 4 bytes."""
    config = config_of("eval.snapshots=1", "run.updates=4", "model.lora_rank=2")
    model, _ = load_policy(ScratchModel("s", 16, 3, 2, rotary_dims=4), Arithmetic().tokenizer(), 0)
    # The four of a layer are 48 x 16, 16 x 16, 64 x 16 and 16 x 64.
    each = 3 * 2 * (64 + 32 + 80 + 80) * 4
    monkeypatch.setattr(forecast, "MUCH_DISK", 3 * each)
    note = kept_weights(config, model)
    assert f"3 copies of the adapters, {size(3 * each)}" in note
    monkeypatch.setattr(forecast, "MUCH_DISK", 3 * each + 1)
    assert not kept_weights(config, model)


def test_an_evaluation_takes_all_prompts_of_a_split_that_has_fewer(config_of: MakeConfig) -> None:
    config = config_of("task=arithmetic", "reward=task_rule", "task.validation_size=3")
    tokenizer = config.task.tokenizer()
    assert len(build_eval_prompts(config, tokenizer, 2)) == 2
    assert len(build_eval_prompts(config, tokenizer, 9)) == 3


def test_a_model_of_a_package_that_is_not_there_is_refused_before_the_run_has_a_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = ("model=smollm2_135m", "model.path=package:no_such_weights")
    arguments = ["task=arithmetic", "reward=task_rule", *model]
    assert call("train", *arguments, f"output.root={tmp_path}/r", monkeypatch=monkeypatch) == 2
    assert "the package no_such_weights is not installed" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_room_ends_with_one_line_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["debug=tiny", "model.num_layers=100000", "model.hidden_size=65536"]
    assert call("train", *arguments, f"output.root={tmp_path}/r", monkeypatch=monkeypatch) == 2
    told = capsys.readouterr().err
    assert told.startswith("rlhf-lab train: model.hidden_size=65536 with model.num_layers=100000")
    assert told.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_sizes_are_in_the_largest_unit_that_leaves_a_digit() -> None:
    assert [size(n) for n in (7, 16e9, 1.5e13, 1e21)] == ["7 B", "16 GB", "15 TB", "1e+03 EB"]


@pytest.mark.linux
def test_a_file_system_without_a_size_is_not_taken_for_a_full_one(config_of: MakeConfig) -> None:
    assert this_machine(config_of("output.dir=/proc/self/run")).disk == sys.maxsize
