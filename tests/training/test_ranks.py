"""Which variables of torchrun count, and which are left over from pods and shells."""

from __future__ import annotations

import os

import pytest

from rlhf_lab.runs.signals import TORCHRUN
from rlhf_lab.training.engines import ranks
from rlhf_lab.types.errors import UserError
from tests.support.examples import call

HOST = {"MASTER_ADDR": "127.0.0.1"}


def surround(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name in (*ranks.VARIABLES, ranks.MASTER, TORCHRUN):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, (1, 0)),
        ({"WORLD_SIZE": "abc", "RANK": "", "LOCAL_RANK": "x"}, (1, 0)),
        ({"WORLD_SIZE": "8", "RANK": "3"}, (1, 0)),
        ({"WORLD_SIZE": "0", "MASTER_ADDR": ""}, (1, 0)),
        ({**HOST, "WORLD_SIZE": "", "RANK": ""}, (1, 0)),
        ({**HOST, "WORLD_SIZE": "8", "RANK": "3"}, (8, 3)),
    ],
)
def test_ranks_count_where_processes_can_meet(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], found: tuple[int, int]
) -> None:
    surround(monkeypatch, variables)
    assert (ranks.world_size(), ranks.rank()) == found


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"WORLD_SIZE": "abc"}, "WORLD_SIZE=abc with MASTER_ADDR=127.0.0.1.*unset MASTER_ADDR"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE=0 .*whole numbers from 1"),
        ({"WORLD_SIZE": "-2"}, "WORLD_SIZE=-2 "),
        ({"RANK": "1.0"}, "RANK=1.0 "),
        ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK=2 with WORLD_SIZE=2: ranks are 0 to 1"),
    ],
)
def test_what_torchrun_never_sets_is_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], complaint: str
) -> None:
    surround(monkeypatch, HOST | variables)
    with pytest.raises(UserError, match=complaint):
        ranks.rank()


@pytest.mark.parametrize("size", ["", "abc", "0", "4"])
@pytest.mark.parametrize("host", [{}, HOST])
def test_what_only_reads_runs_in_any_pod(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    size: str,
    host: dict[str, str],
) -> None:
    surround(monkeypatch, {"WORLD_SIZE": size, "RANK": "2", "LOCAL_RANK": "x", **host})
    assert call("explain", "run.updates", monkeypatch=monkeypatch) == 0
    assert "run.updates" in capsys.readouterr().out
    assert not set(ranks.VARIABLES) & os.environ.keys(), "children and libraries see none of it"


def test_a_refusal_is_printed_in_a_pod_of_any_rank(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    surround(monkeypatch, {"WORLD_SIZE": "abc", "RANK": "2", **HOST})
    assert call("train", "algo=gpro", monkeypatch=monkeypatch) == 2
    assert "WORLD_SIZE=abc" in capsys.readouterr().err
