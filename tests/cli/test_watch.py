from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.cli.watch import WATCH, open_source
from rlhf_lab.cli.watch_server import MOST_POINTS, PAGE, PageServer, curves, server_of
from rlhf_lab.runs import forkserver
from rlhf_lab.runs.jsonl import JsonlFile, JsonlTracker
from rlhf_lab.runs.live.files import RowFile
from rlhf_lab.runs.live.progress import Progress, write_progress
from rlhf_lab.runs.run_directory import RunDirectory
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from tests.support import browser
from tests.support.live_runs import round_row, write_rounds, write_run

QUIET = Console(quiet=True)


def run(*arguments: object) -> int:
    return WATCH.run([str(argument) for argument in arguments], QUIET)


def write_sweep(folder: Path, *jobs: str) -> Path:
    """A sweep's record, with folders as they were seen from where it was started."""
    folder.mkdir(parents=True)
    folders = {name: f"sweeps/{folder.name}/{name}" for name in jobs}
    record = {"base": "x", "jobs": dict.fromkeys(jobs, "y"), "folders": folders}
    (folder / "sweep.json").write_text(json.dumps(record), encoding="utf-8")
    return folder


# --- in the terminal ------------------------------------------------------------------------------


def test_a_run_is_shown_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    folder = write_run(tmp_path / "run", rounds=12)
    assert run(folder, "--once") == 0
    shown = capsys.readouterr().out
    assert "round 12/20" in shown and "75% of 10 rounds" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_sweep_is_shown_once_wherever_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    folder = write_sweep(tmp_path / "copied", "seed-1", "seed-2", "seed-3")
    write_run(folder / "seed-1", rounds=20, state="finished")
    write_run(folder / "seed-2", rounds=12)
    # The ETA counts from the last write, on a slow machine seconds ago.
    os.utime(folder / "seed-2" / "metrics.jsonl", (time.time() + 3600,) * 2)
    assert run(folder, "--once") == 0
    title, _, _, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    # One took 100 seconds, one takes 80 for its rounds: 8 of 20 are left of it, and a third waits.
    assert " ".join(title) == "3 jobs: 1 running, 1 finished, 1 queued, ETA 2m06s"
    assert [row[:2] for row in rows] == [
        ["seed-1", "finished"],
        ["seed-2", "running"],
        ["seed-3", "queued"],
    ]
    assert rows[0][-1] == "1m40s"
    # The last column is the elapsed time, which increases while the job runs.
    assert rows[1][2:-1] == ["12/20", "32s", "6.5", "0.5", "2.25", "25/75%", "100"]


def test_stages_that_a_sweep_makes_first_are_shown(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "sweep", "seed-1")
    log = folder / "logs" / "stages" / "seed-1.log"
    log.parent.mkdir(parents=True)
    log.write_text("sft nano_s: 40/450, 20s elapsed\n")
    source = open_source(folder)
    assert source.lines() == [
        "2 jobs: 1 running, 1 queued",
        "  stages of seed-1: sft nano_s: 40/450, 20s elapsed",
    ]
    write_run(folder / "seed-1")
    assert source.lines()[0].startswith("seed-1: running (1 job: 1 running")


def work(folder: Path) -> None:
    """A run in a process of its own: stages, rounds, and an end, as `rlhf-lab train` has them."""
    facts = {"algo": "grpo", "num_rounds": 4, "settings": {"num_generators": 2}}
    record = RunDirectory.create(folder, facts, "")
    console = Console(quiet=True)
    with console.run(folder):
        with console.stage("sft", total=2) as bar:
            time.sleep(1.5)
            bar.advance(2)
        with console.stage("train", total=4) as bar:
            tracker = JsonlTracker(JsonlFile(folder / "metrics.jsonl"))
            for step in range(4):
                time.sleep(0.5)
                row = round_row(step)
                del row["step"]
                tracker.log(row, step)
                bar.advance(1)
            tracker.close()
        record.finish("finished")


@pytest.mark.usefixtures("processes")
def test_a_run_of_another_process_is_followed_to_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a slow machine: every check finds a line due.
    monkeypatch.setattr("rlhf_lab.runs.live.lines.LINE_SECONDS", 0.0)
    folder = tmp_path / "run"
    process = forkserver.start(work, (folder,))
    while not (folder / "manifest.json").exists():
        time.sleep(0.05)
    assert run(folder, "--every", "0.2") == 0
    process.join()
    lines = [line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert any(line.startswith("sft: 0/2") for line in lines), lines
    assert any(line.startswith("train: round ") for line in lines), lines
    assert lines[-1].startswith("finished: round 4/4")
    assert not (folder / "progress.json").exists()


def test_ctrl_c_ends_the_watching_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rlhf_lab.cli.watch.time.sleep", interrupt)
    folder = write_run(tmp_path / "run", rounds=1)
    before = sorted(folder.iterdir())
    assert run(folder) == 0
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere is not a folder: name a run or a sweep"),
        (["."], r"\. is neither a run nor a sweep .*: try `rlhf-lab watch run`"),
        (["empty"], "empty is neither a run nor a sweep .*: try `rlhf-lab runs empty`"),
        (["run", "--every", "0"], "pass 0.2 to 3600 seconds"),
        (["run", "--every", "nan"], "pass 0.2 to 3600 seconds"),
        (["run", "--port", "80"], "--port is for --web"),
        (["run", "--web", "--port", "70000"], "pass a port from 0"),
        (["run", "--web", "--once"], "leave out --once"),
        ([], "required: RUN"),
    ],
)
def test_what_cannot_be_watched_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=message):
        run(*arguments)


def test_a_damaged_sweep_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        run(tmp_path, "--once")


# --- in a browser ---------------------------------------------------------------------------------


@contextmanager
def serving(folder: Path) -> Iterator[PageServer]:
    with server_of(open_source(folder), 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(
    server: PageServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, Any, bytes]:
    """Status, headers and body of an answer, through a socket."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def test_the_page_is_served_with_all_that_it_needs(tmp_path: Path) -> None:
    with serving(write_run(tmp_path / "run", rounds=12)) as server:
        status, headers, body = ask(server, "/")
        assert status == 200 and headers["Content-Type"].startswith("text/html")
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"
        assert ask(server, "/", "HEAD")[2] == b""
    # The name of SVG's language is no address that is loaded.
    text = body.decode().replace("http://www.w3.org/2000/svg", "")
    assert not re.findall(
        r"""https?://|src=|@import|url\(|<link(?! rel="icon" href="data:,")""", text
    )


def test_the_state_of_a_run_is_served_as_it_changes(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", rounds=12)
    write_progress(folder, Progress("train", 12, 20, 50.0, {}, "take", 14.0))
    with serving(folder) as server:
        first = json.loads(ask(server, "/state.json")[2])
        write_rounds(folder, *(round_row(step) for step in range(13)))
        second = json.loads(ask(server, "/state.json?again")[2])
    assert first["kind"] == "run" and first["is_open"]
    (run_,) = first["runs"]
    assert (run_["rounds_done"], run_["rounds"], run_["phase"]) == (12, 20, "waiting for rollouts")
    assert run_["lag_updates"] == {"2": 60, "3": 20}
    assert run_["curves"]["round"] == list(range(1, 13))
    assert run_["curves"]["reward"] == list(range(12))
    assert run_["curves"]["trainer_share"] == pytest.approx([0.25] * 12)
    assert run_["curves"]["generator_share"] == pytest.approx([0.75] * 12)
    assert run_["curves"]["tokens_per_second"] == pytest.approx([100.0] * 12)
    assert second["runs"][0]["rounds_done"] == 13


def test_the_state_of_a_sweep_has_every_job(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "sweep", "seed-1", "seed-2")
    write_run(folder / "seed-1", rounds=3)
    with serving(folder) as server:
        state = json.loads(ask(server, "/state.json")[2])
    assert (state["kind"], state["name"], state["is_open"]) == ("sweep", "sweep", True)
    assert [job["state"] for job in state["jobs"]] == ["running", "queued"]
    assert [one["name"] for one in state["runs"]] == ["seed-1"]


def test_only_this_machine_may_ask_and_only_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", rounds=1)
    with serving(folder) as server:
        port = server.server_port
        assert server.server_address[0] == "127.0.0.1"
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1:1", ""):
            assert ask(server, "/state.json", Host=host)[0] == 403
        for host in (f"127.0.0.1:{port}", f"localhost:{port}"):
            assert ask(server, "/state.json", Host=host)[0] == 200
        for path in ("/manifest.json", "/../run/manifest.json", "/config.yaml"):
            assert ask(server, path)[0] == 404
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert ask(server, "/state.json", method)[0] == 501


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=rf"--port {port} cannot be listened at \(Address"):
            run(folder, "--web", "--port", port)


def test_curves_of_long_runs_are_thinned_and_end_at_the_last_round(tmp_path: Path) -> None:
    write_rounds(tmp_path, *(round_row(step) for step in range(1001)))
    found = curves(RowFile(tmp_path).read(), 2)
    assert {len(values) for values in found.values()} == {334}
    assert len(found["round"]) <= MOST_POINTS and found["round"][-1] == 1001
    # Thinned curves are means of the window.
    assert found["reward"][-1] == pytest.approx(sum(range(991, 1001)) / 10)


@pytest.mark.browser
@pytest.mark.parametrize("kind", ["run", "sweep"])
def test_the_page_draws_curves_without_an_error_or_a_request_elsewhere(
    tmp_path: Path, kind: str
) -> None:
    chromium = browser.program()
    if chromium is None:
        pytest.skip("no Chromium: install it, or set RLHF_LAB_BROWSER")
    folder = write_sweep(tmp_path / "sweep", "seed-1", "seed-2") if kind == "sweep" else tmp_path
    write_run(folder / "seed-1", rounds=12)
    watched = folder if kind == "sweep" else folder / "seed-1"
    with serving(watched) as server, browser.browser(chromium, tmp_path / "profile") as page:
        address = f"http://127.0.0.1:{server.server_port}/"
        page.call("Page.navigate", url=address)
        count = "document.querySelectorAll('#charts path').length"
        # Of one run, seven curves with their rounds behind them, and two of waiting.
        while page.run(count) < (16 if kind == "run" else 9):
            time.sleep(0.1)
        for width in (1280, 390):
            page.size(width, 844, is_phone=width < 500)
            assert page.run("document.documentElement.scrollWidth") <= width
        assert page.errors == []
        assert {url.removeprefix(address) for url in page.requests} == {"", "state.json"}


def test_the_script_of_the_page_names_only_what_the_state_has(tmp_path: Path) -> None:
    with serving(write_run(tmp_path / "run", rounds=2)) as server:
        (run_,) = json.loads(ask(server, "/state.json")[2])["runs"]
    script = PAGE.read_text(encoding="utf-8").split("<script>")[1]
    used = set(re.findall(r"\brun\.(\w+)", script))
    assert used <= run_.keys(), used - run_.keys()
    (charts,) = re.findall(r"const CHARTS = \[(.*?)\];", script, re.DOTALL)
    names = set(re.findall(r'\["(\w+)"\]\]', charts)) | {"trainer_share", "generator_share"}
    assert names <= run_["curves"].keys() and len(names) == 9


def test_watching_loads_no_torch(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", rounds=2)
    program = (
        "import sys; from rlhf_lab.cli.watch import WATCH, open_source\n"
        f"WATCH.run([{str(folder)!r}, '--once'])\n"
        "import rlhf_lab.cli.watch_server\n"
        "print(sorted({'torch', 'transformers', 'hydra'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr
