"""Functions of the user's own as rewards: what is asked of them, their failures, time limits."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.experiment.artifacts.keys import ArtifactKeys
from rlhf_lab.experiment.config.config import plain
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.rewards import rules
from rlhf_lab.rewards.data_rewards import RuleReward, RuleScorer
from rlhf_lab.rewards.function import (
    FunctionReward,
    FunctionScoring,
    loaded,
)
from rlhf_lab.rewards.limited import OnError, SampleScorer, TimeUp
from rlhf_lab.rewards.worker_child import EachSample, Item, Scoring
from rlhf_lab.rewards.workers import Workers
from rlhf_lab.runs import processes
from rlhf_lab.runs.folder import metrics
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.arithmetic import Arithmetic
from rlhf_lab.tasks.gsm8k import Gsm8k, Verify
from rlhf_lab.tasks.task_options import Task
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample, Split
from tests.conftest import MakeConfig
from tests.support.examples import FACTS, call
from tests.support.survival import is_running, outcome, wait_until

pytestmark = pytest.mark.usefixtures("costly")

MODULE = """
    import ctypes, json, os, re, sys, time
    from rlhf_lab.tasks.gsm8k import Gsm8k

    def words(prompt, completion, *, reference, hidden, finished, scale=1.0):
        return scale * len(completion.split())

    def whole(prompt, completion, *, reference, hidden, finished):
        return len(json.dumps([prompt, completion, reference, hidden, finished]))

    def by_text(prompt, completion, *, reference, hidden, finished):
        return {
            "nan": lambda: float("nan"),
            "text": lambda: "0.5",
            "none": lambda: None,
            "raise": lambda: 1 / 0,
            "exit": lambda: os._exit(3),
            "crash": lambda: ctypes.string_at(0),
            "sleep": lambda: time.sleep(600),
        }.get(completion, lambda: len(completion))()

    def spin(prompt, completion, **rest):
        # It tells by a file that it has begun, and never comes back nor lets go of the interpreter.
        with open("begun", "w") as file:
            file.write(str(os.getpid()))
        os.rename("begun", completion)
        re.match("(a+)+$", "a" * 60 + "b")

    def unlucky(prompt, completion, *, reference, hidden, finished):
        if sum(map(ord, prompt)) % 5 == 0:
            raise LookupError("an unlucky prompt")
        return len(completion) / 10

    def has_torch(prompt, completion, *, reference, hidden, finished):
        return "torch" in sys.modules

    def old_style(prompt, completion):
        return 0.0

    class Asking:
        # A rule, of which one wants to know whether its process has loaded torch.
        def __init__(self, task):
            self.task = task

        def __call__(self, example, text, finished):
            self.task.judge(example, text, finished)
            return "torch" in sys.modules

    class Strict(Gsm8k):
        # A task whose verifier raises on some answers and hangs on others.
        def judge(self, example, text, finished):
            if text == "hang":
                time.sleep(600)
            if text == "bad":
                raise KeyError("no such entry")
            return super().judge(example, text, finished)

    constant = 3
"""


# Nothing that comes to an end takes as long, on any machine.
AMPLE = 120.0
# What hangs is given up after it.
SHORT_LIMIT = 0.2


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Name of a module in the working folder."""
    name = f"rewards_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(MODULE))
    (tmp_path / f"broken_{name}.py").write_text("import no_such_package_at_all\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield name
    sys.modules.pop(name, None)


def group(*texts: str, hidden: Mapping[str, Any] | None = None) -> Group:
    prompt = Prompt(0, (1,), Example("row/7", "a b", " c", hidden or {"fact": 1}))
    return Group(prompt, tuple(Sample((5,), (0.0,), 0, Finish.eos, text) for text in texts))


def scorer(path: str, seconds: float = 0.0, on_error: OnError = OnError.drop) -> SampleScorer:
    return SampleScorer(FunctionScoring(path, {}), seconds, on_error, workers=1)


def score_of(scoring: Scoring, example: Example, text: str, seconds: float = 0.0) -> object:
    """The outcome of one sample in a worker."""
    ((_, outcome),) = Workers(scoring, 1, seconds).outcomes([Item(example, text, True)])
    return outcome


def test_a_function_sees_every_sample_as_documented(module: str) -> None:
    hidden = {"fact": 1}
    (row,) = scorer(f"{module}.whole").score([group("x y", "z", hidden=hidden)])
    seen = '["a b", "x y", " c", {"fact": 1}, true]'
    assert row == (len(seen), len(seen) - 2)


def test_arguments_are_passed_on(module: str) -> None:
    scoring = FunctionScoring(f"{module}.words", {"scale": 0.5})
    live = SampleScorer(scoring, 0.0, OnError.stop, workers=1)
    assert live.score([group("x y", "z")]) == [(1.0, 0.5)]


@pytest.mark.parametrize(
    ("path", "arguments", "complaint"),
    [
        ("", {}, r"reward\.path=: pass the dotted name"),
        ("words", {}, r"reward\.path=words: pass the dotted name"),
        ("no_such_module_here.f", {}, r"ModuleNotFoundError: .*in the working folder"),
        ("broken_{}.f", {}, r"could not be imported .*no_such_package_at_all"),
        ("{}.nothing", {}, r"AttributeError: .*nothing"),
        ("{}.constant", {}, r"is 3, which cannot be called"),
        ("{}.old_style", {}, r"does not take .*unexpected keyword.*def reward\(prompt: str"),
        ("{}.words", {"weight": 1}, r"does not take .*'weight'.*reward\.arguments"),
    ],
)
def test_what_cannot_be_called_is_refused(
    module: str, path: str, arguments: dict[str, Any], complaint: str
) -> None:
    options = FunctionReward(path=path.format(module), arguments=arguments)
    with pytest.raises(UserError, match=complaint):
        options.require_usable("reward")


def test_arguments_that_every_call_has_are_refused() -> None:
    with pytest.raises(UserError, match=r"reward\.arguments\.hidden=3"):
        FunctionReward(arguments={"hidden": 3})


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_limit_that_is_no_time_is_refused(seconds: float) -> None:
    for options in (FunctionReward, RuleReward):
        with pytest.raises(UserError, match="time_limit_s"):
            options(time_limit_s=seconds)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [("raise", "ZeroDivisionError"), ("nan", "returned nan"), ("text", "'0.5', which is no num")],
)
def test_a_function_must_score_a_reference_before_the_run(
    module: str, answer: str, complaint: str
) -> None:
    options = FunctionReward(path=f"{module}.by_text")
    options.require_working("judge", Example("row/0", "a", " fine"))
    with pytest.raises(UserError, match=rf"judge\.path={module}.by_text.*row/0.*{complaint}"):
        options.require_working("judge", Example("row/0", "a", f" {answer}"))


def test_the_command_line_refuses_with_the_functions_own_error(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("train", "debug=tiny", "reward=combined", "+reward@reward.terms.mine=function")
    path = f"reward.terms.mine.path={module}.unlucky"
    monkeypatch.setattr("rlhf_lab.tasks.tldr_nano.render_post", lambda *_: "abcde")
    assert call(*given, path, monkeypatch=monkeypatch) == 2
    told = capsys.readouterr().err
    assert f"reward.terms.mine.path={module}.unlucky cannot score" in told
    assert "LookupError: an unlucky prompt" in told


@pytest.mark.parametrize("answer", ["raise", "nan", "text", "none"])
def test_a_failure_drops_its_group_and_is_counted(module: str, answer: str) -> None:
    live = scorer(f"{module}.by_text")
    assert live.score([group("abc"), group("a", answer, answer), group("ab")]) == [(3,), (), (2,)]
    assert live.drain() == {"reward_timeouts": 0, "reward_errors": 1}
    assert live.drain() == {"reward_timeouts": 0, "reward_errors": 0}


def test_a_failure_stops_the_run_with_the_uid_and_its_own_traceback(module: str) -> None:
    live = scorer(f"{module}.by_text", on_error=OnError.stop)
    with pytest.raises(RuntimeError, match=r"^row/7: .*by_text failed \(ZeroDiv.* 'raise'") as told:
        live.score([group("a", "raise")])
    assert "1 / 0" in str(told.value.__cause__)
    assert live.drain() == {}, "nothing goes on that could be counted"


def test_a_child_scores_like_the_function_and_outlives_its_failures(module: str) -> None:
    before = children()
    texts = ["abc", "exit", "crash", "raise", "nan", "a"]
    live = scorer(f"{module}.by_text", seconds=AMPLE)
    assert live.score([group(text) for text in texts]) == [(3,), (), (), (), (), (1,)]
    assert live.drain() == {"reward_timeouts": 0, "reward_errors": 4}
    assert len(children() - before) == 1, "the dead were buried"
    del live
    gc.collect()
    assert children() <= before


def test_a_child_that_took_too_long_is_replaced(module: str) -> None:
    before = children()
    workers = Workers(FunctionScoring(f"{module}.by_text", {}), 1, AMPLE)

    def scored(text: str) -> object:
        ((_, outcome),) = workers.outcomes([Item(Example("row/7", "a", ""), text, True)])
        return outcome

    assert scored("abc") == 3
    (first,) = children() - before
    workers._seconds = SHORT_LIMIT
    assert scored("sleep").is_late  # type: ignore[attr-defined]
    assert not is_running(first)
    workers._seconds = AMPLE
    assert scored("ab") == 2
    (second,) = children() - before
    assert first != second


def test_a_child_starts_without_torch(module: str) -> None:
    live = scorer(f"{module}.has_torch", seconds=AMPLE)
    assert live.score([group("abc")]) == [(0.0,)], "which takes seconds to import"


RULES: dict[str, Task] = {
    "gsm8k": Gsm8k(),
    "math_verify": Gsm8k(verify=Verify.math_verify),
    "arithmetic": Arithmetic(),
    "tldr_nano": TldrNano(),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_starts_without_torch(module: str, name: str) -> None:
    task = RULES[name]
    example = Example("row/0", "a", "b", {"answer": "1"})
    if not isinstance(task, Gsm8k):
        example = task.examples(Split.train)[0]
    judge = loaded(f"{module}.Asking")[0](task)
    # Without a final answer: to compare two, math-verify imports what takes seconds, if not torch.
    assert score_of(EachSample(judge), example, "none") == 0.0


def test_time_that_is_up_stops_the_run_and_names_the_sample(module: str) -> None:
    live = scorer(f"{module}.by_text", seconds=SHORT_LIMIT, on_error=OnError.stop)
    with pytest.raises(TimeUp, match=r"^row/7: no score within time_limit_s=0.2 .*'sleep'"):
        live.score([group("sleep")])


def test_what_goes_wrong_in_a_child_stops_the_run_and_names_the_sample(module: str) -> None:
    live = scorer(f"{module}.by_text", seconds=AMPLE, on_error=OnError.stop)
    with pytest.raises(RuntimeError, match="row/7") as told:
        live.score([group("raise")])
    assert "1 / 0" in str(told.value.__cause__), "the child's own traceback"
    with pytest.raises(
        RuntimeError,
        match=rf"row/7: .*{module}.by_text ended its process \(killed by SIGSEGV\) on .*'crash'",
    ):
        live.score([group("crash")])


@pytest.mark.linux
def test_a_child_that_died_in_between_is_no_samples_fault(module: str) -> None:
    before = children()
    live = scorer(f"{module}.by_text", seconds=AMPLE)
    assert live.score([group("ab")]) == [(2,)]
    (child,) = children() - before
    os.kill(child, 9)
    wait_until(lambda: not is_running(child) and len(os.listdir(f"/proc/{child}/task")) == 1)
    assert live.score([group("abc")]) == [(3,)]
    assert live.drain()["reward_errors"] == 0


def test_a_child_dies_with_its_parent_in_the_middle_of_a_call(module: str) -> None:
    script = textwrap.dedent(
        f"""
        from rlhf_lab.rewards.function import FunctionScoring
        from rlhf_lab.rewards.worker_child import Item
        from rlhf_lab.rewards.workers import Workers
        from rlhf_lab.types.samples import Example
        workers = Workers(FunctionScoring("{module}.spin", {{}}), 1, 600.0)
        list(workers.outcomes([Item(Example("row", "a", "b"), "{module}", True)]))
        """
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([".", *sys.path])},
    )
    try:
        child = int(wait_until(lambda: Path(module).exists() and Path(module).read_text()))
        assert is_running(child)
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: not is_running(child))


def children() -> set[int]:
    """Workers that this process has, the dead and unburied among them."""
    return {
        pid
        for pid in processes.children(os.getpid())
        if not is_running(pid)
        or "rewards.worker_child" in processes.ps("-ww", "-o", "command=", "-p", str(pid))
    }


SUMS = ("task=arithmetic", "algo=rloo", "eval=none", "run.updates=2", "mode=lagged")


def test_a_time_limit_changes_no_bit_in_any_executor(
    module: str, make_config: MakeConfig, tmp_path: Path
) -> None:
    own = ("reward=function", f"reward.path={module}.unlucky", "reward.on_error=drop")
    limit = f"reward.time_limit_s={AMPLE}"
    before, ends = children(), []
    for number, rest in enumerate(
        (
            [],
            [limit, "mode=async", "mode.executor=thread"],
            [limit, "mode=async", "mode.executor=process", "mode.num_generators=2"],
        )
    ):
        config = make_config(*SUMS, *own, *rest, f"output.dir={tmp_path}/{number}")
        folder = lifecycle.train(config, Console(quiet=True), {**FACTS, "resolved": plain(config)})
        ends.append(outcome(folder))
    last = ends[0][0][-1]
    assert 0 < last["total/unscored_groups"] == last["total/reward_errors"] < 8
    assert last["total/reward_timeouts"] == 0
    assert ends[0] == ends[1] == ends[2]
    gc.collect()
    assert children() <= before


def test_a_rule_has_a_time_limit_too(module: str) -> None:
    task: Gsm8k = loaded(f"{module}.Strict")[0]()
    example = Example("row/0", "a", "b", {"answer": "1"})
    samples = [Sample((5,), (0.0,), 0, Finish.eos, text) for text in ("#### 1", "bad", "hang")]
    right, bad, hang = [Group(Prompt(0, (1,), example), (sample,)) for sample in samples]
    live = RuleScorer(task, RuleReward(time_limit_s=AMPLE, on_error=OnError.drop))
    assert live.score([right, bad]) == [(1.0,), ()]
    assert live.drain() == {"reward_timeouts": 0, "reward_errors": 1}
    brief = RuleScorer(task, RuleReward(time_limit_s=SHORT_LIMIT, on_error=OnError.drop))
    assert brief.score([hang]) == [()]
    assert brief.drain() == {"reward_timeouts": 1, "reward_errors": 0}
    with pytest.raises(KeyError, match="no such entry"):
        RuleScorer(task).score([right, bad])
    assert RuleScorer(task).drain() == {}


def test_labels_of_a_function_are_made_anew_when_its_code_changes(
    module: str, make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config("reward@judge=function", f"judge.path={module}.words")
    before = config.judge.code_digests(), ArtifactKeys(config).labels()
    file = tmp_path / f"{module}.py"
    file.write_text(file.read_text() + "\n# another word\n")
    after = config.judge.code_digests(), ArtifactKeys(config).labels()
    assert before[0] != after[0]
    assert before[1] != after[1]


def told(name: str, text: str, finished: bool = True, **arguments: Any) -> float:
    scoring = FunctionScoring(f"rlhf_lab.rewards.rules.{name}", arguments)
    ((_, outcome),) = scoring.outcomes([Item(Example("row/0", "a", "b"), text, finished)])
    assert isinstance(outcome, float)
    return outcome


def test_small_rules() -> None:
    assert (told("finished", "a"), told("finished", "a", False)) == (1.0, 0.0)
    assert (told("not_empty", " a"), told("not_empty", " \n")) == (1.0, 0.0)
    between = [told("length_within", "a " * n, least=2, most=3) for n in range(5)]
    assert between == [0.0, 0.0, 1.0, 1.0, 0.0]
    assert told("mentions", "The CAT and a dog", texts=["cat", "dog", "cow"]) == 2 / 3
    assert told("matches", " <a>x\ny</a>\n", pattern="<a>.*</a>") == 1.0
    assert told("matches", "see <a>x</a>", pattern="<a>.*</a>") == 0.0


def test_similarity_by_hand() -> None:
    given: dict[str, Any] = {"reference": " abcd ", "hidden": {}, "finished": True}
    # 3 of 4 and 4 characters match: 2 * 3 / 8.
    assert rules.similarity("", "abce", **given) == 0.75
    pattern = "<patch>(.*)</patch>"
    assert rules.similarity("", "so\n<patch>abcd\n</patch>", **given, pattern=pattern) == 1.0
    assert rules.similarity("", "abcd", **given, pattern=pattern) == -1.0


def test_progress_by_hand() -> None:
    given: dict[str, Any] = {"reference": "6 * 7 = 42\n#### 42", "hidden": {}, "finished": True}
    # Right after 2 of 4 episodes, and at the end; the third takes another number.
    text = "First 6.\n\nSo 42.\n\nOr 1,000?\n\nNo, 42."
    assert rules.progress("", text, **given) == pytest.approx(1 + 0.2 * 2 / 4)
    assert rules.progress("", text[:-1] + " or 3.", **given, weight=0.4) == pytest.approx(0.1)
    assert rules.progress("", "", **given) == 0.0
    with pytest.raises(UserError, match="has no number"):
        rules.progress("", text, **given | {"reference": "none"})


def test_repetition_is_the_share_of_runs_that_stood_earlier() -> None:
    text = "a b c a b c"  # runs of three: abc bca cab abc, of which one is a repetition
    assert rules.repeated_share(text, 3) == 0.25
    assert rules.repeated_share("a b", 3) == 0.0
    assert rules.repeated_share("a a a a a", 1) == pytest.approx(0.8)
    assert (told("no_repetition", text, most=0.25), told("no_repetition", text)) == (1.0, 0.0)


def test_every_small_rule_fits_and_scores_a_reference() -> None:
    given: dict[str, dict[str, Any]] = {"mentions": {"texts": ["c"]}, "matches": {"pattern": "c"}}
    for name in ("finished", "not_empty", "length_within", "no_repetition", "mentions", "matches"):
        options = FunctionReward(
            path=f"rlhf_lab.rewards.rules.{name}", arguments=given.get(name, {})
        )
        options.require_usable("reward")
        options.require_working("reward", Example("row/0", "a", " c"))
        assert told(name, "c", **given.get(name, {})) == 1.0


def test_the_preset_after_cgpo_trains_on_odds_behind_its_gates(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(
        "reward=cgpo", "run.updates=2", "eval.snapshots=1", f"output.dir={tmp_path}/cgpo"
    )
    folder = lifecycle.train(config, Console(quiet=True), {**FACTS, "resolved": plain(config)})
    rows = metrics(folder)
    assert len(rows) == 2
    assert all(0 < row["reward/mean"] < 1 for row in rows), "odds, or 0 where a gate is closed"
    assert all(row["sample/eos_rate"] < 1 or row["reward/std"] > 0 for row in rows)
    assert 0 < read_rows(folder / "evals.jsonl")[-1]["proxy/mean"] < 1


def test_a_child_is_not_started_before_it_is_needed(module: str) -> None:
    before = children()
    live = scorer(f"{module}.words")
    assert children() <= before
    del live
