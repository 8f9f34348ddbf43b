"""Code that is not the lab's cannot end a run quietly, wherever it runs."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.experiment import lifecycle
from rlhf_lab.rewards.function import FunctionReward, require_function
from rlhf_lab.rewards.limited import OnError, SampleScorer
from rlhf_lab.rollout.failures import GeneratorFailure
from rlhf_lab.runs import forkserver
from rlhf_lab.runs.foreign import state
from rlhf_lab.runs.foreign.arguments import changed, copied
from rlhf_lab.runs.foreign.boundary import ForeignFailure, Unrestored, call, no_quiet_end
from rlhf_lab.runs.manifest import error_of
from rlhf_lab.runs.signals import listening
from rlhf_lab.runs.summaries import list_runs
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.runs.trackers.jsonl import JsonlFile
from rlhf_lab.types.errors import StopRequested, UserError
from rlhf_lab.types.samples import Example
from tests.conftest import Finished, MakeConfig
from tests.support.doors import door
from tests.support.examples import FACTS
from tests.support.misbehaving import ALL, ALLOWED, ARGUMENTS, CRASHES, FINAL, OF_MAIN
from tests.support.places import PLACES, behave, generator, groups, scored_by
from tests.support.survival import exact_rows, finish, outcome, start

# In a time limit's process the run's signals are ignored already, as they are in a generator, which
# may have no processes of its own.
NOT_AT = {"thread": OF_MAIN, "time limit": OF_MAIN, "generator": (*OF_MAIN, "a process")}


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("place", PLACES)
def test_whatever_a_function_does_is_a_failure_with_its_name(tmp_path: Path, place: str) -> None:
    """All in one process, which is as it was after each, and lives."""
    every = ("2 and 2", *ALLOWED, *ARGUMENTS, *ALL)
    names = [name for name in every if name not in NOT_AT.get(place, ())]
    names.sort(key=lambda name: name in FINAL)
    report = tmp_path / "report"
    process = forkserver.start(behave, (place, names, str(report)))
    process.join()
    assert report.exists(), f"the process ended with exit code {process.exitcode}"
    found = json.loads(report.read_text())
    assert [name for name in names if not found[name][2]] == [], "is not undone"
    failed = {
        name: [kind, text]
        for name, (kind, text, _) in found.items()
        if kind in ("ForeignFailure", "Unrestored")
        and text.startswith("row/7: tests.support.misbehaving.by_name ")
        and text.endswith(f"on the answer {name!r}")
    }
    assert found.keys() - failed.keys() == {"2 and 2", *ALLOWED} & found.keys()
    if place == "inline":
        assert [name for name in failed if failed[name][0] == "Unrestored"] == [*FINAL]


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("name", CRASHES)
def test_a_crash_in_a_generator_is_an_error_that_names_what_crashed(name: str) -> None:
    process = generator()
    try:
        with pytest.raises(GeneratorFailure, match=r"generator 0 .* ended: ") as caught:
            scored_by(process, name)
    finally:
        process.close()
    assert ("in by_name" in str(caught.value)) == (name == "a segmentation fault")


def test_what_cannot_be_undone_ends_the_run_even_where_failures_are_dropped() -> None:
    def judge(example: Example, text: str, finished: bool) -> float:
        raise Unrestored("closed everything")

    with pytest.raises(Unrestored, match="closed everything"):
        SampleScorer(judge, 0.0, OnError.drop).score(groups("a"))


def test_a_file_of_the_run_is_not_to_be_closed(tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "rows.jsonl")
    descriptor = file._file.fileno()
    with pytest.raises(Unrestored, match="reward closed or replaced file descriptors"):
        call("reward", os.close, descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.close()
    with JsonlFile(tmp_path / "others.jsonl")._file as other:
        state.release(other.fileno())
        call("reward", os.close, os.dup(other.fileno()))


@pytest.fixture
def default_interrupts() -> Iterator[None]:
    """Those of a terminal: workers of pytest-xdist ignore them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def sent(number: int, catches: bool) -> float:
    """A function during which somebody else sends a signal."""
    somebody = threading.Thread(target=os.kill, args=(os.getpid(), number))
    try:
        somebody.start()
        somebody.join()
        threading.Event().wait(60.0)
    except BaseException:
        if not catches:
            raise
    return 1.0


@pytest.mark.parametrize("catches", [False, True])
def test_ctrl_c_during_a_call_is_ctrl_c_even_if_the_function_catches_it(
    default_interrupts: None, catches: bool
) -> None:
    with pytest.raises(KeyboardInterrupt):
        call("reward", sent, signal.SIGINT, catches)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_scheduler_during_a_call_stops_the_run() -> None:
    with listening() as stop, pytest.raises(StopRequested):
        call("reward", sent, signal.SIGTERM, False)
    assert stop.is_requested


@pytest.mark.parametrize("catches", [False, True])
def test_ctrl_c_in_a_run_is_ctrl_c_even_if_the_function_catches_it(
    default_interrupts: None, catches: bool
) -> None:
    with listening() as stop, pytest.raises(KeyboardInterrupt):
        call("reward", sent, signal.SIGINT, catches)
    assert stop.is_interrupt


def test_in_a_round_only_the_second_ctrl_c_ends_the_run(
    default_interrupts: None, capfd: pytest.CaptureFixture[str]
) -> None:
    with listening() as stop, stop.deferred():
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_requested and stop.is_interrupt
        assert "Ctrl-C again ends at once" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        with stop.shielded():
            os.kill(os.getpid(), signal.SIGINT)


def test_where_ctrl_c_is_ignored_it_stays_so(default_interrupts: None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with listening():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_arguments_are_copied_as_far_as_they_can_be_changed() -> None:
    leaf = object()
    value = {"a": [1, (2, {3}), leaf], "b": {"c": bytearray(b"d")}, "n": float("nan")}
    copy = copied(value)
    assert not changed(value, copy)
    assert copy["a"][2] is leaf
    changes: list[Callable[[Any], object]] = [
        lambda v: v["a"].append(1),
        lambda v: v["a"][1][1].add(4),
        lambda v: v["b"]["c"].extend(b"e"),
        lambda v: v.update(a=1),
        lambda v: v.pop("n"),
        lambda v: v["b"].update(n=1),
        lambda v: v["a"].sort(key=id, reverse=True) or v["a"].reverse() or v["a"].pop(),
    ]
    for change in changes:
        copy = copied(value)
        change(copy)
        assert changed(value, copy)
    assert value["a"] == [1, (2, {3}), leaf]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("import sys; sys.exit(0)", r"called sys\.exit\(0\)"),
        ("import os; os._exit(0)", r"called os\._exit"),
        ("import os; os.chdir('/')", "changed the working folder"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_module_that_does_so_when_it_is_loaded_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, complaint: str
) -> None:
    name = f"loaded_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(f"{text}\ndef reward(*_, **__): return 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=rf"reward\.path={name}.*{complaint}"):
        require_function("reward", FunctionReward(path=f"{name}.reward"))
    sys.modules.pop(name, None)


def test_whoever_else_exits_in_the_middle_of_a_command_has_failed_too() -> None:
    with pytest.raises(RuntimeError, match=r"sys\.exit\(0\)"), no_quiet_end():
        sys.exit(0)


# --- whole runs ---------------------------------------------------------------------------------

RUN = (
    "task=arithmetic",
    "reward=function",
    "reward.path=tests.support.misbehaving.lively_unless_asked",
    "+reward.arguments.file=misbehave",
    "run.updates=8",
    "run.updates_per_round=2",
    "generator.chunk_groups=3",
    "eval.snapshots=0",
    "sft.steps=4",
    "checkpoint=minutes",
)
MODES = {
    "inline": ("mode=sync",),
    "thread": ("mode=async", "mode.executor=thread"),
    "generator": ("mode=async", "mode.executor=process"),
}


def ask(folder: Path, name: str, calls: int, file: str = "misbehave") -> Path:
    """Ask the reward of a run to misbehave after so many calls."""
    path = folder / file
    path.write_text(json.dumps([name, calls]))
    return path


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("place", "name", "deed"),
    [
        ("inline", "a fork", "forked"),
        ("thread", "sys.exit(0)", "called sys.exit(0)"),
        ("generator", "the working folder", "changed the working folder"),
    ],
)
def test_a_run_fails_with_its_state_saved_and_goes_on_with_the_function_corrected(
    make_config: MakeConfig,
    finished: Finished,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    name: str,
    deed: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = finished(*RUN, *MODES[place])
    folder = tmp_path / "run"
    config = make_config(*RUN, *MODES[place], f"output.dir={folder}", "output.resume=true")
    asked = ask(tmp_path, name, 40)
    process = start(config)
    process.join()
    assert process.exitcode == 1
    (run,) = list_runs(tmp_path / "run")
    assert run.state == "failed"
    assert f"tests.support.misbehaving.lively_unless_asked {deed}" in error_of(run.manifest)
    (checkpoint,) = (folder / "checkpoints").iterdir()
    assert 0 < int(checkpoint.name) < 4
    asked.unlink()
    finish(config)
    assert outcome(folder) == whole


@pytest.mark.usefixtures("processes")
def test_the_command_ends_with_exit_code_1_and_resume_goes_on(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    options = ("debug=tiny", f"output.cache={cache}", f"output.dir={folder}", *RUN)
    asked = ask(tmp_path, "os._exit(0)", 40)
    code, said = door(tmp_path / "first", "train", *options).ended()
    assert code == 1
    assert "tests.support.misbehaving.lively_unless_asked called os._exit: return a value" in said
    assert "`rlhf-lab resume` goes on" in said
    asked.unlink()
    code, said = door(tmp_path / "second", "resume", str(folder)).ended()
    assert code == 0, said


@pytest.mark.usefixtures("processes")
def test_a_run_that_crashed_is_shown_as_died_and_goes_on(
    make_config: MakeConfig, finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = finished(*RUN, *MODES["inline"])
    folder = tmp_path / "run"
    config = make_config(*RUN, f"output.dir={folder}", "output.resume=true")
    asked = ask(tmp_path, "exit(0) of C", 40)
    start(config).join()
    (run,) = list_runs(folder)
    assert (run.manifest["state"], run.state) == ("running", "died")
    asked.unlink()
    finish(config)
    assert outcome(folder) == whole


@pytest.mark.usefixtures("processes")
def test_a_judge_that_ends_the_process_loses_no_training(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    judge = ("reward@judge=function", "judge.path=tests.support.misbehaving.lively_unless_asked")
    options = (*RUN, *judge, "+judge.arguments.file=misjudge", "eval.snapshots=1", "eval.prompts=4")
    folder, whole = tmp_path / "run", tmp_path / "whole"
    config = make_config(*options, f"output.dir={folder}", "output.resume=true")
    asked = ask(tmp_path, "os._exit(0)", 1, "misjudge")
    with pytest.raises(ForeignFailure, match=r"lively_unless_asked called os\._exit"):
        lifecycle.train(config, Console(quiet=True), FACTS)
    (run,) = list_runs(folder)
    assert (run.state, run.rounds) == ("failed", 4)
    rows, digest = outcome(folder)
    asked.unlink()
    monkeypatch.setattr(lifecycle, "train_policy", None)  # nothing is trained again
    lifecycle.train(config, Console(quiet=True), FACTS)
    assert outcome(folder) == (rows, digest)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    lifecycle.train(make_config(*options, f"output.dir={whole}"), Console(quiet=True), FACTS)
    assert exact_rows(folder / "evals.jsonl") == exact_rows(whole / "evals.jsonl")


def test_global_random_numbers_decide_nothing_in_a_run(finished: Finished) -> None:
    path = "reward.path=tests.support.misbehaving.{}"
    own = [text for text in RUN if not text.startswith(("reward.path", "+reward.arguments"))]
    one, other = (finished(*own, path.format(name)) for name in ("still", "drawing"))
    assert one == other
