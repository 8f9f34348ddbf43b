"""No folder of a run executes code by itself: what another author's run names needs --trust."""

from __future__ import annotations

import getpass
import json
import os
import pickle
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.cli.arguments import overrides_again
from rlhf_lab.cli.main import COMMANDS, run_command
from rlhf_lab.runs.trust import FLAG, author_of, composing, named_in, require_trust, trusting
from rlhf_lab.types.errors import UserError
from tests.support.variants import names

# Commands that build a run again from its folder, with their words behind it.
EXECUTING = {
    "resume": [],
    "fork": ["round=2"],
    "replay": [],
    "evaluate": [],
    "export": ["exported"],
    "chat": [],
    "implicit-reward": [],
    "plan": ["--gpu", "h100"],
}
# Of those that read, the ones that load no library of tables.
READING = {"attribute": ["round=1..2"], "timeline": [], "samples": [], "runs": []}
REFUSED = "--trust|delete it"
HERE = {"name": socket.gethostname(), "user": getpass.getuser()}
ELSEWHERE = {"name": "elsewhere", "user": "somebody"}


class Touch:
    """What a pickle of it does once it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("touched",)


def write_code(run: Path) -> None:
    """Everything in the run's folder that makes the folder `touched` of the working folder once it
    is executed."""
    (run / "touching.pkl").write_bytes(pickle.dumps(Touch()))
    (run / "touching.py").write_text(
        "import os\nos.mkdir('touched')\nPARTS = {'algo': {'mine': 'touching:A'}}\n"
        "def score(prompt, completion): return 0.0\n",
        encoding="utf-8",
    )
    (run / "experiment").mkdir()
    (run / "experiment" / "own.yaml").write_text(
        "# @package _global_\nhydra:\n  callbacks:\n    one:\n      _target_: pandas.read_pickle\n"
        f"      filepath_or_buffer: {run}/touching.pkl\n",
        encoding="utf-8",
    )


# What the manifest of a run names, by the kind of the attack.
ATTACKS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "callback": lambda run: {
        "overrides": [
            "+hydra.callbacks.one._target_=pandas.read_pickle",
            f"+hydra.callbacks.one.filepath_or_buffer={run}/touching.pkl",
        ]
    },
    "callback of a package": lambda _: {"overrides": ["+experiment@hydra.callbacks.one=own"]},
    "launcher": lambda _: {"overrides": ["hydra/launcher=slurm"]},
    "flag": lambda run: {"overrides": [f"--experimental-rerun={run}/touching.pkl"]},
    "primary flag": lambda run: {"primary_config": [f"--experimental-rerun={run}/touching.pkl"]},
    "module": lambda run: {
        "overrides": ["reward=function", "reward.path=touching.score"],
        "working_folder": str(run),
    },
    "module of a term": lambda _: {
        "overrides": [
            "reward=combined",
            "+reward@reward.terms.one=function",
            "reward.terms.one.path=touching.score",
        ]
    },
    "plugin": lambda _: {"overrides": ["plugins=[touching]"]},
    "recorded plugin": lambda _: {
        "plugins": [{"module": "touching.part", "version": None, "sha256": "", "parts": []}],
        "overrides": ["plugins=[touching]"],
    },
    "files of options": lambda run: {
        "overrides": ["+experiment=own"],
        "primary_config": ["--config-dir", str(run)],
    },
    "search path": lambda run: {
        "overrides": ["+experiment=own"],
        "primary_config": [f"hydra.searchpath=[file://{run}]"],
    },
    "a file outside": lambda run: {
        "overrides": [f"+experiment=../../../../../../../../../..{run}/experiment/own"]
    },
    "primary file": lambda run: {
        "primary_config": ["--config-name", f"../../../../../../../../../..{run}/experiment/own"]
    },
    "address": lambda _: {
        "overrides": ["reward@judge=endpoint", "judge.base_url=http://127.0.0.1:9/v1"]
    },
    "variable": lambda _: {"overrides": ["reward@judge=endpoint", "judge.key_variable=HOME"]},
    "module of environments": lambda _: {
        "overrides": ["task=gymnasium", "task.env_id=touching:One-v0"]
    },
    "task files": lambda run: {"overrides": ["eval=harness", f"eval.tasks_folder={run}"]},
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a run with code in it. Modules there could be imported if the command did."""
    folder = tmp_path / "run"
    folder.mkdir()
    write_code(folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # as main() sets it: Hydra raises
    monkeypatch.syspath_prepend(str(folder))
    return folder


def write_manifest(run: Path, **facts: Any) -> None:
    manifest = {
        "state": "finished",
        "started": "2026-01-01T00:00:00+00:00",
        "overrides": [],
        "num_rounds": 4,
        "mode_settings": {"max_staleness": 0},
        "host": ELSEWHERE,
        **facts,
    }
    (run / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("command", names([*EXECUTING, *READING], {"resume", "export", "samples"}))
def test_no_command_executes_what_another_authors_run_names(
    command: str, attack: str, run: Path
) -> None:
    write_manifest(run, **ATTACKS[attack](run))
    words = [str(run), *EXECUTING.get(command, READING.get(command, []))]
    refused = suppress(UserError) if command in READING else pytest.raises(UserError, match=REFUSED)
    with refused:
        run_command(command, words)
    assert not Path("touched").exists()


def test_commands_that_execute_declare_the_flag() -> None:
    declared = {name for name, command in COMMANDS.items() if FLAG in command.usage}
    assert declared == set(EXECUTING)
    with pytest.raises(UserError, match=FLAG):
        run_command("samples", ["runs/one", FLAG])


@pytest.mark.parametrize(
    ("facts", "is_own"),
    [
        ({"host": HERE}, True),
        ({"host": {"name": HERE["name"]}}, True),
        ({"host": {**HERE, "name": "elsewhere"}}, True),
        ({"host": {"name": "elsewhere"}}, False),
        ({"host": {**HERE, "user": "somebody"}}, False),
        ({}, False),
        ({"host": HERE, "working_folder": "run"}, False),
    ],
)
def test_a_run_is_ones_own_by_its_user_and_by_its_host_where_no_user_is_recorded(
    facts: dict[str, Any], is_own: bool, run: Path
) -> None:
    write_manifest(run, **{"host": {}, **facts})
    assert (author_of(run) == "") == is_own


def test_a_run_in_the_files_of_another_user_is_not_ones_own(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_manifest(run, host=HERE)
    assert author_of(run) == ""
    owner = os.stat(run).st_uid
    monkeypatch.setattr("os.getuid", lambda: owner + 1)
    assert author_of(run)


def test_trust_and_ones_own_runs_let_code_pass(run: Path) -> None:
    write_manifest(run)
    with composing(run), pytest.raises(UserError, match=r"plugins=\[one\].*--trust"):
        require_trust("plugins=[one]")
    with composing(run), trusting(True):
        require_trust("plugins=[one]")
    require_trust("plugins=[one]")
    write_manifest(run, host=HERE, primary_config=["--config-dir", str(run)])
    assert overrides_again(run, [])[:2] == ["--config-dir", str(run)]


def test_every_option_that_names_code_or_an_address_is_found() -> None:
    from rlhf_lab.rewards.combined import CombinedReward
    from rlhf_lab.rewards.function import FunctionReward

    term = FunctionReward(path="a.b")
    part = CombinedReward(terms={"one": term, "two": FunctionReward(path="c.d")})
    assert list(named_in("reward", part)) == [
        "reward.terms.one.path=a.b",
        "reward.terms.two.path=c.d",
    ]


@pytest.mark.pages
def test_the_page_on_security_lists_commands_that_execute_and_that_read() -> None:
    page = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")
    reading, executing = page.split("Commands that **read**")[1].split("**build a run again**")
    for name in EXECUTING:
        assert f"`{name}" in executing
    for name, command in COMMANDS.items():
        if command.completes == "folders" and name not in EXECUTING:
            assert f"`{name}" in reading
