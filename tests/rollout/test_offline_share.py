"""A share of fixed pairs among a run's own samples: which prompts, what is counted, what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.build.prompts import build_rollout_prompts
from rlhf_lab.experiment.rules.checks import check, require_readable_splits, warnings
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.pairs import is_pair
from rlhf_lab.tasks.tldr_nano import word_tokenizer
from rlhf_lab.types.errors import StopRequested, UserError
from tests.conftest import MakeConfig
from tests.support.in_memory import memory_of, result_of, run_in_memory

WORDS = sorted(word for word in word_tokenizer().get_vocab() if not word.startswith("<"))
SHORT = ("sft.steps=4", "eval=none", "eval.snapshots=0", "run.updates=6", "algo=online_dpo")
QUARTER = (*SHORT, "run.groups_per_update=4", "run.offline_share=0.25")


@pytest.fixture
def pairs_file(tmp_path: Path) -> Path:
    """Pairs of a user's own, in words of the task."""
    path = tmp_path / "pairs.jsonl"
    rows = [{"prompt": w, "chosen": f" {w} {w}", "rejected": f" {w}"} for w in WORDS[:6]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_any_first_prompts_have_the_share_rounded_down(
    make_config: MakeConfig, pairs_file: Path
) -> None:
    given = (*SHORT, "run.groups_per_update=8", f"run.offline_pairs={pairs_file}")
    config = make_config(*given, "run.offline_share=0.4")
    stream = build_rollout_prompts(config, str(pairs_file), word_tokenizer())
    fixed = [is_pair(stream[place].example) for place in range(10)]
    # 0.4 * 1, 2, ... passes a whole number at the 3rd, 5th, 8th and 10th prompt
    assert fixed == [False, False, True, False, True, False, False, True, False, True]
    assert [stream[place].id for place in range(10)] == list(range(10))
    # both streams go on where they stopped: the task's first six prompts, and four of the pairs
    plain = build_rollout_prompts(make_config(*SHORT), "", word_tokenizer())
    drawn = [stream[place].example.uid for place in range(10) if not fixed[place]]
    assert drawn == [plain[place].example.uid for place in range(6)]
    assert len({stream[place].example.uid for place in range(10) if fixed[place]}) == 4


def test_a_run_counts_its_own_samples_and_the_fixed_ones_apart(make_config: MakeConfig) -> None:
    rows = result_of(make_config(*QUARTER, "mode=lagged", "mode.max_staleness=1"))[0]
    plain = result_of(
        make_config(*SHORT, "run.groups_per_update=4", "mode=lagged", "mode.max_staleness=1")
    )[0]
    for round_, row in enumerate(rows):
        assert row["sample/offline"] == 0.25
        assert 0 < row["total/offline_tokens"] < row["total/generated_tokens"]
        # a fixed answer has no age: no row is older than the mode allows
        assert row["lag/rounds_max"] == min(round_, 1)
        assert sum(row["lag/rounds_histogram"].values()) <= 6
        assert row["sample/version"] == max(0, round_ - 1)
    # a prompt is only read for what is drawn
    read = [row["total/prefill_tokens"] for row in (rows[-1], plain[-1])]
    assert read[0] == pytest.approx(0.75 * read[1], rel=0.2)
    assert all("sample/offline" not in row for row in plain)


def test_a_run_that_was_stopped_goes_on(make_config: MakeConfig) -> None:
    config = make_config(*QUARTER, "mode=async", "mode.executor=thread", "checkpoint=rounds")
    output = memory_of(config)
    with pytest.raises(StopRequested):
        run_in_memory(config, output, lambda: len(output.rows) > 2)
    assert run_in_memory(config, output) == run_in_memory(config)


def test_a_file_of_a_users_own_is_scored_by_the_runs_reward(
    make_config: MakeConfig, pairs_file: Path
) -> None:
    given = (*QUARTER, f"run.offline_pairs={pairs_file}")
    config = make_config(*given)
    assert Artifacts(config, Console(quiet=True)).sources().pairs == str(pairs_file)
    rows, digest = result_of(config)
    # rows of 3 and 2 tokens, one pair a round
    assert [row["total/offline_tokens"] for row in rows] == [5 * (n + 1) for n in range(6)]
    assert digest != result_of(make_config(*QUARTER))[1]


def test_ratios_to_the_writers_of_the_file_are_named(
    make_config: MakeConfig, pairs_file: Path
) -> None:
    given = ("run.groups_per_update=4", "run.offline_share=0.25", "algo=rloo")
    config = make_config(*given, f"run.offline_pairs={pairs_file}", "correction=truncated_is")
    (found,) = warnings(config)
    assert f"on run.offline_pairs={pairs_file}" in found


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("generator=pairs",), "all samples are fixed already"),
        (("run.group_size=4",), r"pass run\.group_size=2"),
        (("algo=remax",), "pass another algorithm"),
        (("mode=partial", "mode.segment_tokens=3"), r"pass mode\.segment_tokens=0"),
        (("reward=task_rule",), r"pass reward=reward_model or run\.offline_share=0"),
        (("run.groups_per_update=1",), "up to 1 of them would be fixed, and none drawn"),
    ],
)
def test_what_fixed_pairs_cannot_do_is_refused(
    make_config: MakeConfig, options: tuple[str, ...], why: str
) -> None:
    with pytest.raises(UserError, match=rf"run\.offline_share=0\.25 with .*{why}"):
        check(make_config(*QUARTER, *options))


def test_pairs_without_a_share_and_bad_rows_are_refused(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"prompt": "p", "chosen": "c"}\n')
    with pytest.raises(UserError, match=r"pass run\.offline_share=0\.25 or leave the file out"):
        check(make_config(*SHORT, f"run.offline_pairs={path}"))
    with pytest.raises(UserError, match=r"run\.offline_pairs: .*line 1.*no field 'rejected'"):
        require_readable_splits(make_config(*QUARTER, f"run.offline_pairs={path}"))
