"""A mirror of the metrics at Weights & Biases, or in a folder for `rlhf-lab sync` to send later,
and the curves of the paper (arXiv:2410.18252) as a report there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rlhf_lab.runs.schema import RolloutSample
from rlhf_lab.runs.secrets import masked
from rlhf_lab.runs.trackers.options import Tracker
from rlhf_lab.types.data import Metrics
from rlhf_lab.types.errors import UserError

# A run waits no longer than this for a server that does not answer, before its first step.
INIT_SECONDS = 60.0
# After its last step it waits no longer for a server that lags; the rest stays for `wandb sync`.
FINISH_SECONDS = 900.0
# The folder in a run's folder that wandb writes to.
FILES = "wandb"
# The axis that Open RL Benchmark reads by default: optimizer updates.
STEP = "global_step"
UPDATES = "total/updates"
# Samples of rounds: prompts, responses, rewards, versions and lags.
SAMPLES = "sample/texts"
COLUMNS = (
    "round", "updates", "uid", "prompt", "response", "reward", "credit", "version", "lag_rounds",
    "lag_updates", "tokens", "finish",
)  # fmt: skip
TABLE_ROWS = 1000
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


@dataclass(frozen=True)
class WandbOptions:
    """Where a run appears, and under which name. Empty texts leave the choice to wandb.

    table_rounds: rounds whose samples are sent as one table.
    """

    mode: Literal["online", "offline"]
    project: str
    entity: str = ""
    group: str = ""
    name: str = ""
    tags: tuple[str, ...] = ()
    id: str = ""
    job_type: str = ""
    table_rounds: int = 1


class WandbTracker(Tracker):
    """One wandb run, with files in `folder`/wandb. The config is the run's, in plain data.

    Charts are drawn over optimizer updates, so that an evaluation is at the updates that made
    its version.
    """

    def __init__(self, options: WandbOptions, folder: Path, config: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError as error:
            raise UserError(
                f"tracker.wandb={options.mode} needs the package wandb: "
                "pip install 'rlhf-lab[wandb]', or choose tracker=jsonl"
            ) from error
        self._wandb = wandb
        self._is_online = options.mode == "online"
        self._table_rounds = options.table_rounds
        self._waiting: list[RolloutSample] = []
        try:
            self._run = wandb.init(
                mode=options.mode,
                project=options.project,
                entity=options.entity or None,
                group=options.group or None,
                name=options.name or None,
                id=options.id or None,
                resume="allow" if options.id else None,
                tags=list(options.tags),
                job_type=options.job_type or None,
                dir=str(folder),
                config=dict(config),
                settings=wandb.Settings(
                    silent=True,
                    console="off",
                    init_timeout=INIT_SECONDS,
                    finish_timeout=FINISH_SECONDS,
                ),
            )
        except wandb.Error as error:
            raise UserError(
                f"tracker.wandb={options.mode}: {error}: run `wandb login`, or choose "
                "tracker=wandb_offline and send the run later with `rlhf-lab sync`"
            ) from error
        self._run.define_metric(STEP)
        self._run.define_metric("*", step_metric=STEP)

    @property
    def url(self) -> str:
        """The page of the run; "" offline."""
        return str(self._run.url) if self._is_online else ""

    def log(self, metrics: Metrics, step: int) -> None:
        updates = {STEP: metrics[UPDATES]} if UPDATES in metrics else {}
        self._run.log({**updates, **metrics}, step=step)

    def log_samples(self, samples: Sequence[RolloutSample]) -> None:
        """Collect the samples of a round; those of `table_rounds` rounds are sent as one table, in
        the row of the last of them."""
        self._waiting += samples
        if (samples[0].round + 1) % self._table_rounds == 0:
            self._send_table()

    def close(self) -> None:
        self._send_table()
        self._run.finish()
        # In offline mode finish returns before the service has written the file.
        self._wandb.teardown()

    def _send_table(self) -> None:
        if not self._waiting:
            return
        rows = [[getattr(one, name) for name in COLUMNS] for one in self._waiting[-TABLE_ROWS:]]
        step = self._waiting[-1].round
        self._waiting = []
        self._run.log({SAMPLES: self._wandb.Table(columns=list(COLUMNS), data=rows)}, step=step)


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
        # A mean over the runs of each group, and their range.
        of_group = {"groupby_aggfunc": "mean", "groupby_rangefunc": "minmax"}
        panels = [reports.LinePlot(title=t, x=x, y=[y], **of_group) for t, x, y in charts]
        blocks += [reports.H1(text=heading), grid(reports, panels)]
    title, x, y = FRONTIER
    frontier = reports.ScatterPlot(title=title, x=x, y=y)
    blocks += [reports.H1(text="What does a nat of KL buy?"), grid(reports, [frontier])]
    samples = reports.WeavePanelSummaryTable(table_name=SAMPLES)
    blocks += [reports.H1(text="What does it write?"), grid(reports, [samples])]
    return reports.Report(project=project, entity=entity, title=TITLE, blocks=blocks)


def grid(reports: Any, panels: list[Any]) -> Any:
    """Panels over all runs of the report's project, grouped by condition."""
    runs = reports.Runset(name="runs", groupby=["config.exp_name"])
    return reports.PanelGrid(runsets=[runs], panels=panels)


def save_report(place: str, require_answer: Callable[[], None]) -> str:
    """Make the report in ENTITY/PROJECT, as a draft that its owner may edit. Returns its page.
    require_answer: raises where the server does not answer. Raises UserError for another place, or
    with the server's reason."""
    entity, _, project = place.partition("/")
    if not (entity and project) or "/" in project:
        raise UserError(f"--report {place}: name the project, as in ENTITY/PROJECT")
    require_answer()
    report = paper_report(entity, project)
    try:
        report.save(draft=True)
    except Exception as error:
        # Without a login the package raises plain Exception.
        reason = masked(" ".join(str(error).split()))
        raise UserError(
            f"--report {place}: {reason}: run `wandb login`, or set WANDB_API_KEY"
        ) from error
    return str(report.url)
