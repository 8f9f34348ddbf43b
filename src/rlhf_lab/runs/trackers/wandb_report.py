"""The curves of the paper (arXiv:2410.18252) as a report at Weights & Biases."""

from __future__ import annotations

from typing import Any

from rlhf_lab.runs.secrets import masked
from rlhf_lab.runs.trackers.wandb import SAMPLES, STEP
from rlhf_lab.types.errors import UserError

TITLE = "Asynchronous RLHF: what off-policy data costs, and what waiting costs"
# Title, x-axis and y-axis of each chart of lines.
LINES = {
    "How good is the policy?": (
        ("Win-rate over updates", STEP, "gold/win_rate"),
        ("Reward over updates", STEP, "reward/mean"),
        ("Reward over seconds", "seconds/wall", "reward/mean"),
    ),
    "How far did it move from its start?": (
        ("KL to the start over updates", STEP, "kl/sft_k1"),
        ("KL on samples over updates", STEP, "kl/sampled_reference_k1"),
    ),
    "How off-policy is the data?": (
        ("Lag in updates", STEP, "lag/updates_mean"),
        ("Staleness in nats a token", STEP, "gap/staleness_k1"),
        ("Largest ratio", STEP, "ratio/max"),
        ("Effective sample size", STEP, "ratio/ess"),
    ),
    "Who waits?": (
        ("Seconds that the trainer waited", STEP, "seconds/wait"),
        ("Seconds of wall-clock", STEP, "seconds/wall"),
    ),
}
# The frontier of the paper: what a nat of KL buys.
FRONTIER = ("Win-rate against KL", "kl/sft_k1", "gold/win_rate")


def paper_report(entity: str, project: str) -> Any:
    """The report of a project, one line for each condition (config.exp_name) with its range over
    seeds. Nothing is sent until it is saved. Raises UserError without its package."""
    try:
        import wandb_workspaces.reports.v2 as reports
    except ImportError as error:
        raise UserError(
            "--report needs the package wandb-workspaces: pip install 'rlhf-lab[wandb]'"
        ) from error
    blocks: list[Any] = [reports.TableOfContents()]
    for heading, charts in LINES.items():
        panels = [line(reports, *chart) for chart in charts]
        blocks += [reports.H1(text=heading), grid(reports, panels)]
    title, x, y = FRONTIER
    frontier = reports.ScatterPlot(title=title, x=x, y=y)
    blocks += [reports.H1(text="What does a nat of KL buy?"), grid(reports, [frontier])]
    samples = reports.WeavePanelSummaryTable(table_name=SAMPLES)
    blocks += [reports.H1(text="What does it write?"), grid(reports, [samples])]
    return reports.Report(project=project, entity=entity, title=TITLE, blocks=blocks)


def line(reports: Any, title: str, x: str, y: str) -> Any:
    """A chart with a mean over the runs of each group, and their range."""
    return reports.LinePlot(
        title=title, x=x, y=[y], groupby_aggfunc="mean", groupby_rangefunc="minmax"
    )


def grid(reports: Any, panels: list[Any]) -> Any:
    """Panels over all runs of the report's project, grouped by condition."""
    runs = reports.Runset(name="runs", groupby=["config.exp_name"])
    return reports.PanelGrid(runsets=[runs], panels=panels)


def save_report(place: str) -> str:
    """Make the report in ENTITY/PROJECT, as a draft that its owner may edit. Returns its page.
    Raises UserError for another place, or with the server's reason."""
    entity, _, project = place.partition("/")
    if not (entity and project) or "/" in project:
        raise UserError(f"--report {place}: name the project, as in ENTITY/PROJECT")
    report = paper_report(entity, project)
    try:
        report.save(draft=True)
    except Exception as error:
        # The package raises plain Exception where nobody is logged in.
        reason = masked(" ".join(str(error).split()))
        raise UserError(
            f"--report {place}: {reason}: run `wandb login`, or set WANDB_API_KEY"
        ) from error
    return str(report.url)
