"""What runs at the same time decides no bit: all metrics and the last weights of a run with
generators beside the trainer are those of the same run without any (`mode.executor=inline`).

One table for all parts of a run. `make test` runs each part beside one kind of executor, in four
rounds; `make test-slow` runs each part beside all of them, and every algorithm and correction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import product

import pytest

from rlhf_lab.experiment.config.own_parts import classes
from rlhf_lab.tasks.tldr_nano import word_tokenizer
from tests.algos.test_distill import another_sft
from tests.conftest import Finished, MakeConfig
from tests.support.variants import tuples

Options = tuple[str, ...]

SHORT = ("run.updates=4", "eval=none", "eval.snapshots=0", "sft.steps=4")
INLINE = "mode.executor=inline"
EXECUTORS: Mapping[str, Options] = {
    "thread": ("mode.executor=thread",),
    "threads": ("mode.executor=thread", "mode.num_generators=2", "mode.prefetch=3"),
    "process": ("mode.executor=process",),
    "processes": ("mode.executor=process", "mode.num_generators=2", "mode.prefetch=3"),
}
FRESH = ("mode=async", "mode.max_staleness=0")
STALE = ("mode=async", "mode.max_staleness=2")
OLD = ("mode=async", "mode.max_staleness=4", "run.updates=6")
RULE = ("reward=task_rule",)
SEGMENTS = (
    *("mode=partial", "mode.segment_tokens=2", "mode.max_staleness=2", "generator.chunk_groups=3"),
    *("task=arithmetic", *RULE),
)
ASK = ("task=ask_nano", "algo=grpo", "run.group_size=4", "task.ask_rate=0.9", "sft.steps=60")
TOOL = ("task=tool_arithmetic", "run.group_size=2", "task.tool_rate=1", "sft.steps=60")
SMALL = "generator.chunk_groups=1"

# The part, the executors of its case in `make test`, and its options.
PARTS: Mapping[str, tuple[str, Options]] = {
    # Losses, and what each asks of a run.
    "pairs": ("thread", (*STALE, "algo=online_dpo")),
    "ratios": ("process", (*OLD, *RULE, "algo=grpo")),
    "values": ("threads", (*STALE, "algo=ppo", "generator.chunk_groups=3")),
    "greedy samples": ("thread", (*OLD, *RULE, "algo=remax")),
    "groups left out": ("thread", (*STALE, *RULE, "algo=dapo", "run.group_size=4")),
    "fresh pairs": ("thread", (*FRESH, "algo=online_dpo")),
    "fresh ratios": ("process", (*FRESH, *RULE, "algo=grpo")),
    "updates and passes": (
        "processes",
        (
            *(*STALE, *RULE, "run.updates=8", "run.updates_per_round=2", "run.passes=2"),
            "generator.chunk_groups=3",
        ),
    ),
    "drawn lags": (
        "thread",
        (*STALE, *RULE, "run.updates=6", SMALL, 'mode.lag_probabilities="0.5,0.25,0.25"'),
    ),
    # What ratios are taken to: a cap, a mask, sequences, moments, entropies, ages, versions.
    "truncated_is": ("thread", (*STALE, *RULE, "algo=lite_ppo", "correction=truncated_is")),
    "icepop": ("thread", (*STALE, *RULE, "algo=lite_ppo", "correction=icepop")),
    "sequence_is": ("thread", (*STALE, *RULE, "algo=lite_ppo", "correction=sequence_is")),
    "m2po": ("thread", (*STALE, *RULE, "algo=lite_ppo", "correction=m2po")),
    "entropies": ("thread", (*STALE, *RULE, "algo=grpo", "correction=estr")),
    "ages": ("thread", (*STALE, *RULE, "algo=grpo", "correction=a3po")),
    "versions in bfloat16": (
        "process",
        (*STALE, *RULE, "algo=grpo", "correction=split", "generator.round_weights=bf16"),
    ),
    "entropies of segments": ("thread", (*SEGMENTS, "algo=grpo", "correction=estr")),
    "versions of segments": ("thread", (*SEGMENTS, "algo=grpo", "correction=split")),
    "scaled steps": (
        "thread",
        (*STALE, *RULE, "algo=vcpo", "correction=ess_scaled", "optim.lr=1e-3"),
    ),
    "measures of updates": (
        "process",
        (
            *(*STALE, *RULE, "run.updates=8", "run.updates_per_round=2", "algo=rloo"),
            *("tracker.changed_share=true", "optim.gradient_cosine=true"),
            "optim.max_gradient_cosine=0",
        ),
    ),
    # Policies and teachers.
    "fp8": ("thread", (*STALE, *RULE, "generator.round_weights=fp8_e4m3")),
    "adapters": ("process", (*STALE, *RULE, "algo=grpo", "model.lora_rank=4", "optim.lr=3e-3")),
    "teacher": ("process", (*STALE, *RULE, "algo=distill", "algo.teacher=TEACHER")),
    "teacher over tokens": (
        "thread",
        (*STALE, *RULE, "algo=distill", "algo.teacher=TEACHER", "algo.kl=forward"),
    ),
    # Prompts and samples.
    "fixed pairs": ("process", (*FRESH, "generator=pairs", "algo=online_dpo")),
    "tasks": ("process", (*STALE, "task=mixture", "run.groups_per_update=4", "algo=rloo")),
    "offline": (
        "thread",
        (*STALE, "algo=online_dpo", "run.offline_share=0.25", "run.offline_pairs=PAIRS"),
    ),
    "buffer": (
        "thread",
        (*STALE, *RULE, "algo=rloo", "run.buffer_rounds=2", "run.fresh_share=0.5"),
    ),
    "pool": (
        "threads",
        (
            *(*STALE, *RULE, "task=arithmetic", "task.train_size=12", "algo=grpo"),
            *("run.group_size=4", "run.prompts=pool", "run.rest_rounds=1"),
        ),
    ),
    "repeats": (
        "threads",
        (
            *(*STALE, *RULE, "task=arithmetic", "task.train_size=12", "algo=grpo"),
            *("run.group_size=4", "run.prompts=replay", "run.cooldown_rounds=1"),
            *("run.min_pass_rate=0", "run.max_pass_rate=1"),
        ),
    ),
    # Samples of several versions.
    "segments": ("processes", (*SEGMENTS, "algo=rloo", "tracker.probe_groups=2")),
    "int8 segments": ("thread", (*SEGMENTS, "generator.round_weights=int8")),
    "recycled groups": ("processes", (*SEGMENTS, "algo=rloo", "mode.over_provision=1.5")),
    # Episodes.
    "episodes": ("process", (*STALE, *ASK, SMALL)),
    "episodes with values": ("threads", (*STALE, *TOOL, SMALL, "algo=ppo")),
    "values of turns": ("thread", (*STALE, *TOOL, SMALL, "algo=ma_ppo", "algo.termination=turn")),
    "episodes that wait": (
        "threads",
        (*STALE, *ASK, SMALL, "episodes.decode_ahead=4", "episodes.steps_at_once=4"),
    ),
    "turns": ("process", ("mode=partial_turns", "mode.max_staleness=2", *ASK, SMALL)),
    "turns in segments": (
        "thread",
        ("mode=partial", "mode.segment_tokens=5", "mode.max_staleness=2", *TOOL, SMALL, "algo=ppo"),
    ),
    "recycled episodes": (
        "threads",
        ("mode=partial_turns", "mode.over_provision=1.5", *ASK, "generator.chunk_groups=3"),
    ),
    "recycled turns": (
        "process",
        (
            *("mode=partial", "mode.segment_tokens=5", "mode.over_provision=1.5", *ASK),
            "generator.chunk_groups=3",
        ),
    ),
}
# A part of async that is not about lag itself.
WITHOUT_LAG = [
    part
    for part, (_, options) in PARTS.items()
    if "mode=async" in options and not any("lag_probabilities" in option for option in options)
]
OFTEN = {(part, executors) for part, (executors, _) in PARTS.items()}


@pytest.fixture
def files(
    make_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], str]:
    """Puts the files of this session where an option names them."""

    def pairs() -> str:
        path = tmp_path_factory.getbasetemp() / "pairs of equal bits.jsonl"
        # A vocabulary has another order at each call, and runs are kept by the file's name.
        words = sorted(word for word in word_tokenizer().get_vocab() if not word.startswith("<"))
        rows = [{"prompt": w, "chosen": f" {w} {w}", "rejected": f" {w}"} for w in words[:6]]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return str(path)

    made = {"TEACHER": lambda: another_sft(make_config), "PAIRS": pairs}

    def placed(option: str) -> str:
        key, _, value = option.partition("=")
        return f"{key}='{made[value]()}'" if value in made else option

    return placed


@pytest.mark.parametrize(("part", "executors"), tuples(product(PARTS, EXECUTORS), OFTEN))
def test_a_part_has_the_same_bits_beside_the_trainer(
    finished: Finished, files: Callable[[str], str], part: str, executors: str
) -> None:
    options = (*SHORT, *map(files, PARTS[part][1]))
    alone = finished(*options, INLINE)
    assert finished(*options, *EXECUTORS[executors]) == alone


def test_the_run_beside_which_nothing_works_is_the_simulation(finished: Finished) -> None:
    """`mode=lagged` is async without concurrency, and sync is that without lag."""
    for mode, staleness in (("lagged", 2), ("sync", 0)):
        options = (*SHORT, *RULE, f"mode.max_staleness={staleness}")
        assert finished(*options, "mode=async", INLINE) == finished(*options, f"mode={mode}")
    episodes = (*SHORT, *ASK, SMALL)
    assert finished(*episodes, *FRESH, INLINE) == finished(*episodes)


@pytest.mark.slow
@pytest.mark.parametrize("part", WITHOUT_LAG)
def test_a_part_without_lag_is_sync(
    finished: Finished, files: Callable[[str], str], part: str
) -> None:
    rest = [option for option in PARTS[part][1] if not option.startswith(("mode=", "mode."))]
    options = (*SHORT, *map(files, rest))
    assert finished(*options, *FRESH) == finished(*options, "mode=sync")


@pytest.mark.slow
@pytest.mark.parametrize("staleness", [1, 2, 4])
@pytest.mark.parametrize("algo", list(classes("algo")))
def test_every_algorithm_has_the_same_bits(finished: Finished, algo: str, staleness: int) -> None:
    options = (*SHORT, "run.updates=6", f"algo={algo}", f"mode.max_staleness={staleness}")
    lagged = finished("mode=lagged", *options)
    for executors in ("thread", "process"):
        assert finished("mode=async", *EXECUTORS[executors], *options) == lagged


@pytest.mark.slow
@pytest.mark.parametrize("correction", list(classes("correction")))
def test_every_correction_has_the_same_bits(finished: Finished, correction: str) -> None:
    options = (*SHORT, "run.updates=6", "algo=lite_ppo", f"correction={correction}", *STALE)
    assert finished(*options, *EXECUTORS["thread"]) == finished(*options, INLINE)
