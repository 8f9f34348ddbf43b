"""Training on fixed preference pairs: reading, refusing, and the same rounds as any run's."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlhf_lab.experiment.artifacts.labels import read_pairs
from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.build.prompts import build_rollout_prompts
from rlhf_lab.experiment.build.rollout import build_pipeline
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.rules.checks import check, require_readable_splits
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.models.batching import collate
from rlhf_lab.models.options import ScratchModel, scratch
from rlhf_lab.rewards.data_rewards import PreferenceScorer
from rlhf_lab.rollout.chunk_states import QueuedChunk
from rlhf_lab.rollout.generators.hf import HFGenerator
from rlhf_lab.rollout.generators.options import HFSampling
from rlhf_lab.rollout.generators.pairs import PairsGenerator
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.pair_sources import pair_examples
from rlhf_lab.tasks.tldr_nano import word_tokenizer
from rlhf_lab.training.batch_builder import with_reference
from rlhf_lab.training.checkpoint_files import as_row, from_row
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import StopRequested, UserError
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Finish, Prompt
from tests.conftest import Finished, MakeConfig
from tests.support.examples import FACTS, group
from tests.support.in_memory import memory_of, result_of, run_in_memory
from tests.support.survival import outcome

OFFLINE = ("generator=pairs", "algo=online_dpo", "sft.steps=4", "eval=none", "eval.snapshots=0")
EOS = word_tokenizer().eos_token_id
WORDS = sorted(word for word in word_tokenizer().get_vocab() if not word.startswith("<"))
A, B = WORDS[:2]
ROW = {"prompt": A, "chosen": f" {B} {A}", "rejected": f" {B}"}


@pytest.fixture
def pairs_file(tmp_path: Path) -> Path:
    """Pairs of a user's own, in words of the task."""
    path = tmp_path / "pairs.jsonl"
    write(path, *({"prompt": w, "chosen": f" {w} {w}", "rejected": f" {w}"} for w in WORDS[:6]))
    return path


def write(path: Path, *rows: Mapping[str, Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def stages(config: Config) -> Artifacts:
    return Artifacts(config, Console(quiet=True))


def chunk_of(*examples: Example) -> Chunk:
    prompts = tuple(Prompt(n, (1, 2), example) for n, example in enumerate(examples))
    return Chunk(3, 0, prompts, group_size=2)


def test_rows_become_examples_with_the_chosen_answer_as_reference(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    tokens = {"chosen_tokens": [5, 6], "rejected_tokens": [5, 7]}
    path.write_text(f"{json.dumps(ROW)}\n\n{json.dumps({**ROW, **tokens, 'uid': 'a/1'})}\n")
    first, second = pair_examples(path)
    assert first == Example("pairs.jsonl:1", A, f" {B} {A}", {"rejected": f" {B}"})
    assert second == Example("a/1", A, f" {B} {A}", {"rejected": f" {B}", **tokens})


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ["empty"]),
        (b'{"prompt": "p", "chosen": "c"}\n', ["line 1", "no field 'rejected'", "add it"]),
        (b'{"prompt": 1, "chosen": "c", "rejected": "r"}\n', ["line 1", "no text in field 'promp"]),
        (b'\n{"prompt": "\xff"}\n', ["line 2", "not valid UTF-8", "convert"]),
        (b"\n\n{'prompt'}\n", ["line 3", "not JSON", "one object a line"]),
        (b'{"prompt": "p", "chosen": " ", "rejected": "r"}\n', ["line 1", "'chosen'", "write"]),
        (b'{"prompt": "p", "chosen": "c", "rejected": "c"}\n', ["all 1 rows", "equal"]),
        (
            b'{"prompt": "p", "chosen": "c", "rejected": "r", "chosen_tokens": [1.5]}\n',
            ["line 1", "'chosen_tokens'", "leave it out"],
        ),
    ],
)
def test_a_bad_row_is_refused_with_file_line_and_key(
    make_config: MakeConfig, tmp_path: Path, content: bytes, parts: list[str]
) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError) as refused:
        require_readable_splits(make_config(*OFFLINE, f"generator.path={path}"))
    for part in [f"generator.path: {path}", *parts]:
        assert part in str(refused.value)


def test_no_file_says_what_to_pass_instead(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config(*OFFLINE, f"generator.path={tmp_path}/none.jsonl")
    with pytest.raises(UserError, match=r"none.jsonl cannot be read .*pass generator.path=<"):
        require_readable_splits(config)


def test_a_pair_is_two_answers(make_config: MakeConfig) -> None:
    with pytest.raises(UserError, match=r"run.group_size=4 with generator=pairs.*group_size=2"):
        check(make_config(*OFFLINE, "run.group_size=4"))
    with pytest.raises(UserError, match=r"algo=remax with generator=pairs.*pass generator=hf"):
        check(make_config(*OFFLINE, "algo=remax"))
    check(make_config(*OFFLINE))


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"prompt": f" {A}" * 200}, ["pairs.jsonl:2", "task.max_prompt_tokens="]),
        ({"chosen_tokens": [5, 6]}, ["pairs.jsonl:2", "chosen_tokens", "leave the field out"]),
        ({"chosen_tokens": [10**6]}, ["pairs.jsonl:2", "chosen_tokens", "leave the field out"]),
    ],
)
def test_what_the_tokenizer_shows_to_be_wrong_is_refused_before_the_first_step(
    make_config: MakeConfig, tmp_path: Path, change: dict[str, Any], parts: list[str]
) -> None:
    path, folder = tmp_path / "pairs.jsonl", tmp_path / "run"
    write(path, ROW, {**ROW, **change})
    config = make_config(*OFFLINE, f"generator.path={path}", f"output.dir={folder}")
    with pytest.raises(UserError) as refused:
        lifecycle.train(config, Console(quiet=True), FACTS)
    for part in parts:
        assert part in str(refused.value)
    assert not (folder / "metrics.jsonl").exists()


def test_pairs_that_are_equal_after_the_cut_are_left_out_and_counted(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    path, words = tmp_path / "pairs.jsonl", word_tokenizer()
    long = {**ROW, "chosen": f" {A}" * 30, "rejected": f" {A}" * 31}
    tie = {**ROW, "chosen": f" {A}", "rejected": f" {A}"}
    write(path, long, ROW, tie, long)
    config = make_config(*OFFLINE, f"generator.path={path}")
    printed: list[str] = []
    stream = build_rollout_prompts(config, str(path), words, printed.append)
    assert (len(stream), stream[0].example.uid) == (1, "pairs.jsonl:2")
    assert [line.split()[0] for line in printed] == ["1", "2"]
    write(path, long, long)
    with pytest.raises(UserError, match=r"generator\.path.*all 2 pairs.*generator\.max_new_tokens"):
        build_rollout_prompts(config, str(path), words)


def test_a_group_is_chosen_then_rejected_by_an_unknown_writer() -> None:
    tokenizer = word_tokenizer()
    a, b = (tokenizer(word)["input_ids"][0] for word in (A, B))
    texts = Example("1", A, f" {B} {A}", {"rejected": f" {B}"})
    given = Example("2", A, B, {"rejected": f"{B} {A} {B}", "chosen_tokens": [b, EOS]})
    worker = RolloutWorker(PairsGenerator(tokenizer, 3), PreferenceScorer(), is_model=False)
    rollout = worker.run(Weights(2, {}), chunk_of(texts, given))
    tokens = [[sample.tokens for sample in group.samples] for group in rollout.groups]
    assert tokens == [[(b, a, EOS), (b, EOS)], [(b, EOS), (b, a, b)]]
    samples = [sample for group in rollout.groups for sample in group.samples]
    assert [s.finish for s in samples] == [Finish.eos, Finish.eos, Finish.eos, Finish.length]
    assert [s.text for s in samples] == [f"{B} {A}", B, B, f"{B} {A} {B}"]
    assert all(s.version == 0 and s.is_offline and len(s.logps) == len(s.tokens) for s in samples)
    assert [group.rewards for group in rollout.groups] == [(1.0, 0.0)] * 2
    # Rounds count the chunk as one of the weights that it was asked of.
    assert rollout.segments == ((0, 2),)
    assert rollout.tokens == {
        "prefill_tokens": 0,
        "generated_tokens": 10,
        "offline_tokens": 10,
        "scored_tokens": 0,
    }


def test_an_unknown_behaviour_is_the_references_and_a_known_one_stays() -> None:
    batch = collate([group(0, [[math.nan, math.nan], [-0.5]], [1.0, 0.0])], pad_id=0)
    filled = with_reference(batch, torch.tensor([[-1.0, -2.0], [-3.0, 0.0]]))
    assert filled.behavior_logp_BT.tolist() == [[-1.0, -2.0], [-0.5, 0.0]]
    assert filled.reference_logp_BT.tolist() == [[-1.0, -2.0], [-3.0, 0.0]]


def test_a_generator_that_finds_no_numbers_does_not_pass_for_an_unknown_writer(
    make_config: MakeConfig,
) -> None:
    given = make_config().model
    assert isinstance(given, ScratchModel)
    model = scratch(given, word_tokenizer(), 1)
    state = {name: torch.full_like(p, math.nan) for name, p in model.named_parameters()}
    generator = HFGenerator(model, word_tokenizer(), HFSampling(), 2, lambda *_: np.zeros(2))
    with pytest.raises(FloatingPointError, match="NaN at version 4"):
        generator.generate(Weights(4, state), chunk_of(Example("1", A, B)))


def test_a_checkpoint_keeps_an_unknown_writer_unknown() -> None:
    worker = RolloutWorker(PairsGenerator(word_tokenizer(), 3), PreferenceScorer(), is_model=False)
    chunk = chunk_of(Example("1", A, B, {"rejected": f"{A} {B}"}))
    row = as_row(QueuedChunk(0, 0, False, worker.run(Weights(0, {}), chunk)))
    back = from_row(json.loads(json.dumps(row)), lambda _: chunk).rollout
    assert back is not None
    assert all(sample.is_offline for sample in back.groups[0].samples)


def test_every_round_takes_pairs_of_the_label_stage_in_an_order_of_its_own(
    make_config: MakeConfig,
) -> None:
    config = make_config(*OFFLINE, "run.updates=20")
    sources = stages(config).sources()
    # Pairs are sampled as a run with generator=hf would sample them, so both share one product.
    online = make_config("sft.steps=4")
    assert Path(sources.pairs) == stages(online).labels().folder / "train.jsonl"
    rows = read_pairs(Path(sources.pairs))
    taken = []
    with build_pipeline(config, sources, None, word_tokenizer()) as pipe:
        for version in range(20):
            taken += pipe.take(Weights(version, {})).groups
    assert {group.rewards for group in taken} == {(1.0, 0.0)}
    seen = [(g.prompt.tokens, g.samples[0].tokens, g.samples[1].tokens) for g in taken]
    sides = ("prompt_tokens", "chosen_tokens", "rejected_tokens")
    written = [tuple(tuple(row[side]) for side in sides) for row in rows]
    assert len(seen) > len(written), "more than one epoch"
    assert set(seen[: len(written)]) == set(seen) == set(written)
    assert seen[: len(written)] != written


def test_an_offline_run_in_every_mode(finished: Finished) -> None:
    options = (*OFFLINE, "run.passes=2", "run.updates=8")
    sync = finished(*options)
    rows, _ = sync
    assert len(rows) == 4
    for round_, row in enumerate(rows):
        assert (row["reward/mean"], row["reward/best"], row["reward/groups_tied"]) == (0.5, 1.0, 0)
        assert row["kl/sampled_reference_k1"] == 0
        assert row["sample/version"] == 0
        assert row["lag/rounds_min"] == row["lag/rounds_max"] == round_
        assert row["rows_kept"] == 1
        assert row["total/offline_tokens"] == row["total/generated_tokens"]
        assert row["total/prefill_tokens"] == row["total/scored_tokens"] == 0
        assert not [name for name in row if name.startswith("gap/")]
    assert rows[-1]["update/loss"] < math.log(2)
    # The pairs are as old in every mode, so staleness changes nothing.
    for mode in (("mode=lagged",), ("mode=async", "mode.executor=thread"), ("mode=free",)):
        assert finished(*mode, *options) == sync


def test_an_offline_run_on_a_users_file_is_evaluated_like_any(
    make_config: MakeConfig, pairs_file: Path
) -> None:
    options = ("generator=pairs", "reward=task_rule", "sft.steps=4", "algo=proximal_rloo")
    config = make_config(*options, f"generator.path={pairs_file}", "mode=async", "run.updates=4")
    folder = lifecycle.train(config, Console(quiet=True), FACTS)
    rows, _ = outcome(folder)
    # Two words against one, and the end: 3 and 2 tokens for each of four prompts.
    assert [row["total/generated_tokens"] for row in rows] == [20, 40, 60, 80]
    assert len((folder / "evals.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("mode", [("mode=sync",), ("mode=async", "mode.executor=thread")])
def test_an_offline_run_that_was_stopped_goes_on(
    make_config: MakeConfig, mode: tuple[str, ...]
) -> None:
    config = make_config(*OFFLINE, *mode, "checkpoint=rounds", "run.updates=6")
    output = memory_of(config)
    with pytest.raises(StopRequested):
        run_in_memory(config, output, lambda: len(output.rows) > 1)
    (snapshot,) = output.checkpoints.snapshots[-1:]
    assert snapshot.round == 2
    assert snapshot.queue or config.mode.max_staleness == 0
    assert run_in_memory(config, output) == run_in_memory(config)


def test_scores_of_pairs_are_the_numbers_of_their_rows_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    write(path, {**ROW, "chosen_gold": 2.5, "rejected_gold": -1}, {**ROW, "chosen_gold": True})
    first, second = pair_examples(path)
    assert PreferenceScorer("gold").rewards(first) == (2.5, -1.0)
    assert PreferenceScorer().rewards(first) == (1.0, 0.0)
    with pytest.raises(UserError, match=r"pair pairs.jsonl:2 has no finite number .* chosen_gold"):
        PreferenceScorer("gold").rewards(second)


def test_a_lol_learns_offline_from_the_gold_scores_of_the_label_stage(
    make_config: MakeConfig,
) -> None:
    given = (*OFFLINE, "algo=a_lol", "run.updates=2", "generator.scores=gold")
    rows = result_of(make_config(*given))[0]
    assert len(rows) == 2
    # better than the mean of the two: one of each pair
    assert [row["rows_kept"] for row in rows] == [0.5, 0.5]
    plain = result_of(make_config(*given[:-1]))[0]
    assert rows[0]["update/loss"] != plain[0]["update/loss"]
