"""Reward functions in the signatures of TRL, verl and OpenRLHF, and samples scored together."""

from __future__ import annotations

import json
import math
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.experiment.build.prompts import examples_of
from rlhf_lab.experiment.config.config import plain
from rlhf_lab.experiment.rules.checks import require_working_parts
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.rewards.combined import CombinedReward, CombinedScorer, How
from rlhf_lab.rewards.function import FunctionReward
from rlhf_lab.rewards.limited import OnError, SampleScorer
from rlhf_lab.rewards.styles import Style
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample, Split
from tests.conftest import MakeConfig
from tests.support.examples import FACTS
from tests.support.survival import outcome

pytestmark = pytest.mark.usefixtures("costly")

# The published shape of each: one file, as its users have it.
FILES = {
    "trl_text": """
        def reward_len(completions, **kwargs):
            return [float(len(completion)) for completion in completions]
    """,
    "trl_chat": """
        def reward_len(completions, **kwargs):
            contents = [completion[0]["content"] for completion in completions]
            return [float(len(content)) for content in contents]
    """,
    "trl_column": """
        def reward_len(prompts, completions, answer, **kwargs):
            return [float(a in c) + len(c) for c, a in zip(completions, answer)]
    """,
    "trl_async": """
        import asyncio

        async def reward_len(prompts, completions, completion_ids, **kwargs):
            async def one(completion):
                await asyncio.sleep(0.01)
                return float(len(completion))
            return await asyncio.gather(*(one(c) for c in completions))
    """,
    "trl_none": """
        def reward_len(completions, kind, **kwargs):
            return [float(len(c)) if k == "sum" else None for c, k in zip(completions, kind)]
    """,
    "verl": """
        def reward_len(data_source, solution_str, ground_truth, extra_info=None):
            assert data_source == "sums" and extra_info["index"] >= 0
            return {"score": float(ground_truth in solution_str) + len(solution_str), "acc": 1.0}
    """,
    "openrlhf": """
        def reward_len(queries, prompts, labels, **kwargs):
            rewards = [float(label in query[len(prompt):]) + len(query) - len(prompt)
                       for query, prompt, label in zip(queries, prompts, labels)]
            return {"rewards": rewards, "scores": rewards, "extra_logs": {"one": 1}}
    """,
}
STYLES = {name: Style(name.partition("_")[0]) for name in FILES}
OTHERS = """
    import os, time

    def received(prompts, completions, completion_ids, **kwargs):
        assert all(type(each) is list and len(each) == len(prompts) for each in kwargs.values())
        return [100.0 * len(kwargs) + len(ids) for ids in completion_ids]

    def wrong_length(completions, **kwargs):
        return [1.0]

    def one_number(completions, **kwargs):
        return 1.0

    def some_nan(completions, **kwargs):
        return [float("nan") if c == "bad" else 1.0 for c in completions]

    def state(completions, trainer_state, **kwargs):
        return [0.0 for _ in completions]

    def named(prompt, completion, *, answer, unit="m", **rest):
        return len(completion) + 10.0 * len(answer) + 100.0 * len(unit)

    begun = []

    async def together(prompt, completion, **rest):
        # As many calls must have begun as the completion says before one ends.
        import asyncio
        if completion == "fail":
            raise LookupError("no such entry")
        begun.append(completion)
        while completion == "hang" or len(begun) < int(completion):
            await asyncio.sleep(0.01)
        return float(len(completion))

    class Scored:
        async def __call__(self, solution_str, ground_truth):
            return {"score": len(solution_str)}

    scored = Scored()

    def slow(prompt, completion, **rest):
        time.sleep(0.05)
        if completion == "exit":
            os._exit(0)
        return float(len(completion))

    def spoiling(prompt, completion, *, hidden, **rest):
        hidden["n"] = hidden.get("n", 0) + 1
        return float(hidden["n"])
"""
ROWS = [
    {
        "prompt": f"Add {n} and {n}.",
        "answer": str(2 * n),
        "kind": "sum",
        "label": str(2 * n),
        "data_source": "sums",
        "reward_model": {"style": "rule", "ground_truth": str(2 * n)},
        "extra_info": {"index": n},
    }
    for n in range(40)
]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What the names of modules in the working folder end in."""
    name = f"of_{tmp_path.name}"
    for file, text in {**FILES, "others": OTHERS}.items():
        (tmp_path / f"{file}_{name}.py").write_text(textwrap.dedent(text))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield name


def group(
    *texts: str, uid: str = "row/7", columns: Mapping[str, Any] | None = None, chat: bool = False
) -> Group:
    messages = (("user", "a b"),) if chat else ()
    known = ROWS[7] if columns is None else columns
    example = Example(uid, "a b", " c", {}, messages, known)
    samples = tuple(Sample((5, 6), (0.0, 0.0), 0, Finish.eos, text) for text in texts)
    return Group(Prompt(0, (1,), example), samples)


def scorer(path: str, **rest: Any) -> SampleScorer:
    options = FunctionReward(path=path, **rest)
    return SampleScorer(
        options.scoring, options.time_limit_s, options.on_error, workers=options.workers
    )


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_each_style_scores_as_it_is(module: str, name: str) -> None:
    options = FunctionReward(path=f"{name}_{module}.reward_len")
    options.require_usable("reward")
    assert f"style={STYLES[name]}" in options.note
    is_chat = name == "trl_chat"
    options.require_working("reward", group("", chat=is_chat).prompt.example)
    groups = [group("abc", "14", chat=is_chat), group("", "abcd", chat=is_chat)]
    has_answer = name in ("trl_column", "verl", "openrlhf")
    expected = [(3.0, 3.0 if has_answer else 2.0), (0.0, 4.0)]
    assert scorer(options.path).score(groups) == expected


def test_trl_functions_get_all_columns_of_a_chunk_by_name(module: str) -> None:
    path = f"others_{module}.received"
    assert FunctionReward(path=path).columns is None
    first, second = group("a", columns={"x": 1, "prompt": ""}), group("b", columns={"y": 2})
    assert scorer(path).score([first, second]) == [(202.0,), (202.0,)]


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("trl_text", None),
        ("verl", ("data_source", "reward_model", "ground_truth", "extra_info")),
        ("openrlhf", ("label", "labels")),
    ],
)
def test_only_what_a_function_can_receive_is_kept(
    module: str, make_config: MakeConfig, name: str, columns: tuple[str, ...] | None
) -> None:
    path = f"reward.path={name}_{module}.reward_len"
    config = make_config(
        "task=prompts", "task.path=rows.jsonl", "reward=function", path, "reward@judge=none"
    )
    kept = examples_of(config, Split.train)[0].columns
    assert set(kept) == (set(ROWS[0]) if columns is None else set(ROWS[0]) & set(columns))
    own = make_config("task=prompts", "task.path=rows.jsonl", "reward=task_rule")
    assert examples_of(own, Split.train)[0].columns == {}


def test_an_own_function_names_columns_too(module: str) -> None:
    path = f"others_{module}.named"
    options = FunctionReward(path=path)
    options.require_usable("reward")
    assert options.columns == ("answer", "unit")
    columns = {"answer": "14"}
    assert scorer(path).score([group("abc", columns=columns)]) == [(3 + 20 + 100.0,)]
    with pytest.raises(UserError, match=r"reward\.path=others_.*'answer'.*other"):
        options.require_working("reward", group("", columns={"other": 1}).prompt.example)


@pytest.mark.parametrize(("name", "missing"), [("others", "trainer_state"), ("verl", "ground_tr")])
def test_what_nobody_can_pass_is_refused_before_the_run(
    module: str, make_config: MakeConfig, name: str, missing: str, tmp_path: Path
) -> None:
    rows = (f'{{"prompt": "a {n}", "text": "b"}}\n' for n in range(40))
    (tmp_path / "bare.jsonl").write_text("".join(rows))
    function = "state" if name == "others" else "reward_len"
    config = make_config(
        *("task=prompts", "task.path=bare.jsonl", "reward=function", "reward@judge=none"),
        f"reward.path={name}_{module}.{function}",
    )
    with pytest.raises(UserError, match=rf"reward\.path={name}.*{missing}.*prompt, text"):
        require_working_parts(config)


@pytest.mark.parametrize("style", ["own", "verl"])
def test_a_list_by_its_name_is_never_one_text(module: str, style: str) -> None:
    options = FunctionReward(path=f"trl_text_{module}.reward_len", style=Style(style))
    with pytest.raises(UserError, match=rf"reward\.style={style}.*'completions'"):
        options.require_usable("reward")


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        ("wrong_length", r"^row/7: .*returned 1 numbers for 3 samples"),
        ("one_number", r"^row/7: .*returned 1\.0 for 3 samples"),
        ("some_nan", r"^row/8: .*returned nan.*'bad'"),
    ],
)
def test_what_is_wrong_in_a_list_is_one_line_with_its_row(
    module: str, function: str, complaint: str
) -> None:
    groups = [group("a", "b"), group("bad", uid="row/8")]
    path = f"others_{module}.{function}"
    with pytest.raises(RuntimeError, match=complaint) as caught:
        scorer(path).score(groups)
    assert "\n" not in str(caught.value)
    dropped = scorer(path, on_error=OnError.drop).score(groups)
    assert dropped == ([(1.0, 1.0), ()] if function == "some_nan" else [(), ()])


# --- several functions --------------------------------------------------------------------------


class Table(Reward):
    """Scores of two samples; None for those that it leaves to others."""

    def __init__(self, *row: float | None) -> None:
        self._row = row

    def as_term(self, groups: Sequence[Group]) -> list[tuple[tuple[float | None, ...], Any]]:
        return [(self._row, ()) for _ in groups]

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        raise AssertionError("which cannot leave out a sample")


def summed(how: How, first: Table, second: Table, **rest: Any) -> list[tuple[float, ...]]:
    terms: dict[str, Reward] = {"first": first, "second": second}
    options = CombinedReward(how=how, terms={name: FunctionReward() for name in terms}, **rest)
    return CombinedScorer(options, terms, lambda one: one.samples[0]).score([group("a", "b")])


def test_a_function_that_gives_none_is_left_out_of_that_samples_sum() -> None:
    weights = {"second": 0.5}
    assert summed(How.sum, Table(1.0, None), Table(4.0, 6.0), weights=weights) == [(3.0, 3.0)]
    assert summed(How.product, Table(2.0, None), Table(4.0, 6.0)) == [(8.0, 6.0)]
    assert summed(How.sum, Table(1.0, None), Table(4.0, None)) == [()], "nobody scored the second"
    gated = summed(How.sum, Table(None, 0.0), Table(4.0, 6.0), gates={"first": 1.0}, closed=-1.0)
    assert gated == [(4.0, -1.0)]


def test_a_group_that_its_only_function_leaves_out_has_no_score(module: str) -> None:
    path = f"trl_none_{module}.reward_len"
    other = group("a", columns={"kind": "product"})
    assert scorer(path).score([group("abc"), other]) == [(3.0,), ()]
    assert scorer(path).partial_scores([other]) == [(None,)]


# --- at the same time ---------------------------------------------------------------------------


def test_coroutines_of_a_chunk_wait_together_and_fail_alone(module: str) -> None:
    path = f"others_{module}.together"
    groups = [group(*["64"] * 16) for _ in range(4)]
    assert scorer(path).score(groups) == [(2.0,) * 16] * 4
    live = scorer(path, on_error=OnError.drop, time_limit_s=3.0)
    assert live.score([group("0"), group("fail"), group("hang")]) == [(1.0,), (), ()]
    assert live.drain() == {"reward_timeouts": 1, "reward_errors": 1}
    assert scorer(f"others_{module}.scored").score([group("abc")]) == [(3.0,)]


@pytest.mark.parametrize("limit", [0.0, 60.0])
def test_several_workers_score_as_one_does(module: str, limit: float) -> None:
    groups = [group(*(f"{n:0{m + 1}}" for m in range(4)), uid=f"row/{n}") for n in range(6)]
    groups[3] = group("a", "exit", "b", "c")
    rows = []
    for workers in (1, 8, 0):
        path = f"others_{module}.slow"
        live = scorer(path, workers=workers, on_error=OnError.drop, time_limit_s=limit)
        rows.append((live.score(groups), live.drain()))
        assert live._workers is not None
        num = len(live._workers._workers)
        assert num == 1 if workers == 1 else 1 < num <= 8, "which is more where it waits"
    assert rows[0] == rows[1] == rows[2]
    assert rows[0][0][3] == () and rows[0][1] == {"reward_timeouts": 0, "reward_errors": 1}
    assert [len(row) for row in rows[0][0]] == [4, 4, 4, 0, 4, 4]


def test_what_a_call_changes_in_its_arguments_reaches_no_other(module: str) -> None:
    path = f"others_{module}.spoiling"
    for workers in (1, 2):
        assert scorer(path, workers=workers).score([group("a", "b", "c")]) == [(1.0,) * 3]


def test_the_number_of_workers_changes_no_bit_of_a_run(
    module: str, make_config: MakeConfig, tmp_path: Path
) -> None:
    ends = []
    for number, rest in enumerate(
        (["reward.workers=1"], ["reward.workers=8", "mode.executor=thread"])
    ):
        config = make_config(
            *("task=arithmetic", "algo=rloo", "eval=none", "run.updates=2", "mode=async"),
            *("reward=function", f"reward.path=openrlhf_{module}.reward_len", *rest),
            f"output.dir={tmp_path}/{number}",
        )
        folder = lifecycle.train(config, Console(quiet=True), {**FACTS, "resolved": plain(config)})
        ends.append(outcome(folder))
    assert ends[0] == ends[1]
    assert all(math.isfinite(row["reward/mean"]) for row in ends[0][0])
