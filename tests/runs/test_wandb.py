"""The report template: the objects of W&B's own package, built without network."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlhf_lab.cli.sync import SYNC
from rlhf_lab.runs.folder import evals
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.runs.trackers.wandb import FRONTIER, LINES, STEP, paper_report
from rlhf_lab.types.errors import UserError
from tests.conftest import Finished

pytestmark = [pytest.mark.usefixtures("costly"), pytest.mark.filterwarnings("ignore")]
pytest.importorskip("wandb_workspaces")


def test_the_report_has_every_curve_over_its_axis_grouped_by_condition() -> None:
    report = paper_report("me", "p")
    assert (report.entity, report.project) == ("me", "p")
    text = json.dumps(json.loads(report._to_model().spec.model_dump_json(by_alias=True)))
    for title, x, y in [*(chart for charts in LINES.values() for chart in charts), FRONTIER]:
        assert all(part in text for part in (title, x, y))
    assert "exp_name" in text and "sample/texts" in text


def test_runs_record_what_the_report_draws(finished: Finished) -> None:
    # The run of 0.1 made no update, but it was evaluated.
    run = Path(__file__).parents[1] / "data" / "run_of_0_1"
    rows, _ = finished("reward=task_rule")
    recorded = {STEP, "seconds/wall", "seconds/wait"}.union(*rows, *evals(run))
    charts = [*(chart for charts in LINES.values() for chart in charts), FRONTIER]
    assert {axis for _, *axes in charts for axis in axes} - recorded == set()


def test_the_page_of_the_report_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = SimpleNamespace(save=lambda draft: None, url="https://example.org/me/p/reports/x")
    monkeypatch.setattr("rlhf_lab.runs.trackers.wandb.paper_report", lambda *_: saved)
    monkeypatch.setattr("rlhf_lab.cli.sync.require_answer", lambda: None)
    assert SYNC.run(["--report", "me/p"], Console(quiet=False)) == 0
    assert "report: https://example.org/me/p/reports/x" in capsys.readouterr().out


@pytest.mark.parametrize("place", ["p", "me/", "me/p/q"])
def test_a_place_that_is_no_project_is_refused(place: str) -> None:
    with pytest.raises(UserError, match="as in ENTITY/PROJECT"):
        SYNC.run(["--report", place], Console(quiet=True))


def test_what_fails_is_refused_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(draft: bool) -> None:
        raise Exception("not logged in to W&B")

    monkeypatch.setattr(
        "rlhf_lab.runs.trackers.wandb.paper_report", lambda *_: SimpleNamespace(save=refuse)
    )
    monkeypatch.setattr("rlhf_lab.cli.sync.require_answer", lambda: None)
    with pytest.raises(UserError, match="not logged in to W&B: run `wandb login`"):
        SYNC.run(["--report", "me/p"], Console(quiet=True))
    monkeypatch.undo()
    monkeypatch.setattr("rlhf_lab.cli.sync.require_answer", lambda: None)
    monkeypatch.setitem(sys.modules, "wandb_workspaces.reports.v2", None)
    with pytest.raises(UserError, match=r"pip install 'rlhf-lab\[wandb\]'"):
        SYNC.run(["--report", "me/p"], Console(quiet=True))
