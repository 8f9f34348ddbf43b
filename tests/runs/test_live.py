from __future__ import annotations

import io
import itertools
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import rich.console

from rlhf_lab.runs.jsonl import write_rows
from rlhf_lab.runs.live import lines
from rlhf_lab.runs.live.display import RunDisplay
from rlhf_lab.runs.live.files import RowFile, Scores
from rlhf_lab.runs.live.lines import run_line
from rlhf_lab.runs.live.panels import render
from rlhf_lab.runs.live.progress import PROGRESS, Activity, Progress, read_progress, write_progress
from rlhf_lab.runs.live.state import LiveState, RunFollower, view_of
from rlhf_lab.runs.trackers.console import Console
from tests.support.live_runs import round_row, write_rounds, write_run
from tests.support.terminal import screen_rows

pytestmark = pytest.mark.usefixtures("costly")

RUN_OF_0_1 = Path(__file__).parents[1] / "data" / "run_of_0_1"


class FakeClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def at(folder: Path, seconds_after: float) -> LiveState:
    """The state so many seconds after the last row was written."""
    moment = (folder / "metrics.jsonl").stat().st_mtime + seconds_after
    return view_of(folder, now=lambda: moment)


# --- the state ----------------------------------------------------------------------------------


def test_the_state_has_hand_worked_numbers(tmp_path: Path) -> None:
    state = at(write_run(tmp_path / "run", rounds=12), 0.0)
    assert (state.name, state.state, state.rounds_done, state.rounds) == ("run", "running", 12, 20)
    # Of the last ten of twelve rounds: 2 to 11.
    assert state.window == 10
    assert (state.reward, state.reward_last) == (6.5, 11.0)
    assert (state.kl, state.length, state.entropy, state.grad_norm) == (0.5, 20.0, 1.5, 0.25)
    assert state.trainer_waiting == pytest.approx(1 / 4)
    assert state.generator_waiting == pytest.approx(6 / (2 * 4))
    assert state.generated_per_second == pytest.approx(100.0)
    assert state.trained_per_second == pytest.approx(200.0)
    assert state.lag_rounds == {1: 80}
    assert state.lag_updates == {2: 60, 3: 20}
    assert state.facts == {
        **{"task": "arithmetic", "algo": "grpo", "mode": "async", "model": "nano_s"},
        **{"N": "2", "S": "1", "seed": "3"},
    }


def test_the_eta_counts_down_between_rounds_and_waits_in_a_slow_one(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", rounds=12)
    # 8 rounds are left, 4 seconds each.
    assert at(folder, 0.0).eta == pytest.approx(32.0)
    assert at(folder, 3.0).eta == pytest.approx(29.0)
    assert at(folder, 60.0).eta == pytest.approx(28.0)
    assert at(write_run(tmp_path / "all", rounds=20), 0.0).eta is None
    assert at(write_run(tmp_path / "ended", rounds=12, state="stopped"), 0.0).eta is None


def test_the_first_rounds_are_their_own_window(tmp_path: Path) -> None:
    state = at(write_run(tmp_path / "run", rounds=2), 0.0)
    assert (state.window, state.reward) == (2, 0.5)
    assert state.trainer_waiting == pytest.approx(1 / 4)
    assert state.eta == pytest.approx(18 * 4.0)


def test_without_generators_beside_it_the_trainers_time_is_shown(tmp_path: Path) -> None:
    settings = {"num_generators": 0}
    state = at(write_run(tmp_path / "run", rounds=12, settings=settings), 0.0)
    assert state.trainer_waiting is None and state.generator_waiting is None
    assert state.generating == pytest.approx((1.5 + 0.5) / 4)
    assert state.training == pytest.approx(3 / 4)
    assert "generating 50% training 75%" in run_line(state)


def test_a_run_of_an_earlier_version_can_be_seen() -> None:
    state = view_of(RUN_OF_0_1)
    assert (state.state, state.rounds_done, state.rounds) == ("finished", 4, 4)
    assert state.generators == 1 and state.sample is not None
    assert state.length == pytest.approx((4.5 + 5.375 + sum(lengths()[1:3])) / 4)
    run_line(state)


def lengths() -> list[float]:
    text = (RUN_OF_0_1 / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line)["sample/length"] for line in text.splitlines()]


def test_what_happened_is_named(tmp_path: Path) -> None:
    again = {"after": "stopped", "at": "2026-01-02T10:30:00+00:00"}
    folder = write_run(tmp_path / "run", rounds=3, resumed=[again])
    rows = [
        round_row(0, **{"dropped/groups": 2}),
        round_row(1, **{"dropped/groups": 1}),
        round_row(2, **{"sample/groups_unscored": 4, "timing/generator_restarts": 1}),
    ]
    write_rounds(folder, *rows)
    assert view_of(folder).events == (
        "resumed 2026-01-02 10:30 UTC, after it was stopped",
        "3 groups dropped as too old, last in round 1",
        "4 groups without a reward, last in round 2",
        "restarts of generators: 1",
    )


def test_the_newest_sample_is_that_of_the_rounds_or_else_of_the_evaluation(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", rounds=1)
    follower = RunFollower(folder)
    assert follower.view().sample is None
    row = {"prompt": "1+1=", "sample": "3", "gold": 0.0}
    (folder / "samples.jsonl").write_text(json.dumps(row) + "\n")
    sample = follower.view().sample
    assert sample is not None
    assert (sample.prompt, sample.response, sample.score) == ("1+1=", "3", 0.0)
    rows = [{"prompt": "2+2=", "response": text, "reward": 1.0, "version": 7} for text in "45"]
    text = "".join(json.dumps(one) + "\n" for one in rows)
    (folder / "rollouts.jsonl").write_text(text + '{"prompt": "3+')
    sample = follower.view().sample
    assert sample is not None
    assert (sample.response, sample.score, sample.origin) == ("5", 1.0, "version 7")


# --- files that are being written, or are damaged ---------------------------------------------


def test_the_newest_evaluation_is_shown_and_a_damaged_file_leaves_it(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", rounds=4)
    follower = RunFollower(folder)
    assert follower.view().scores == Scores()
    write_rows(folder / "evals.jsonl", [{"version": 0, "proxy/mean": 1.5}])
    assert follower.view().scores == Scores("proxy", (0,), (1.5,))
    rows = [{"version": version, "gold/win_rate": version / 8} for version in (0, 2, 4)]
    write_rows(folder / "evals.jsonl", rows)
    assert follower.view().scores == Scores("win-rate", (0, 2, 4), (0.0, 0.25, 0.5))
    (folder / "evals.jsonl").write_text('{"version": "x"}\n')
    state = follower.view()
    assert state.scores == Scores("win-rate", (0, 2, 4), (0.0, 0.25, 0.5))
    assert "win-rate 0.5 (version 4)" in run_line(state)
    assert any("0.5 (version 4)" in line for line in drawn(folder, 120, follower=follower))


def test_rows_are_read_as_they_are_written_each_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = RowFile(tmp_path)
    assert file.read() == []
    line = json.dumps(round_row(0)) + "\n"
    path.write_text(line[:40])
    assert file.read() == []
    path.write_text(line + json.dumps(round_row(1))[:-3])
    assert [row.step for row in file.read()] == [0]
    write_rounds(tmp_path, round_row(0), round_row(1), round_row(2))
    assert [row.step for row in file.read()] == [0, 1, 2]
    assert file.num_damaged == 0


def test_rounds_that_a_resumed_run_does_again_replace_the_first_ones(tmp_path: Path) -> None:
    file = RowFile(tmp_path)
    write_rounds(tmp_path, *(round_row(step) for step in range(6)))
    assert len(file.read()) == 6
    rows = [round_row(0), round_row(1), round_row(2, **{"reward/mean": -1.0, "note": "x" * 40})]
    write_rounds(tmp_path, *rows)
    assert [row.step for row in file.read()] == [0, 1, 2]
    # It was cut back and is longer than before by now.
    rows = [round_row(step, **{"reward/mean": -1.0}) for step in range(9)]
    write_rounds(tmp_path, *rows)
    assert [row.get("reward") for row in file.read()] == [-1.0] * 9


def test_of_a_very_long_file_the_end_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "run", rounds=40, total=100)
    monkeypatch.setattr("rlhf_lab.runs.live.files.MOST_BYTES", 5000)
    follower = RunFollower(folder)
    steps = [row.step for row in follower.rows]
    assert steps == list(range(steps[0], 40)) and 0 < steps[0] < 38
    state = follower.view()
    assert state.rounds_done == 40
    assert state.trainer_waiting == pytest.approx(1 / 4)


@pytest.mark.parametrize("line", ["", "{", "[]", "7", '{"step": "x"}', '{"step": -1}', "\0", "{}"])
def test_a_damaged_line_is_left_out_and_counted(tmp_path: Path, line: str) -> None:
    folder = write_run(tmp_path / "run", rounds=2)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(line + "\n" + json.dumps(round_row(2)) + "\n")
    state = view_of(folder)
    assert state.rounds_done == 3
    assert state.events == ("unreadable lines of metrics.jsonl, left out: 1",)


@pytest.mark.parametrize(
    "changes",
    [
        {"reward/mean": None},
        {"reward/mean": 10**400},
        {"seconds/wall": "soon"},
        {"lag/updates_histogram": [1, 2]},
        {"lag/updates_histogram": {"x": 1, "2": "y", "3": -1}},
    ],
)
def test_values_of_another_type_are_unknown(tmp_path: Path, changes: dict[str, object]) -> None:
    folder = write_run(tmp_path / "run")
    write_rounds(folder, round_row(0) | changes)
    state = view_of(folder)
    assert state.rounds_done == 1
    assert drawn(folder, 80)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"state": "running"}'])
def test_a_damaged_manifest_is_a_state_too(tmp_path: Path, text: str) -> None:
    folder = write_run(tmp_path / "run", rounds=1)
    (folder / "manifest.json").write_text(text)
    state = view_of(folder)
    assert state.state == "unreadable" and state.problem
    assert drawn(folder, 80)
    (folder / "manifest.json").unlink()
    assert view_of(folder).state == "unreadable"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"stage": 7}', '{"done": -1}'])
def test_damaged_progress_is_none(tmp_path: Path, text: str) -> None:
    folder = write_run(tmp_path / "run", rounds=1)
    (folder / PROGRESS).write_text(text)
    assert read_progress(folder) is None
    assert view_of(folder).stage == ""


def test_progress_travels_through_its_file(tmp_path: Path) -> None:
    clock = FakeClock()
    activity = Activity(clock)
    activity.begin("sft nano_s", 400)
    clock.now = 10.0
    activity.advance(100, loss=1.5)
    activity.enter("update")
    activity.note("a line")
    clock.now = 12.0
    folder = write_run(tmp_path / "run")
    write_progress(folder, activity.progress())
    expected = Progress("sft nano_s", 100, 400, 12.0, {"loss": 1.5}, "update", 2.0, ("a line",))
    assert read_progress(folder) == expected
    state = view_of(folder)
    assert (state.stage, state.stage_done, state.stage_eta) == ("sft nano_s", 100, 36.0)
    line = "sft nano_s: 100/400, 12s elapsed, ETA 36s  loss 1.5  updating for 2s"
    assert run_line(state) == line
    assert state.events == ("a line",)


# --- texts --------------------------------------------------------------------------------------


def test_sparklines_are_worked_by_hand() -> None:
    assert lines.sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert lines.sparkline([0, 0, 7, 7], 2) == "▁█"
    assert lines.sparkline([3, 3], 8) == "▄▄"
    assert lines.sparkline([], 8) == ""
    assert lines.sparkline([0, 7], 8, lines.ASCII_BARS) == "_#"


def test_histograms_are_worked_by_hand() -> None:
    # The largest count is a full bar; a count that is not 0 can be seen.
    assert lines.histogram_text({4: 16, 5: 8, 7: 1}) == "4 █▅▁▂ 7"
    assert lines.histogram_text({1: 64}) == ""
    assert lines.histogram_text({}) == ""
    many = lines.histogram_text({lag: 1 for lag in range(32)})
    assert many == "0 " + "█" * 16 + " 31"


@pytest.mark.parametrize(
    ("value", "text"), [(873, "873"), (9999, "9999"), (12340, "12.3k"), (4.56e6, "4.56M")]
)
def test_counts_are_short(value: float, text: str) -> None:
    assert lines.count_text(value) == text


@pytest.mark.parametrize(("name", "bars"), [("utf-8", "▁"), ("ascii", "_"), (None, "_")])
def test_a_terminal_without_utf8_gets_other_bars(name: str | None, bars: str) -> None:
    assert lines.bars_for(name)[0] == bars


# --- panels -------------------------------------------------------------------------------------


def drawn(
    folder: Path, width: int, bars: str = lines.BARS, follower: RunFollower | None = None
) -> list[str]:
    screen = io.StringIO()
    follower = follower or RunFollower(folder)
    shown = render(follower.view(), follower.rows, width, bars)
    rich.console.Console(file=screen, width=width).print(shown)
    return screen.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_panels_fit_the_screen_and_fold_no_number(tmp_path: Path, width: int) -> None:
    folder = write_run(tmp_path / ("a-name-of-a-run-" * 10), rounds=12)
    write_progress(folder, Progress("train", 12, 20, 50.0, {}, "take", 14.0))
    row = {"prompt": "a long prompt " * 30, "sample": "line\nline " * 40, "gold": 0.25}
    (folder / "samples.jsonl").write_text(json.dumps(row) + "\n")
    lines_ = drawn(folder, width)
    assert max(map(len, lines_)) <= width
    text = "\n".join(lines_)
    for part in (
        *("round 12/20", "60%", "ETA", "waiting for rollouts 14s", "2 generators", "trainer"),
        *("100 tokens/s", "75% of 10 rounds", "25% of 10 rounds", "2.25 updates  2 █▄ 3"),
        *("1 rounds", "20 tokens", "6.5 (last 11)", "0.5 (last 0.5)", "1.5 nats/token", "0.25"),
    ):
        assert part in text
    # Two panels side by side where there is room.
    is_wide = any("generators" in line and "trainer" in line for line in lines_)
    assert is_wide == (width >= 80)


def test_panels_need_no_utf8(tmp_path: Path) -> None:
    text = "\n".join(drawn(write_run(tmp_path / "run", rounds=12), 80, lines.ASCII_BARS))
    assert "2 #= 3" in text


def test_before_the_first_round_there_is_a_headline_alone(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    text = "\n".join(drawn(folder, 80))
    assert "preparing" in text and "round 0/20" in text and "generators" not in text


def test_a_run_that_gives_no_sign_is_noticed(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", rounds=3)
    for path in folder.iterdir():
        os.utime(path, (1.0, 1.0))
    assert view_of(folder, now=lambda: 181.0).silent == 180.0


# --- lines --------------------------------------------------------------------------------------


def test_a_run_is_one_line(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", rounds=12)
    state = replace(at(folder, 0.0), stage="train", elapsed=55.0, phase="take", phase_seconds=14.0)
    assert run_line(state) == (
        "train: round 12/20, 55s elapsed, ETA 32s  reward 6.5  KL 0.5  lag 2.25 updates  "
        "waiting trainer 25% generator 75%  100 tokens/s  waiting for rollouts for 14s"
    )
    ended = replace(state, state="finished", eta=None)
    assert run_line(ended).startswith("finished: round 12/20, 55s elapsed  reward 6.5")


def test_lines_of_a_run_come_at_a_bounded_rate_and_never_minutes_apart(tmp_path: Path) -> None:
    clock = FakeClock()
    screen = io.StringIO()
    console = rich.console.Console(file=screen, width=200)
    activity = Activity(clock)
    folder = write_run(tmp_path / "run", rounds=12)
    display = RunDisplay(folder, activity, console, False, clock)
    activity.begin("train", 20)
    moments = []
    for second in range(1, 601):
        clock.now = float(second)
        # Rounds of a second, then one that takes for ever.
        if second <= 300:
            activity.advance()
        before = len(screen.getvalue())
        display.tick()
        if len(screen.getvalue()) > before:
            moments.append(second)
    assert moments[0] == 5
    waits = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert min(waits) >= 5 and max(waits) <= 60
    assert (folder / PROGRESS).exists()


@pytest.mark.parametrize("is_live", [True, False])
def test_a_stage_inside_a_run_is_shown_and_its_file_is_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_live: bool
) -> None:
    folder = write_run(tmp_path / "run", rounds=12)
    console = Console(quiet=False, is_terminal=is_live)
    with console.run(folder):
        with console.stage("sft", total=2) as bar:
            bar.enter("update")
            bar.advance(2, loss=1.0)
        console.print("a line")
    shown = capsys.readouterr().out
    assert "sft: 2/2, 0s elapsed  loss 1" in shown and "a line" in shown
    assert ("round 12/20" in shown) == is_live
    assert not (folder / PROGRESS).exists()


def test_panels_stand_below_whatever_is_printed_and_leave_no_rows_behind(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", rounds=12)
    screen = io.StringIO()
    console = rich.console.Console(file=screen, force_terminal=True, width=100, highlight=False)
    activity = Activity(FakeClock())
    display = RunDisplay(folder, activity, console, True, FakeClock())
    printed = [
        f"a line of {name} in round {n}" for n in range(3) for name in ("rich", "us", "tqdm")
    ]
    with display.showing():
        for line in printed:
            if "rich" in line:
                console.print(line)
            else:
                (sys.stdout if "us" in line else sys.stderr).write(f"{line}\n")
            activity.enter("saving the policy" if "tqdm" in line else "")
            display.tick()
    rows = screen_rows(screen.getvalue())
    assert [row for row in rows if row.startswith("a line")] == printed
    assert rows[: len(printed)] == printed
    assert sum("round 12/20" in row for row in rows) == 1
    assert sum("trainer" in row for row in rows) == 1


class Cell:
    """Outputs of a notebook's cell, as IPython publishes them."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, str]] = []

    def display(self, data: dict[str, str], raw: bool, display_id: bool) -> Cell:
        assert raw and display_id
        self.outputs.append(data)
        return self

    def update(self, data: dict[str, str], raw: bool) -> None:
        assert raw
        self.outputs[-1] = data


def test_in_a_notebook_the_panels_are_one_output_that_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell()
    monkeypatch.setitem(sys.modules, "IPython.display", cell)
    folder = write_run(tmp_path / "run", rounds=12)
    screen = io.StringIO()
    console = rich.console.Console(file=screen, force_jupyter=True, width=100)
    activity = Activity(FakeClock())
    display = RunDisplay(folder, activity, console, True, FakeClock())
    with display.showing():
        activity.enter("loading the policy")
        display.tick()
        assert "loading the policy" in cell.outputs[0]["text/plain"]
        activity.enter("")
    (shown,) = cell.outputs
    assert "round 12/20" in shown["text/plain"] and "loading" not in shown["text/plain"]
    assert shown["text/html"].startswith("<pre") and "round 12/20" in shown["text/html"]
    assert screen.getvalue() == ""


def test_a_quiet_run_can_still_be_watched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path / "run", rounds=12)
    display = RunDisplay(folder, Activity(FakeClock()), None, True, FakeClock())
    with display.showing():
        display.tick()
        assert read_progress(folder) == Progress()
    assert capsys.readouterr().out == ""


def test_a_disk_that_is_full_costs_the_progress_file_alone(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", rounds=12)
    screen = io.StringIO()
    display = RunDisplay(
        folder, Activity(FakeClock()), rich.console.Console(file=screen), False, FakeClock()
    )
    folder.rename(tmp_path / "moved")
    display.tick()
    display.tick()
    assert screen.getvalue().count("cannot be written") == 1


def test_phases_have_names() -> None:
    assert lines.phase_name("take", generators=2) == "waiting for rollouts"
    assert lines.phase_name("take", generators=0) == "generating"
    assert lines.phase_name("other") == "other"
