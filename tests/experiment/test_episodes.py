"""Runs on tasks with an environment: what they count, how they go on, and what they leave on disk.
That executors change no bit is in tests/rollout/test_equal_bits.py."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.runs.folder import EVALS
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.rollouts import read_rollouts
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.gsm8k_tool import Gsm8kTool
from rlhf_lab.types.errors import StopRequested, UserError
from tests.conftest import Finished, MakeConfig
from tests.support.chats import CHATML, chat_tokenizer
from tests.support.examples import FACTS
from tests.support.in_memory import memory_of, run_in_memory
from tests.support.survival import outcome
from tests.support.variants import names, variants

SHORT = (
    "run.updates=4",
    "eval=none",
    "eval.snapshots=0",
    "sft.steps=60",
    "generator.chunk_groups=1",
)
WORLDS = {
    "ask": (*SHORT, "task=ask_nano", "algo=grpo", "run.group_size=4", "task.ask_rate=0.9"),
    # Values per token, turns with rewards of their own.
    "tool": (*SHORT, "task=tool_arithmetic", "algo=ppo", "run.group_size=2", "task.tool_rate=1"),
    # A long tail of turns.
    "questions": (
        *(*SHORT, "task=twenty_questions", "algo=grpo", "run.group_size=4"),
        *("task.tail=0.5", "task.max_turns=6"),
    ),
    # Rows of files, for which `world` adds a path, and prompts of bytes.
    "sums": (
        *(*SHORT, "task=gsm8k_tool", "algo=grpo", "run.group_size=4", "model=nano_s"),
        *("task.template='{question}'", "task.validation_size=8"),
        *("task.max_prompt_tokens=8", "task.max_turns=3", "task.max_turn_tokens=16"),
        *("task.max_response_tokens=32", "task.max_observation_tokens=20"),
    ),
}
STALE = ("mode.max_staleness=2",)
BY_TURNS = ("mode=partial_turns", "mode.executor=inline", *STALE)
# Fewer than an action has, so that segments end within it.
BY_TOKENS = ("mode=partial", "mode.segment_tokens=5", "mode.executor=inline", *STALE)
SEGMENTS = {"turns": BY_TURNS, "tokens": BY_TOKENS}


@pytest.fixture(params=names(sorted(WORLDS), ["tool"]))
def world(request: pytest.FixtureRequest, sums: Path) -> tuple[str, ...]:
    options = WORLDS[request.param]
    return (*options, f"task.path={sums}") if request.param == "sums" else options


@pytest.fixture(scope="session")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Problems of GSM8K's form, of a few characters."""
    folder = tmp_path_factory.mktemp("sums")
    for file in ("train", "test"):
        rows = [
            {"question": f"{a}+{b}", "answer": f"<<{a}+{b}={a + b}>>{a + b}\n#### {a + b}"}
            for a in range(10)
            for b in range(10)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{file}.jsonl").write_text(text, encoding="utf-8")
    return folder


def test_episodes_have_turns_and_every_token_is_accounted_for(
    finished: Finished, world: tuple[str, ...]
) -> None:
    rows, _ = finished(*world)
    last = rows[-1]
    assert any(row["episode/turns"] > 1.2 for row in rows)
    observed = sum(row["episode/observed_tokens"] for row in rows)
    completions = last["total/completions"]
    assert last["total/observed_tokens"] == pytest.approx(observed * completions / len(rows))
    assert last["total/kept_tokens"] + last["total/tied_tokens"] == last["total/generated_tokens"]
    # Each of these is read by the reference behind the prompts of its samples.
    assert last["total/reference_tokens"] > last["total/generated_tokens"] + observed


def test_samples_of_the_present_policy_have_ratios_of_one(
    finished: Finished, world: tuple[str, ...]
) -> None:
    rows, _ = finished(*world, "run.passes=1", "run.updates_per_round=1")
    assert all(row["gap/mismatch_k1"] == pytest.approx(0, abs=1e-5) for row in rows)
    assert all(row["ratio/mean"] == pytest.approx(1, abs=1e-4) for row in rows)
    assert rows[0]["kl/sampled_reference_k1"] == pytest.approx(0, abs=1e-4)


def test_a_given_reward_model_and_the_environment_reward_episodes_together(
    finished: Finished, make_config: MakeConfig
) -> None:
    """The reward model's, of another vocabulary, reads the last action."""
    made = Artifacts(make_config("task=tldr_nano"), Console(quiet=True)).reward_model(0)
    options = (
        *WORLDS["ask"],
        *("reward=combined", "+reward@reward.terms.costs=environment"),
        *("+reward@reward.terms.quality=reward_model", f"reward.terms.quality.path={made.folder}"),
    )
    rows, digest = finished(*options)
    assert rows[-1]["total/scored_tokens"] > 0
    assert all(math.isfinite(row["update/loss"]) for row in rows)
    assert digest != finished(*WORLDS["ask"])[1]


def test_old_samples_and_segments_decide(finished: Finished, world: tuple[str, ...]) -> None:
    runs = [(), ("mode=lagged", *STALE), BY_TURNS, BY_TOKENS]
    assert len({finished(*world, *options)[1] for options in runs}) == len(runs)


def test_how_many_calls_are_made_at_once_decides_no_bit(finished: Finished) -> None:
    waiting = (*WORLDS["ask"], "episodes.decode_ahead=4", "mode=lagged", *STALE)
    assert finished(*waiting, "episodes.steps_at_once=4") == finished(*waiting)


@pytest.mark.parametrize(
    "longest",
    [(*BY_TURNS, "mode.segment_turns=6"), (*BY_TOKENS, "mode.segment_tokens=1000")],
    ids=SEGMENTS,
)
def test_segments_that_hold_whole_episodes_make_a_lagged_run(
    finished: Finished, world: tuple[str, ...], longest: tuple[str, ...]
) -> None:
    assert finished(*world, *longest) == finished(*world, "mode=lagged", *STALE)


def test_each_turn_is_of_the_next_version(make_config: MakeConfig) -> None:
    config = make_config(*WORLDS["ask"], *BY_TURNS)
    output = memory_of(config)
    rows, _ = run_in_memory(config, output)
    for row in output.schedule:
        first = max(0, row["round"] - 2)
        promised = [[turn, version] for turn, version in enumerate(range(first, row["round"] + 1))]
        assert row["segments"] == promised[: len(row["segments"])] and row["segment_turns"] == 1
    assert any(len(row["segments"]) == 3 for row in output.schedule)
    last = rows[-1]
    assert last["episode/lag_first_turn"] == 2 > last["episode/lag_last_turn"] >= 0
    assert last["sample/version_span"] == pytest.approx(2 - last["episode/lag_last_turn"])
    # Each version reads its turn's whole context anew, which one version need not.
    whole, _ = run_in_memory(make_config(*WORLDS["ask"], "mode=lagged", *STALE))
    assert last["total/prefill_tokens"] > whole[-1]["total/prefill_tokens"]


@pytest.mark.parametrize("ahead", [pytest.param(0, marks=pytest.mark.slow), 8])
def test_a_free_run_takes_weights_at_any_token_and_is_replayed(
    make_config: MakeConfig, processes: None, ahead: int
) -> None:
    free = ("mode=free", "mode.executor=thread", "mode.weights=latest_per_token", *STALE)
    world = (*WORLDS["ask"], f"episodes.decode_ahead={ahead}")
    folder = lifecycle.train(make_config(*world, *free), Console(quiet=True), FACTS)
    again = make_config(
        *world, *STALE, "mode=recorded", f"mode.schedule={folder}", f"output.dir={folder}-2"
    )
    repeated = lifecycle.train(again, Console(quiet=True), FACTS)
    assert outcome(repeated)[1] == outcome(folder)[1]


@pytest.mark.parametrize(
    "mode",
    variants(
        {
            "lagged": ("mode=lagged",),
            "partial_turns": ("mode=partial_turns",),
            "over_provision": ("mode=partial_turns", "mode.over_provision=1.5"),
            "partial": ("mode=partial", "mode.segment_tokens=5"),
            "over_provision_in_turns": (
                *("mode=partial", "mode.segment_tokens=5", "mode.over_provision=1.5"),
            ),
        },
        ["lagged", "partial_turns", "over_provision_in_turns"],
    ),
)
@pytest.mark.parametrize("rounds", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_run_goes_on_where_it_was_stopped(
    make_config: MakeConfig,
    finished: Finished,
    world: tuple[str, ...],
    mode: tuple[str, ...],
    rounds: int,
) -> None:
    """Chunks of later rounds are under way, some of whose episodes have ended."""
    options = (*world, *mode, "mode.executor=inline", *STALE)
    config = make_config(*options, "checkpoint.rounds=2")
    output = memory_of(config)
    asked: list[int] = []

    def after_some() -> bool:
        asked.append(1)
        return len(asked) == rounds

    with pytest.raises(StopRequested):
        run_in_memory(config, output, after_some)
    assert len(output.rows) == rounds
    assert run_in_memory(config, output) == finished(*options)


def test_a_run_goes_on_from_its_files(make_config: MakeConfig, world: tuple[str, ...]) -> None:
    options = (*world, "mode=lagged", *STALE)
    whole = lifecycle.train(make_config(*options), Console(quiet=True), FACTS)
    into = (*options, f"output.dir={whole.parent}/paused")
    paused = make_config(*into, "checkpoint.pause_round=3")
    folder = lifecycle.train(paused, Console(quiet=True), FACTS)
    lifecycle.train(make_config(*into, "output.resume=true"), Console(quiet=True), FACTS)
    assert outcome(folder) == outcome(whole)


def test_files_show_the_turns(make_config: MakeConfig) -> None:
    options = (*WORLDS["ask"], "eval=quick", "eval.prompts=8", "eval.snapshots=1")
    folder = lifecycle.train(make_config(*options, "tracker.samples=4"), Console(quiet=True), FACTS)
    kept = read_rollouts(folder)
    asking = [sample for sample in kept if "): ask " in sample.response]
    assert asking and all("\nenvironment: " in sample.response for sample in asking)
    for sample in kept:
        # A turn has a reward each, of which the last is the summary's.
        assert len(sample.steps) == sample.response.count("policy (")
        assert sample.reward == pytest.approx(sum(reward for _, reward in sample.steps))
        assert sample.steps[-1][0] == sample.tokens - 1
        own = [turn for turn in sample.turns if turn["writer"] == "policy"]
        assert [turn["reward"] for turn in own] == [reward for _, reward in sample.steps]
        assert sum(len(turn["logps"]) for turn in own) == sample.tokens
        assert {turn["version"] for turn in own} == {sample.version}
    evaluated = read_rows(folder / EVALS)[-1]
    assert evaluated["episode/turns"] >= 1 and evaluated["episode/questions"] >= 0
    assert abs(read_rows(folder / EVALS)[0]["kl/sft_k1"]) < 1e-4


def test_values_per_turn_tell_turns_apart(finished: Finished) -> None:
    by_turn = (*WORLDS["tool"], "algo=ma_ppo", "algo.termination=turn")
    rows, digest = finished(*by_turn)
    assert any(row["episode/turns"] > 1.2 for row in rows)
    # A response as one macro action is another run: turns are told apart.
    assert finished(*by_turn, "algo.termination=fixed", "algo.macro_tokens=1000")[1] != digest


@pytest.fixture
def chatty(sums: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """A policy that has learned to call a calculator in a chat."""
    monkeypatch.setattr(Gsm8kTool, "tokenizer", lambda self: chat_tokenizer())
    return (
        *(*WORLDS["sums"], f"task.path={sums}", "model.max_positions=192"),
        *("task.chat=true", "task.max_prompt_tokens=40", "task.max_observation_tokens=40"),
        *("task.observation_role=tool", "run.updates=4"),
    )


def test_episodes_of_chats_have_the_same_bits_in_every_mode(
    finished: Finished, chatty: tuple[str, ...]
) -> None:
    lagged = finished(*chatty, "mode=lagged", *STALE)
    # A message has more tokens of the template than of the calculator.
    assert any(row["episode/observed_tokens"] > 20 for row in lagged[0])
    assert finished(*chatty, "mode=async", "mode.executor=thread", *STALE) == lagged


@pytest.mark.parametrize(
    ("template", "option", "complaint"),
    [
        (CHATML, "task.max_observation_tokens=20", "the chat template puts 2. tokens around an"),
        (
            CHATML.replace("message in messages", "message in messages if message.role != 'tool'"),
            "task.observation_role=tool",
            "leaves out messages of role tool; pass task.observation_role=user",
        ),
    ],
    ids=["too long", "no tool"],
)
def test_a_chat_template_that_cannot_write_episodes_is_refused_before_the_first_step(
    make_config: MakeConfig,
    chatty: tuple[str, ...],
    tmp_path: Path,
    template: str,
    option: str,
    complaint: str,
) -> None:
    path = tmp_path / "own.jinja"
    path.write_text(template, encoding="utf-8")
    config = make_config(*chatty, f"task.chat_template={path}", option)
    with pytest.raises(UserError, match=complaint):
        lifecycle.train(config, Console(quiet=True), FACTS)


def test_labels_of_episodes_are_refused(make_config: MakeConfig) -> None:
    """Labels are pairs of answers of one turn."""
    artifacts = Artifacts(make_config(*WORLDS["ask"]), Console(quiet=True))
    with pytest.raises(UserError, match=r"task=ask_nano has several turns, and labels compare"):
        artifacts.labels()
