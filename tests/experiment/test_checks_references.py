"""Runs on prompts of one's own, without references or without a judge: what they give, and what is
refused because it needs one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlhf_lab.cli.stages import make_stages
from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.data.report import inspect
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.experiment.run.evaluate import headline
from rlhf_lab.runs.folder import evals, metrics
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from tests.conftest import Finished, MakeConfig
from tests.support.examples import FACTS, call
from tests.support.judge_server import Asked, Response, said, serving
from tests.tasks.test_own_prompts import write

Options = tuple[str, ...]
LIVELY = "tests.support.lively"
RATED = "reward.template='{prompt}{answer}{reference}'"


@pytest.fixture
def rows(cache: Path) -> Path:
    """A path that is the same for all tests, so that its runs are trained once."""
    cache.mkdir(parents=True, exist_ok=True)
    data = [{"prompt": f"Add {n} and {n}.", "sum": f" {2 * n}", "n": n} for n in range(200)]
    path = cache / "own_prompts.jsonl"
    if not path.exists():
        write(path, data)
    return path


@pytest.fixture
def options(rows: Path) -> Options:
    """One command: a file, a function, a model of random weights."""
    return (
        *("task=prompts", f"task.path={rows}", "task.hidden=[n]"),
        *("task.max_prompt_tokens=32", "task.max_response_tokens=8", "model=nano_s"),
        *(
            "reward=function",
            f"reward.path={LIVELY}.rare_bytes",
            "run.updates=6",
            "run=nano",
        ),
    )


def test_prompts_and_a_function_are_a_whole_experiment(
    make_config: MakeConfig, options: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config(*options, "output.quiet=false")
    check(config)
    folder = lifecycle.train(config, Console(quiet=False, is_terminal=False), FACTS)
    (*_, last) = evals(folder)
    assert last["eval/no_win_rate"] == "nobody judges (judge=none)"
    assert not [name for name in last if name.startswith(("gold/", "gap/", "judge/"))]
    assert "eval/prompts_unjudged" not in last and "proxy/reference_mean" not in last
    assert 1 <= last["proxy/mean"] <= 9 and last["eval/split"] == "validation"
    out = capsys.readouterr().out
    assert f" -> {last['proxy/mean']:.3f}, KL to the start" in out
    assert "no win-rate: nobody judges (judge=none)" in out
    (text, *_) = read_rows(folder / "samples.jsonl")
    assert text["reference"] is None and text["gold"] is None
    assert len(metrics(folder)) == config.run.num_rounds
    assert "gold" not in (folder / "policy" / "README.md").read_text().split("## Config")[0]


def test_modes_that_generate_ahead_equal_their_simulation(
    finished: Finished, options: Options
) -> None:
    own = (*options, "mode=async", "mode.max_staleness=1")
    inline, thread = (finished(*own, f"mode.executor={kind}") for kind in ("inline", "thread"))
    assert inline == thread
    assert finished(*options) != inline, "samples of another version"


def test_references_bring_sft_and_a_judge_brings_win_rates(
    make_config: MakeConfig, options: Options
) -> None:
    judged = ("reward@judge=function", "judge.path=rlhf_lab.rewards.rules.length_within")
    for more, absent in (
        (("task.reference=sum",), {"gold/mean", "gold/win_rate"}),
        (("task.reference=sum", *judged), {"eval/no_win_rate"}),
        (judged, {"gold/win_rate", "proxy/win_rate", "gold/reference_mean"}),
    ):
        config = make_config(*options, *more, "run.updates=1")
        check(config)
        stages = [folder.parent.name for folder in Artifacts(config, Console(quiet=True)).folders()]
        assert stages == (["sft"] if config.task.has_references else ["initial"])
        last = evals(lifecycle.train(config, Console(quiet=True), FACTS))[-1]
        assert not absent & last.keys()
        assert ("proxy/win_rate" in last) == config.task.has_references
        assert ("gold/mean" in last) == (config.judge.name == "function")
        assert ("no win-rate" in headline(last, last)) == ("gold/win_rate" not in last)


def test_stages_of_a_task_without_references_are_its_random_weights(
    make_config: MakeConfig, options: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config(*options)
    make_stages(config, Console(quiet=False, is_terminal=False))
    assert "random weights of nano_s: " in capsys.readouterr().out
    with pytest.raises(UserError, match=r"SFT needs reference answers, and task=prompts has none"):
        Artifacts(config, Console(quiet=True)).sft(config.model)


def test_an_endpoint_rates_prompts_without_references(
    make_config: MakeConfig, options: Options
) -> None:
    def rating(asked: Asked) -> Response:
        assert "Add" in asked.parts["request"]
        return said(json.dumps({"rating": 1 + len(asked.parts.get("answer", "")) % 10}))

    with serving(rating) as running:
        own = ("reward=endpoint", "reward.model=m", "reward.key_variable=''", "run.updates=2")
        where = (f"reward.base_url={running.url}", "reward.style=rating")
        plain = [one for one in options if not one.startswith("reward.path")]
        config = make_config(*plain, *own, *where)
        check(config)
        last = evals(lifecycle.train(config, Console(quiet=True), FACTS))[-1]
    assert 1 <= last["proxy/mean"] <= 10 and "gold/mean" not in last


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["reward=none"], r"reward=none: a reward must score"),
        (["algo=dpo"], r"algo=dpo trains on pairs, and judge=none .*generator.path=<file of pairs"),
        (["reward=reward_model"], r"trains a proxy on pairs, and judge=none can order none"),
        (["reward=reward_model", "labels.path=p"], r"a proxy is centred .*reward=function"),
        (["reward=endpoint", "reward.model=m"], r"reward.style=pairwise .*reward.style=rating"),
        (
            [
                "reward=endpoint",
                "reward.style=rating",
                RATED,
            ],
            r"reward.template with task=prompts: it compares with a reference",
        ),
        (
            ["reward@judge=endpoint", "judge.model=m"],
            r"judge.style=pairwise .*pass judge.style=rating, or task.reference=",
        ),
        (["eval.validate=judge"], r"eval.validate=judge with judge=none: nobody judges"),
        (["task.path=''"], r"task.path='': pass task.path=<a .jsonl"),
        (["model.max_positions=16"], r"do not fit model.max_positions=16"),
    ],
)
def test_what_needs_a_reference_or_a_judge_is_refused(
    make_config: MakeConfig, options: Options, more: list[str], message: str
) -> None:
    own = [one for one in options if not one.startswith("reward.path")]
    config = make_config(*(own if more[0].startswith("reward=") else options), *more)
    with pytest.raises(UserError, match=message):
        check(config)


def test_a_judge_of_samples_labels_pairs_for_offline_algorithms(
    make_config: MakeConfig, options: Options
) -> None:
    judge = (
        "reward@judge=function",
        f"judge.path={LIVELY}.rare_bytes",
        "labels.pairs=8",
    )
    config = make_config(*options, "algo=dpo", *judge, "labels.held_out_pairs=4", "run.updates=1")
    check(config)
    assert read_rows(Path(Artifacts(config, Console(quiet=True)).pairs()))


def test_the_report_on_rows_needs_no_model_and_shows_what_it_reads(
    rows: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ("task=prompts", f"task.path={rows}", "task.hidden=[n]", "task.reference=sum")
    model = ("model=pretrained", f"model.path={rows.parent}/no_such_model")
    assert call("data", *own, *model, "data.examples=1", monkeypatch=monkeypatch) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for line in (
        "train sum 0 reference",
        "train n 0 hidden",
        "splits by hash (task.split_by=auto)",
        "the model reads of own_prompts.jsonl:1:",
        "| Add 0 and 0.",
        "reference: ' 0'",
        "hidden from it: {'n': 0}",
    ):
        assert line in lines
    assert any(line.startswith("lengths are in characters and words") for line in lines)
    assert any(line.startswith("train prompt words 4 4.0 4") for line in lines)
    assert any(line.startswith("test: left out") and "test_share=0.1" in line for line in lines)


def test_the_report_counts_the_tokens_of_a_model_that_is_there(
    config_of: MakeConfig, options: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    inspect(config_of(*options, "data.examples=1"), Console(quiet=False, is_terminal=False))
    out = capsys.readouterr().out
    assert "the model reads of own_prompts.jsonl:1 (12 tokens):\n  | Add 0 and 0.\n" in out
    assert "reference tokens" not in out and "prompt words" not in out


def test_a_complaint_names_the_place_of_the_part(
    config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    judge = ("reward@judge=endpoint", "judge.model=m")
    with pytest.raises(UserError, match=r"^judge.key_variable=.*pass judge.key_variable=''"):
        check(config_of(*judge))
    with pytest.raises(UserError, match=r"^judge.base_url=x: pass an address"):
        config_of(*judge, "judge.base_url=x")
    with pytest.raises(UserError, match=r"^proxy.hidden_size=10 .* proxy.num_heads=4"):
        config_of("proxy.hidden_size=10")
    term = ("reward=combined", "+reward@reward.terms.a=endpoint", "reward.terms.a.base_url=x")
    with pytest.raises(UserError, match=r"^reward.terms.a.base_url=x"):
        config_of(*term)


def test_the_closing_lines_have_what_was_before(
    make_config: MakeConfig, options: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config(*options, "run.updates=1", "eval.snapshots=1")
    folder = lifecycle.train(config, Console(quiet=False), FACTS)
    first, last = evals(folder)
    shown = capsys.readouterr().out
    key = "gold/win_rate" if "gold/win_rate" in last else "proxy/mean"
    assert f"{first[key]:.3f} -> {last[key]:.3f}" in shown
    assert "before" in shown
