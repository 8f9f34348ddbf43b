"""The figures of asynchronous RLHF (arXiv:2410.18252), each a request of a form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.names import named_value, naming
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.plots.figure import Plot, draw
from rlhf_lab_analysis.plots.panels import Form, Request
from rlhf_lab_analysis.plots.style import Style
from rlhf_lab_analysis.words import KL

N, T, K = "updates_per_round", "passes", "group_size"
MODES = {"mode": ("sync", "async")}


@dataclass(frozen=True)
class PaperFigure:
    """title: what it shows. sweeps: which make its runs, of which the first that there is counts,
    in either form (`NAME_nano`). request: its `by` are the keys in which lines may differ. where:
    values that conditions must have. beside: sweeps that lend conditions of policies or proxies
    which the own sweep leaves out."""

    title: str
    sweeps: Sequence[str]
    request: Request
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)
    beside: Sequence[str] = ()


def over(y: Sequence[str], x: Sequence[str], *by: str) -> Request:
    """Curves, a panel for each pair."""
    return Request(y=y, x=x, by=by)


FIGURES: Mapping[str, PaperFigure] = {
    "fig1_win_rate_and_cost": PaperFigure(
        "win-rate against wall-clock, device-hours and FLOPs, sync and async (figure 1)",
        ("sync_async",),
        over(["win_rate"], ["wall_clock", "device_hours", "flops"], "mode"),
        MODES,
    ),
    "fig2_timelines": PaperFigure(
        "who worked when in measured rounds of sync and async (figure 2)",
        ("sync_async",),
        Request(form=Form.timeline, by=("mode",)),
        MODES,
    ),
    "fig3_off_policy_ladder": PaperFigure(
        "win-rate and drift over training, and one against the other, by N (figure 3)",
        ("off_policy_ladder",),
        over(["win_rate", "drift", "win_rate"], ["updates", "updates", "drift"], N),
    ),
    "fig4_losses": PaperFigure(
        "where each loss ends in win-rate and drift at each N (figure 4)",
        ("off_policy_ladder",),
        Request(y=["win_rate", "drift"], form=Form.ends, by=("algo", N)),
    ),
    "fig5_policy_scale": PaperFigure(
        "win-rate and drift against N by size of the policy (figure 5, left)",
        ("policy_scale",),
        Request(y=["win_rate", "drift"], form=Form.ends, by=("model", N)),
        beside=("off_policy_ladder",),
    ),
    "fig5_reward_scale": PaperFigure(
        "win-rate and drift against N by size of the proxy (figure 5, right)",
        ("reward_scale",),
        Request(y=["win_rate", "drift"], form=Form.ends, by=("proxy", "reward", N)),
        beside=("off_policy_ladder",),
    ),
    "fig6_who_waits": PaperFigure(
        "measured timelines by T and K: which side waits (figure 6)",
        ("passes", "samples_per_prompt"),
        Request(form=Form.timeline, by=(T, K)),
    ),
    "fig7_passes": PaperFigure(
        "win-rate and drift against samples, and one against the other, by T (figure 7)",
        ("passes",),
        over(["win_rate", "drift", "win_rate"], ["completions", "completions", "drift"], T),
    ),
    "fig8_samples": PaperFigure(
        "win-rate against updates, FLOPs and drift, by K (figure 8)",
        ("samples_per_prompt",),
        over(["win_rate"], ["updates", "flops", "drift"], K),
        beside=("passes",),
    ),
    "fig9_reward_and_drift": PaperFigure(
        "gold reward of sync and async against drift and wall-clock (figure 9)",
        ("chats", "sync_async"),
        over(["gold", "gold", "drift"], ["drift", "wall_clock", "wall_clock"], "mode"),
        MODES,
    ),
    "gsm8k_accuracy": PaperFigure(
        "accuracy against wall-clock, device-hours and updates, sync and async (GSM8k)",
        ("verified_answers",),
        over(["accuracy"], ["wall_clock", "device_hours", "updates"], "mode"),
        MODES,
    ),
    "trade_off": PaperFigure(
        "what a win-rate costs: the front of compute and win-rate",
        ("compute_optimal", "sync_async"),
        Request(y=["win_rate"], x=["flops", "device_hours", "wall_clock"], form=Form.front),
    ),
}


def paper_figure(
    name: str, selection: Selection, drift: str = KL, style: Style | None = None
) -> Plot:
    """A figure of the paper of these conditions. drift: the measure on its axes of drift. Raises
    UserError for another name, and where the runs are missing."""
    if name not in FIGURES:
        raise UserError(f"{name}: there is no such figure, choose from {', '.join(FIGURES)}")
    spec = FIGURES[name]
    cells = chosen(spec, selection.cells)
    differing = naming(cells).keys
    wanted = [key for key in spec.request.by if key in differing]
    if not wanted and spec.request.by:
        keys = " or ".join(spec.request.by)
        raise UserError(f"{name}: it takes conditions that differ in {keys}; {made_by(spec)}")
    own = {"drift": drift}
    request = replace(
        spec.request,
        y=[own.get(one, one) for one in spec.request.y],
        x=[own.get(one, one) for one in spec.request.x],
        by=wanted,
    )
    return draw(Selection(tuple(cells), selection.left_out), request, style or Style(), None)


def chosen(spec: PaperFigure, cells: Sequence[Cell]) -> list[Cell]:
    """The conditions of the first of the figure's sweeps that is there, else all that fit."""
    fit = [
        cell
        for cell in cells
        if all(str(named_value(cell, key)) in values for key, values in spec.where.items())
    ]
    for sweep in spec.sweeps:
        if own := of_sweep(sweep, fit):
            lent = [cell for other in spec.beside for cell in of_sweep(other, fit)]
            return [*own, *(cell for cell in lent if is_missing(cell, own, spec.request.by))]
    return fit


def of_sweep(sweep: str, cells: Sequence[Cell]) -> list[Cell]:
    """The conditions of a sweep, in either form."""
    return [cell for cell in cells if cell.sweep in (sweep, f"{sweep}_nano")]


def is_missing(cell: Cell, own: Sequence[Cell], by: Sequence[str]) -> bool:
    """Whether a condition has a policy, proxy or value of `by` that no own one has, and else only
    values that these have."""
    keys = ("task", "algo", "mode", *(key for key in (N, K) if key in by))
    held = {tuple(named_value(one, key) for key in ("model", "proxy", *by)) for one in own}
    known = all(any(named_value(cell, k) == named_value(one, k) for one in own) for k in keys)
    return known and tuple(named_value(cell, key) for key in ("model", "proxy", *by)) not in held


def made_by(spec: PaperFigure) -> str:
    """Which sweeps make its runs."""
    return f"make sweep SWEEP={' or '.join(spec.sweeps)} makes them"
