"""Code that is not the lab's cannot end a run quietly, wherever it runs."""

from __future__ import annotations

import ast
import json
import os
import runpy
import signal
import sys
import sysconfig
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest

import rlhf_lab
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.rewards.function import FunctionReward
from rlhf_lab.rewards.limited import OnError, SampleScorer
from rlhf_lab.rewards.worker_child import EachSample
from rlhf_lab.runs import forkserver
from rlhf_lab.runs.child import RemoteTraceback
from rlhf_lab.runs.foreign import ForeignFailure, copied, own_frames, see_working_folder
from rlhf_lab.runs.manifest import error_of
from rlhf_lab.runs.signals import listening
from rlhf_lab.runs.summaries import list_runs
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import StopRequested, UserError
from rlhf_lab.types.samples import Example
from tests.conftest import Finished, MakeConfig
from tests.support.doors import door
from tests.support.examples import FACTS
from tests.support.misbehaving import ALLOWED, ARGUMENTS, CHANGING, FAILING
from tests.support.places import PLACES, behave, groups
from tests.support.survival import exact_rows, finish, outcome, start


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("place", PLACES)
def test_whatever_a_function_does_is_a_failure_with_its_name_or_harmless(
    tmp_path: Path, place: str
) -> None:
    """All in one process, which is as it was after each, and lives."""
    harmless = ("2 and 2", *ALLOWED, *ARGUMENTS, *CHANGING)
    # Those that end a worker first, before it has imported torch.
    names = ["2 and 2", *FAILING, *ALLOWED, *ARGUMENTS, *CHANGING]
    report = tmp_path / "report"
    process = forkserver.start(behave, (place, names, str(report)))
    process.join()
    assert report.exists(), f"the process ended with exit code {process.exitcode}"
    found = json.loads(report.read_text())
    assert [name for name in names if not found[name][2]] == [], "is as it was"
    failed = {
        name
        for name, (kind, text, _) in found.items()
        if kind == "ForeignFailure"
        and text.startswith("row/7: tests.support.misbehaving.by_name ")
        and text.endswith(f"on the answer {name!r}")
    }
    assert failed == {*FAILING}
    assert found.keys() - failed == {*harmless}
    assert all(found[name][0] == "score" for name in harmless)


def wait_for_ever(example: Example, text: str, finished: bool) -> float:
    """A rule, which is sent to a worker by its name."""
    threading.Event().wait(600.0 if text == "for ever" else 0.0)
    return 1.0


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


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, StopRequested)]
)
def test_a_signal_during_a_call_is_the_runs_and_ends_the_worker(
    number: int, expected: type[BaseException]
) -> None:
    live = SampleScorer(EachSample(wait_for_ever), 0.0, OnError.drop, workers=1)
    live.score(groups("a"))
    (worker,) = live._workers._workers  # type: ignore[union-attr]
    somebody = threading.Timer(0.2, os.kill, args=(os.getpid(), number))
    with listening() as stop, pytest.raises(expected):
        somebody.start()
        live.score(groups("for ever"))
    assert stop.is_requested and worker.child.exit_code is not None


def test_in_a_round_only_the_second_ctrl_c_ends_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    with listening() as stop, stop.deferred():
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_requested and stop.is_interrupt
        assert "Ctrl-C again ends at once" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        with stop.shielded():
            os.kill(os.getpid(), signal.SIGINT)


def test_where_ctrl_c_is_ignored_it_stays_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with listening():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_arguments_are_copied_as_far_as_they_can_be_changed() -> None:
    leaf = object()
    value = {"a": [1, (2, {3}), leaf], "b": {"c": bytearray(b"d")}}
    copy = copied(value)
    assert copy == value and copy["a"][2] is leaf
    copy["a"][1][1].add(4)
    copy["b"]["c"].extend(b"e")
    copy["a"].append(1)
    assert value == {"a": [1, (2, {3}), leaf], "b": {"c": bytearray(b"d")}}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("import sys; sys.exit(0)", r"called sys\.exit\(0\)"),
        ("import os; os._exit(0)", r"ended its process \(exit code 0\)"),
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
        FunctionReward(path=f"{name}.reward").require_usable("reward")
    sys.modules.pop(name, None)


# --- whole runs ---------------------------------------------------------------------------------

RUN = (
    "task=arithmetic",
    "reward=function",
    "reward.path=tests.support.lively.lively_unless_asked",
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
        ("inline", "exit(0) of C", "ended its process (exit code 0)"),
        ("thread", "sys.exit(0)", "called sys.exit(0)"),
        ("generator", "a segmentation fault", "ended its process (killed by SIGSEGV)"),
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
    assert f"tests.support.lively.lively_unless_asked {deed}" in error_of(run.manifest)
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
    assert "tests.support.lively.lively_unless_asked ended its process (exit code 0)" in said
    assert f"`rlhf-lab resume {folder}` continues it" in said and "Traceback" not in said
    asked.unlink()
    code, said = door(tmp_path / "second", "resume", str(folder)).ended()
    assert code == 0, said


@pytest.mark.usefixtures("processes")
def test_a_judge_that_ends_the_process_loses_no_training(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    judge = ("reward@judge=function", "judge.path=tests.support.lively.lively_unless_asked")
    options = (*RUN, *judge, "+judge.arguments.file=misjudge", "eval.snapshots=1", "eval.prompts=4")
    folder, whole = tmp_path / "run", tmp_path / "whole"
    config = make_config(*options, f"output.dir={folder}", "output.resume=true")
    asked = ask(tmp_path, "os._exit(0)", 1, "misjudge")
    with pytest.raises(ForeignFailure, match=r"lively_unless_asked ended its process"):
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


def test_global_random_numbers_and_what_is_changed_decide_nothing_in_a_run(
    finished: Finished,
) -> None:
    path = "reward.path=tests.support.lively.{}"
    own = [text for text in RUN if not text.startswith(("reward.path", "+reward.arguments"))]
    one, other = (finished(*own, path.format(name)) for name in ("lively", "drawing"))
    assert one == other


def test_modules_of_the_working_folder_are_found_behind_pythons_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = sysconfig.get_paths()
    monkeypatch.chdir(tmp_path)
    for before, place in (
        (["/own", paths["stdlib"], paths["purelib"], "/last"], 2),
        (["/own", paths["stdlib"]], 2),
    ):
        monkeypatch.setattr(sys, "path", before[:])
        see_working_folder()
        see_working_folder()
        assert sys.path == [*before[:place], str(tmp_path), *before[place:]]


def test_programs_are_started_without_the_working_folder_in_their_path() -> None:
    """`python -c` and `python -m` look for modules there first, where a queue.py may be."""
    lists = [
        node
        for path in Path(rlhf_lab.__path__[0]).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.List | ast.Tuple)
        and [ast.unparse(one) for one in node.elts[:1]] == ["sys.executable"]
    ]
    assert len(lists) >= 4
    assert all(ast.literal_eval(node.elts[1]) == "-P" for node in lists)


def test_of_a_traceback_the_users_own_frames_are_shown(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import json\ndef f():\n    return json.loads('{')\n")
    inner = f'''Traceback (most recent call last):
  File "{rlhf_lab.__file__}", line 3, in serve
    answer()
  File "{tmp_path}/other.py", line 7, in reward
    return 1 / 0
           ~~^~~
ZeroDivisionError: division by zero
'''
    scope: dict[str, Any] = runpy.run_path(str(tmp_path / "own.py"))
    try:
        scope["f"]()
    except ValueError as error:
        error.__cause__ = RemoteTraceback(inner)
        text = "".join(traceback.format_exception(error))
    assert [line.strip() for line in own_frames(text) if str(tmp_path) in line] == [
        f'File "{tmp_path}/other.py", line 7, in reward',
        f'File "{tmp_path}/own.py", line 3, in f',
    ]
    assert "serve" not in "".join(own_frames(text)) and "decoder.py" not in "".join(
        own_frames(text)
    )
