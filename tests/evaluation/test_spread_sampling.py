"""Evaluation's samples drawn by several processes are those of one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlhf_lab.evaluation.evaluator import generate_samples
from rlhf_lab.experiment.build.evaluator import build_generator
from rlhf_lab.experiment.build.prompts import build_eval_prompts
from rlhf_lab.experiment.run.distributed_generation import (
    ChunkSampler,
    SamplingJob,
    SpreadGenerator,
)
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.weights import meta_model
from rlhf_lab.training.engines.distributed import Processes
from rlhf_lab.types.data import Weights
from tests.conftest import MakeConfig
from tests.support.engine_cases import TINY
from tests.support.examples import call
from tests.support.survival import exact_rows
from tests.support.two_ranks import ended, torchrun

SIZE = 3


@dataclass
class Worker(Processes):
    """Processes of a worker rank that gets these tensors; `held` keeps what it gives."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    held: Any = None

    def broadcast_tensors(self, state: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        assert not state, "the tensors travel one by one"
        yield from self.tensors.items()

    def all_gather_object(self, value: Any) -> list[Any]:
        self.held = value
        return [value * 2] * SIZE


@dataclass
class Main(Processes):
    """Processes of rank 0, whose workers draw when it gathers."""

    draw: Callable[[Any], list[Any]] = list
    called: Any = None

    def broadcast_call(self, value: Any) -> Any:
        self.called = pickle.loads(pickle.dumps(value))
        return value

    def broadcast_tensors(self, state: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        yield from state.items()

    def all_gather_object(self, value: Any) -> list[Any]:
        return [value, *self.draw(self.called)]


@pytest.mark.parametrize("samples", [1, 2])
def test_every_rank_draws_its_chunks_with_the_bits_of_one(
    make_config: MakeConfig, samples: int
) -> None:
    """Seven chunks over three ranks; worker ranks get no weights but those of the call."""
    config = make_config("eval.prompts=20")
    tokenizer = config.task.tokenizer()
    model, _ = load_policy(TINY, tokenizer, seed=3)
    prompts = build_eval_prompts(config, tokenizer, config.eval.prompts)
    noisy = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in noisy.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    weights = Weights(5, dict(noisy.named_parameters()))
    shape, shared = meta_model(model), copy.deepcopy(model)
    own = [
        build_generator(config, shared, tokenizer, "evaluation", temperature)
        for temperature in (1.0, 0.5)
    ]
    job = SamplingJob(shape, tuple(given.settings for given in own), config.engine, False)
    sent = pickle.dumps(job)
    ranks = [Worker(rank, SIZE, tensors=weights.state) for rank in (1, 2)]
    workers = [pickle.loads(sent).engine(rank) for rank in ranks]

    def draw(called: Any) -> list[Any]:
        name, arguments = called
        for worker in workers:
            getattr(worker, name)(*arguments)
        return [rank.held for rank in ranks]

    sampler = ChunkSampler(own, Main(0, SIZE, draw=draw))
    for number, alone in enumerate(own):
        expected = generate_samples(alone, weights, prompts, samples, 3 * samples)
        spread = SpreadGenerator(sampler, number)
        assert generate_samples(spread, weights, prompts, samples, 3 * samples) == expected
        assert [len(rank.held) for rank in ranks] == [2, 2]


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("processes")
def test_two_processes_evaluate_as_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The validation and the evaluation of a run that two processes trained, and of the same
    weights in one process."""
    given = ["debug=tiny", "engine=fsdp", f"output.cache={tmp_path}/cache"]
    given += ["eval.chunk_groups=6", "eval.temperature=0.5"]
    given += ["eval.validate=judge", "mode=sync"]
    run = tmp_path / "run"
    command = ["-m", "rlhf_lab.cli.main", "train", *given, f"output.dir={run}"]
    code, _, err = ended(torchrun(command))
    assert code == 0, err
    shared, texts = exact_rows(run / "evals.jsonl"), (run / "samples.jsonl").read_text()
    (validated,) = exact_rows(run / "validation.jsonl")
    code, _, err = ended(
        torchrun(["-m", "rlhf_lab.cli.main", "evaluate", str(run), "eval.label=b"])
    )
    assert code == 0, err
    assert call("evaluate", str(run), monkeypatch=monkeypatch) == 0
    for label in ("", "-b"):
        assert exact_rows(run / f"evals{label}.jsonl") == shared
        assert (run / f"samples{label}.jsonl").read_text() == texts
    assert validated.pop("validate") == "judge"
    assert validated == {key: shared[-1][key] for key in validated}
