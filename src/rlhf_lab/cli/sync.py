"""`rlhf-lab sync`: send what runs wrote with tracker=wandb_offline, by wandb's own command."""

from __future__ import annotations

import argparse
import ssl
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import HTTPError, URLError
from urllib.request import getproxies, urlopen

from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.runs.child import Child
from rlhf_lab.runs.secrets import masked
from rlhf_lab.runs.signals import SignalHandler, listening
from rlhf_lab.runs.summaries import RunSummary, list_runs
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.runs.trackers.options import wandb_server
from rlhf_lab.runs.trackers.wandb import FILES, save_report
from rlhf_lab.types.errors import UserError

OFFLINE = "offline-run-*/run-*.wandb"
# wandb's own mark of a file that a server has taken whole.
SENT = ".synced"
NO_KEY = ("No API key configured", "Not authenticated")
LAST_CHARACTERS = 600
# wandb itself tries for days to reach a server.
ANSWER_SECONDS = 20.0
# What sending takes at most: a start, and so many bytes a second.
SEND_SECONDS, SLOWEST = 300.0, 20_000


@dataclass(frozen=True)
class Outbox:
    """A run and its files for the server, oldest first: a resumed run adds to the end."""

    run: RunSummary
    files: tuple[Path, ...]

    @property
    def unsent(self) -> list[Path]:
        return [path for path in self.files if not path.with_name(path.name + SENT).exists()]

    @property
    def is_growing(self) -> bool:
        return self.run.state == "running"

    @property
    def name(self) -> str:
        return str(self.run.folder)


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "runs, or folders with runs below them (runs)"
    parser.add_argument("folders", nargs="*", type=Path, default=[Path("runs")], help=text)
    parser.add_argument("--dry", action="store_true", help="only list what would be sent")
    text = "make a report with the curves of the paper there, and send no run"
    parser.add_argument("--report", metavar="ENTITY/PROJECT", help=text)


def sync(options: argparse.Namespace, console: Console) -> int:
    """Send the files of every run below the folders that no server has yet. Returns 1 if some
    could not be sent; the others are. With --report only the report is made."""
    if options.report:
        console.print(f"report: {save_report(options.report, require_answer)}")
        return 0
    folders = list(dict.fromkeys(options.folders))
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is no folder: pass a run, or a folder with runs below it")
    if find_spec("wandb") is None:
        raise UserError("it needs the package wandb: pip install 'rlhf-lab[wandb]'")
    is_dry: bool = options.dry
    runs = [outbox for folder in folders for outbox in outboxes(folder)]
    growing = [outbox for outbox in runs if outbox.is_growing]
    ended = [outbox for outbox in runs if not outbox.is_growing]
    waiting = [outbox for outbox in ended if outbox.unsent]
    for outbox in waiting if is_dry else ():
        console.print(f"to be sent: {outbox.name} ({files_text(outbox.unsent)})")
    failed: list[str] = []
    if waiting and not is_dry:
        require_answer()
        with listening() as stop:
            failed = [outbox.name for outbox in waiting if not send(outbox, console, stop)]
    summary = {
        f"{len(waiting) - len(failed)} {'to be sent' if is_dry else 'sent'}": [],
        f"{len(ended) - len(waiting)} sent before": [],
        f"{len(growing)} still going on": [outbox.name for outbox in growing],
        f"{len(failed)} failed": failed,
    }
    console.print(
        ", ".join(f"{text} ({', '.join(n)})" if n else text for text, n in summary.items())
    )
    return int(bool(failed))


def require_answer() -> None:
    """Refuse a server that does not answer; whatever it answers is wandb's own matter."""
    server = wandb_server()
    if any(proxy.startswith("socks") for proxy in getproxies().values()):
        return  # Python's library knows no such proxy
    try:
        urlopen(server, timeout=ANSWER_SECONDS).close()
    except (HTTPError, HTTPException, ssl.SSLError):
        return
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, ssl.SSLError):
            return
        raise UserError(
            f"{server} does not answer ({masked(str(reason))}), and nothing was sent: start it "
            "where the network reaches the server, or set WANDB_BASE_URL to yours"
        ) from error


def outboxes(folder: Path) -> Iterator[Outbox]:
    """Runs in or below a folder that were tracked offline."""
    for run in list_runs(folder):
        if files := tuple(sorted((run.folder / FILES).glob(OFFLINE))):
            yield Outbox(run, files)


def send(outbox: Outbox, console: Console, stop: SignalHandler) -> bool:
    """Send a run's files and print the result. Raises UserError without a login, since then
    no other run can be sent either. Returns whether all were sent."""
    files = outbox.unsent
    limit = SEND_SECONDS + sum(path.stat().st_size for path in files) / SLOWEST
    with TemporaryDirectory() as folder:
        log = Path(folder, "log")
        words = [sys.executable, "-P", "-m", "wandb", "sync", *map(str, files)]
        with stop.shielded():
            child = Child(words, log, {"WANDB_MODE": "online"})
        try:
            stop.raise_requested()
            code = child.wait(limit)
        finally:
            child.close()
        output = masked(log.read_text(encoding="utf-8", errors="replace"))
    if any(text in output for text in NO_KEY):
        raise UserError("no key for the server: run `wandb login`, or set WANDB_API_KEY")
    # wandb exits with 0 where it gave a run up, so what counts is its mark.
    if missing := outbox.unsent:
        console.print(f"failed: {outbox.name} ({files_text(missing)})")
        end = output[-LAST_CHARACTERS:].strip()
        late = f"wandb sync was ended: it takes more than {limit:.0f} seconds"
        console.print(late if code is None else end or f"wandb sync ended with {code}")
        return False
    console.print(f"sent: {outbox.name} ({files_text(files)})")
    return True


def files_text(files: Sequence[Path]) -> str:
    return "1 file" if len(files) == 1 else f"{len(files)} files"


SYNC = OptionsCommand(
    "sync",
    "send what runs of tracker=wandb_offline wrote to Weights & Biases",
    "runs --dry",
    usage="[FOLDER|RUN ...] [--dry] [--report ENTITY/PROJECT]",
    completes="folders",
    add_options=add_options,
    action=sync,
)
