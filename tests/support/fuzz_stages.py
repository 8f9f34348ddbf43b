"""Products of stages, answers of judges and the study of a search to damage."""

from __future__ import annotations

import json
from pathlib import Path

from rlhf_lab.experiment.artifacts.labels import read_pairs
from rlhf_lab.experiment.artifacts.models import STRENGTH
from rlhf_lab.experiment.artifacts.prepare import METRICS
from rlhf_lab.rewards.judge.calls import JudgeCache
from rlhf_lab.runs.disk import atomic_folder
from rlhf_lab.runs.reading import read_json
from rlhf_lab.sweeps.search.options import Sampler, SearchOptions
from rlhf_lab.sweeps.search.space import parse_space
from rlhf_lab.sweeps.search.study import open_study
from rlhf_lab.training.stages.cache import verify
from rlhf_lab.training.stages.reward_model import Bin, read_calibration, write_calibration
from tests.support.fuzz import Case

QUESTIONS = ("a1" * 32, "b2" * 32)


def write_product(folder: Path) -> None:
    with atomic_folder(folder / "product", {"stage": "reward_model", "key": {"a": 1}}) as draft:
        (draft / METRICS).write_text(json.dumps({"accuracy": 0.75, "offset": 1}))
        (draft / STRENGTH).write_text(json.dumps({"mean": [0.5, 1.0], "std": [0.1, 0.2]}))
        (draft / "train.jsonl").write_text('{"prompt": "a", "gold": [1.0, 2.0]}\n' * 3)
        write_calibration(draft, [Bin(0.0, 0.1, 3, 0.05, 0.0), Bin(0.9, 1.0, 3, 0.95, 1.0)])


def verified(folder: Path) -> None:
    verify(folder / "product")


def numbers(folder: Path) -> None:
    metrics = read_json(folder / "product" / METRICS, dict[str, float])
    assert all(f"{value:.3f}" for value in metrics.values())
    read_json(folder / "product" / STRENGTH, dict[str, list[float]])


def calibrated(folder: Path) -> None:
    assert all(f"{part.low:.1f} {part.count}" for part in read_calibration(folder / "product"))


def paired(folder: Path) -> None:
    read_pairs(folder / "product" / "train.jsonl")


def write_answers(folder: Path) -> None:
    for question in QUESTIONS:
        JudgeCache(folder).settle(question, '{"winner": "a"} \ud800')


def answered(folder: Path) -> None:
    """A damaged answer is asked for again, and the other one is there."""
    cache = JudgeCache(folder)
    assert cache.read(QUESTIONS[1]) == '{"winner": "a"} \ud800'
    found = cache.read(QUESTIONS[0])
    assert found in (None, '{"winner": "a"} \ud800')
    assert cache.settle(QUESTIONS[0], "new") == (found or "new")
    assert cache.read(QUESTIONS[0]) == (found or "new")


def write_study(folder: Path) -> None:
    searched(folder)


def searched(folder: Path) -> None:
    """What a search does first when it is gone on with."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    _, space = parse_space(["lr=interval(1e-5,1e-1)"], OverridesParser.create())
    options = SearchOptions(trials=4, sampler=Sampler.random)
    with open_study(folder / "study.db", space, options, {"seed": 1}) as study:
        study.trials()
        study.draw()


CASES = (
    Case(
        "stage",
        write_product,
        {"verify": verified, "numbers": numbers, "calibration": calibrated, "pairs": paired},
    ),
    Case("judge", write_answers, {"answers": answered}, (QUESTIONS[0][:2],)),
    Case("search", write_study, {"study": searched}, is_slow=True),
)
