"""A run that trains nothing reports it: by hand, and in runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.experiment.run.round_warnings import NothingTrained, last_line
from tests.conftest import MakeConfig
from tests.support.examples import call

pytestmark = pytest.mark.usefixtures("costly")

KEPT = {"rows_kept": 1.0, "reward/groups_tied": 0.25}
TIED = {"rows_kept": 0.0, "reward/groups_tied": 1.0}
NO_PREFERENCE = {"rows_kept": 1.0, "reward/groups_tied": 1.0}
MASKED = {"rows_kept": 0.0, "reward/groups_tied": 0.5, "sample/masked": 1.0}
BOTH = {"rows_kept": 0.0, "reward/groups_tied": 0.5, "sample/masked": 0.5}
OTHER = {"rows_kept": 0.0, "reward/groups_tied": 0.0}
TIED_KEYS = ("reward/groups_tied", "run.group_size=2", "reward=")
MASKED_KEYS = ("sample/masked", "run.mask_truncated=false", "task.max_response_tokens=")
GIVEN = ("algo=online_dpo", "run.group_size=2")


@pytest.mark.parametrize(
    ("rows", "keys", "absent"),
    [
        ([TIED] * 6, TIED_KEYS, MASKED_KEYS),
        ([MASKED] * 6, MASKED_KEYS, TIED_KEYS),
        ([BOTH] * 6, (*MASKED_KEYS, *TIED_KEYS), ()),
        ([OTHER] * 6, ("rows_kept", "algo=online_dpo"), (*MASKED_KEYS, *TIED_KEYS)),
        ([NO_PREFERENCE] * 6, TIED_KEYS, ("total/updates_empty",)),
        ([TIED, TIED, TIED, KEPT], TIED_KEYS, MASKED_KEYS),
    ],
)
def test_first_rounds_that_train_nothing_are_reported_once(
    make_config: MakeConfig, rows: list[dict[str, Any]], keys: tuple[str, ...], absent: tuple[str]
) -> None:
    logged, (line,) = watched(rows, make_config(*GIVEN, "run.updates=8"))
    assert logged == rows
    assert line.startswith("warning: ")
    assert all(key in line for key in keys) and not any(key in line for key in absent)


@pytest.mark.parametrize("rows", [[KEPT] * 4, [TIED, TIED, KEPT, TIED, TIED, TIED], [TIED, TIED]])
def test_rounds_among_others_are_not(make_config: MakeConfig, rows: list[dict[str, Any]]) -> None:
    assert watched(rows, make_config(*GIVEN, "run.updates=8"))[1] == []


def test_a_short_run_is_reported_at_its_end(make_config: MakeConfig) -> None:
    assert len(watched([TIED], make_config(*GIVEN, "run.updates=1"))[1]) == 1


def test_samples_without_a_group_are_never_tied(make_config: MakeConfig) -> None:
    config = make_config("algo=reinforce", "run.group_size=1", "run.updates=8")
    assert watched([NO_PREFERENCE] * 4, config)[1] == []


def watched(rows: list[dict[str, Any]], config: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """What was logged of these rounds, and the warnings."""
    logged: list[dict[str, Any]] = []
    lines: list[str] = []
    log = NothingTrained(lambda row, _: logged.append(dict(row)), config, lines.append)
    for round_, row in enumerate(rows):
        log(row, round_)
    return logged, lines


def test_the_last_line_counts_empty_updates_and_has_their_own_causes(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(*GIVEN, "run.updates=8")
    assert last_line(tmp_path, config) == ""
    written(tmp_path, [(KEPT, 0)] * 3)
    assert last_line(tmp_path, config) == ""
    written(tmp_path, [(KEPT, 0), (MASKED, 1), (KEPT, 1), (MASKED, 2)])
    line = last_line(tmp_path, config)
    assert line.startswith("2 of 4 updates were empty: ")
    assert all(key in line for key in MASKED_KEYS) and TIED_KEYS[0] not in line
    written(tmp_path, [(NO_PREFERENCE, 0)] * 4)
    assert all(key in last_line(tmp_path, config) for key in TIED_KEYS)


def written(folder: Path, rows: list[tuple[dict[str, Any], int]]) -> None:
    """Metrics of rounds of one update each, with the number of empty ones so far."""
    lines = [
        json.dumps(
            {
                **{**row, "round": round_, "step": round_},
                **{"total/updates": round_ + 1, "total/updates_empty": empty},
            }
        )
        for round_, (row, empty) in enumerate(rows)
    ]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_a_run_of_equal_rewards_ends_with_the_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["debug=tiny", "mode=sync", "eval=none", *GIVEN, "run.updates=2"]
    # The rule needs more than a token.
    given += ["reward=task_rule", "task.max_response_tokens=1"]
    given += [f"output.cache={tmp_path}/cache", f"output.dir={tmp_path}/run"]
    assert call("train", *given, monkeypatch=monkeypatch) == 0
    shown = capsys.readouterr().out
    assert " ".join(shown.split()).count("(reward/groups_tied)") == 2
    last = " ".join(shown.rpartition("Next:")[2].split())
    assert "2 of 2 updates were empty: " in last and "run.group_size=2" in last
