from __future__ import annotations

import itertools
import sys

import pytest
import rich.console

from rlhf_lab.runs.live.display import Display
from rlhf_lab.runs.live.progress import Activity
from rlhf_lab.runs.trackers import console as console_module
from rlhf_lab.runs.trackers.console import Console
from tests.support.terminal import screen_rows


class FakeClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def plain(clock: FakeClock) -> tuple[Activity, Display]:
    """An activity and its display outside a terminal."""
    activity = Activity(clock)
    errors = rich.console.Console(stderr=True)
    return activity, Display(activity, rich.console.Console(), False, clock, phases=errors)


def test_outside_a_terminal_progress_is_a_few_plain_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = FakeClock()
    bar, display = plain(clock)
    bar.begin("sft", 400)
    for step in range(400):
        clock.now += 1.0
        bar.advance(1, loss=2.0 - step / 400)
        display.tick()
    display.close_stage()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "sft: 5/400, 5s elapsed, ETA 6m35s  loss 1.99"
    assert lines[-1] == "sft: 400/400, 6m40s elapsed  loss 1"
    printed = [int(line.split("/")[0].removeprefix("sft: ")) for line in lines]
    gaps = [later - earlier for earlier, later in itertools.pairwise(printed[:-1])]
    assert min(gaps) == 5 and max(gaps) == 20  # seconds: 5% of those that passed


def test_a_quick_stage_is_one_line_and_a_slow_one_a_line_for_each_part(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = FakeClock()
    with Console(quiet=False, is_terminal=False, clock=clock).stage("quick", total=400) as quick:
        for _ in range(400):
            quick.advance(1)
    assert capsys.readouterr().out.splitlines() == ["quick: 400/400, 0s elapsed"]
    bar, display = plain(clock)
    bar.begin("slow", 4)
    for _ in range(4):
        clock.now += 1000.0
        bar.advance(1, reward=0.5, lag=1)
        display.tick()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[1] == "slow: 2/4, 33m20s elapsed, ETA 33m20s  reward 0.5  lag 1"
    assert lines[3].startswith("slow: 4/4, 1h06m elapsed  ")


def test_a_stage_without_progress_is_not_silent_for_minutes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = FakeClock()
    activity, display = plain(clock)
    activity.begin("label", 2)
    moments = moments_of_lines(display, clock, capsys, 7200)
    assert moments[:3] == [5.0, 10.0, 15.0]
    waits = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert max(waits) == 60.0 and len(moments) < 200


def moments_of_lines(
    display: Display, clock: FakeClock, capsys: pytest.CaptureFixture[str], seconds: int
) -> list[float]:
    """When a display prints lines, over so many seconds from now on."""
    moments = []
    for _ in range(seconds):
        clock.now += 1.0
        display.tick()
        if "".join(capsys.readouterr()):
            moments.append(clock.now)
    return moments


def test_every_phase_has_a_line_after_five_seconds_however_old_the_command_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = FakeClock()
    activity, display = plain(clock)
    activity.begin("train", 2)
    moments_of_lines(display, clock, capsys, 7200)
    activity.end()
    with activity.within("saving the policy"):
        assert moments_of_lines(display, clock, capsys, 12) == [7205.0, 7210.0]
        with activity.within("a quick part"):
            assert not moments_of_lines(display, clock, capsys, 4)


def test_lines_of_phases_are_no_part_of_what_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = FakeClock()
    activity, display = plain(clock)
    with activity.within("reading the runs"):
        clock.now = 6.0
        display.print_line()
    activity.begin("sft", 2)
    display.print_line()
    shown = capsys.readouterr()
    assert shown.err == "reading the runs, 6s elapsed\n"
    assert shown.out == "sft: 0/2, 0s elapsed\n"


def test_a_stage_within_a_phase_leaves_the_phase_as_it_was() -> None:
    console = Console(quiet=True)
    seen = []
    with console.phase("preparing"):
        with console.stage("sft", total=1) as bar:
            assert isinstance(bar, Activity)
            with console.phase("loading"):
                seen.append((bar.progress().stage, bar.progress().phase))
            seen.append((bar.progress().stage, bar.progress().phase))
        seen.append((bar.progress().stage, bar.progress().phase))
    seen.append((bar.progress().stage, bar.progress().phase))
    assert seen == [("sft", "loading"), ("sft", ""), ("", "preparing"), ("", "")]


def test_on_a_terminal_a_phase_disappears_and_what_is_printed_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with Console(quiet=False, is_terminal=True).phase("loading"):
        sys.stdout.write("a line of another library\n")
    rows = screen_rows(capsys.readouterr().out)
    assert [row for row in rows if row] == ["a line of another library"]


def test_a_stage_that_fails_passes_the_error_on(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(quiet=False, is_terminal=False)
    with pytest.raises(RuntimeError, match="boom"), console.stage("sft", total=2) as bar:
        bar.advance(1)
        raise RuntimeError("boom")
    assert capsys.readouterr().out == ""


def test_on_a_terminal_there_is_a_bar_with_counts_and_numbers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    console = Console(quiet=False, is_terminal=True)
    with console.stage("train [async]", total=2) as bar:
        console.print("above [the] bar")
        for _ in range(2):
            bar.advance(1, reward=0.5, wait=0.25)
    shown = capsys.readouterr().out
    for text in ("train [async]", "2/2", "reward 0.5  wait 0.25", "above [the] bar\n"):
        assert text in shown


@pytest.mark.parametrize("is_terminal", [True, False])
def test_quiet_says_nothing(is_terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(quiet=True, is_terminal=is_terminal)
    with console.stage("sft", total=1) as bar:
        bar.advance(1, loss=1.0)
    console.print("text")
    console.table("title", ["a"], [["b"]])
    assert capsys.readouterr().out == ""


def test_plain_tables_are_aligned_whole_and_a_line_per_row(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [["[x]\n  y", "1"], ["z" * 200, "22"]]
    Console(quiet=False, is_terminal=False).table("Title", ["text", "n"], rows)
    title, head, first, second = capsys.readouterr().out.splitlines()
    assert title == "Title"
    assert head == "text" + " " * 198 + "n"
    assert first.split() == ["[x]", "y", "1"]
    assert second == "z" * 200 + "  22"


def test_terminal_tables_wrap_prose_and_lose_nothing_of_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    Console(quiet=False, is_terminal=True).table("Title", ["text", "n"], [["[z] " * 50, "22"]])
    assert capsys.readouterr().out.count("z") == 50


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59.6, "1m00s"), (185, "3m05s"), (7620, "2h07m")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert console_module.seconds_text(seconds) == text
