"""A run's state as rich panels: a headline, the generators, the trainer, events and a sample.

Numbers never fold: names and units are cut first, and the panels are below each other where they
do not fit side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rlhf_lab.runs.live.files import NewestSample, RoundRow
from rlhf_lab.runs.live.lines import (
    BARS,
    LONG_SECONDS,
    PREPARING,
    count_text,
    histogram_text,
    mean_lag,
    number_text,
    numbers_text,
    phase_name,
    score_text,
    seconds_text,
    share_text,
    sparkline,
)
from rlhf_lab.runs.live.progress import TRAIN
from rlhf_lab.runs.live.state import LiveState

# Name, value with its unit, and the values of a curve.
Line = tuple[str, str, Sequence[float]]
# Narrower terminals get the panels below each other.
SIDE_BY_SIDE = 76
BAR_WIDTH = 24
SPARK_WIDTH = 24
LEAST_SPARK = 4
# Frame and padding of a panel.
FRAME = 4
# Without a sign for so long, a reader should know.
SILENT_SECONDS = 60.0
SAMPLE_CHARACTERS = 200
STYLES = {"running": "green", "finished": "cyan", "failed": "red", "died": "red"}


def generator_lines(state: LiveState, rows: Sequence[RoundRow], bars: str) -> list[Line]:
    """How fast samples come, how long they are, and how old when they are trained on."""
    lines: list[Line] = []
    if state.generated_per_second is not None:
        lines.append(("generates", f"{count_text(state.generated_per_second)} tokens/s", ()))
    lines.append(share_line("waits", state.generator_waiting, state))
    lines.append(share_line("busy", state.generating, state))
    if state.length is not None:
        lines.append(("length", f"{number_text(state.length)} tokens", curve(rows, "length")))
    if state.eos_rate is not None:
        lines.append(("ended", f"{share_text(state.eos_rate)} by end token", ()))
    for name, counts in (("rounds", state.lag_rounds), ("updates", state.lag_updates)):
        if counts:
            mean = f"{number_text(mean_lag(counts))} {name}"
            lines.append(("lag", f"{mean}  {histogram_text(counts, bars)}", ()))
    if state.version is not None:
        lines.append(("weights", f"version {state.version}", ()))
    return [line for line in lines if line[1]] or [("", "no round yet", ())]


def trainer_lines(state: LiveState, rows: Sequence[RoundRow]) -> list[Line]:
    """What is learnt, and how much of the time is spent on it."""
    lines: list[Line] = []
    for name, value, last, key in (
        ("reward", state.reward, state.reward_last, "reward"),
        ("KL", state.kl, state.kl_last, "kl"),
    ):
        if value is not None and last is not None:
            text = f"{number_text(value)} (last {number_text(last)})"
            lines.append((name, text, curve(rows, key)))
    if state.scores.name:
        values = state.scores.values
        lines.append(
            (state.scores.name, score_text(state.scores), values if len(values) > 1 else ())
        )
    if state.entropy is not None:
        text = f"{number_text(state.entropy)} nats/token"
        lines.append(("entropy", text, curve(rows, "entropy")))
    if state.grad_norm is not None:
        text = number_text(state.grad_norm)
        lines.append(("grad norm", text, curve(rows, "grad_norm")))
    if state.trained_per_second is not None:
        lines.append(("trains", f"{count_text(state.trained_per_second)} tokens/s", ()))
    lines.append(share_line("waits", state.trainer_waiting, state))
    lines.append(share_line("busy", state.training, state))
    return [line for line in lines if line[1]] or [("", "no round yet", ())]


def share_line(name: str, share: float | None, state: LiveState) -> Line:
    """`waits  53% of 10 rounds`; without a value where the share is unknown."""
    return (name, "" if share is None else f"{share_text(share)} of {state.window} rounds", ())


def curve(rows: Sequence[RoundRow], name: str) -> list[float]:
    """A number of every round that has it; [] for a single one."""
    values = [value for row in rows if (value := row.get(name)) is not None]
    return values if len(values) > 1 else []


def render(
    state: LiveState, rows: Sequence[RoundRow], width: int, bars: str = BARS
) -> RenderableType:
    """The run on a screen of so many columns. rows: of the curves."""
    if state.state == "unreadable":
        return Text(f"{state.name}: {state.problem}", style="red")
    parts: list[RenderableType] = [headline(state, width)]
    if rows:
        parts += lanes(state, rows, width, bars)
    parts += [one_line(f"· {text}", "dim") for text in state.events]
    if state.sample is not None:
        parts += sample_lines(state.sample)
    if state.problem:
        parts.append(one_line(state.problem, "red"))
    return Group(*parts)


def lanes(
    state: LiveState, rows: Sequence[RoundRow], width: int, bars: str
) -> Sequence[RenderableType]:
    """The panels of the generators and of the trainer."""
    is_wide = width >= SIDE_BY_SIDE
    inner = (width // 2 if is_wide else width) - FRAME
    title = "generator" if state.generators == 1 else f"{state.generators} generators"
    parts = {
        title if state.generators else "generator (the trainer itself)": generator_lines(
            state, rows, bars
        ),
        "trainer": trainer_lines(state, rows),
    }
    height = max(map(len, parts.values())) + 2 if is_wide else None
    panels = [
        Panel(grid(lines, inner, bars), title=title, height=height)
        for title, lines in parts.items()
    ]
    if not is_wide:
        return panels
    table = Table.grid(expand=True)
    for _ in panels:
        table.add_column(ratio=1)
    table.add_row(*panels)
    return [table]


def one_line(text: str, style: str = "") -> Text:
    """A text that is cut at the edge of the screen."""
    return Text(
        text.expandtabs(1).replace("\n", " | "), style=style, no_wrap=True, overflow="ellipsis"
    )


def headline(state: LiveState, width: int) -> Panel:
    """Name, state, settings, and how far the run is."""
    facts = " ".join(
        f"{name}={value}" if name in ("N", "S", "seed") else value
        for name, value in state.facts.items()
    )
    title = Text.assemble(
        (state.name, "bold"), "  ", (state.state, STYLES.get(state.state, "yellow"))
    )
    title.truncate(max(10, width - 8), overflow="ellipsis")
    lines: list[RenderableType] = [one_line(facts, "dim")]
    if text := stage_text(state):
        lines.append(one_line(text))
    lines.append(rounds_line(state, width))
    return Panel(Group(*lines), title=title, title_align="left")


def stage_text(state: LiveState) -> str:
    """What the process does now; "" for a run that does nothing any more."""
    if not state.is_running:
        return ""
    phase = phase_name(state.phase, state.generators)
    parts = [state.stage or ("" if phase else PREPARING)]
    if state.stage and state.stage != TRAIN:
        parts[0] += f" {state.stage_done}/{state.stage_total}"
        parts.append(seconds_text(state.stage_seconds))
        if state.stage_eta:
            parts.append(f"ETA {seconds_text(state.stage_eta)}")
        parts.append(numbers_text(state.stage_numbers))
    if phase:
        is_long = state.phase_seconds >= LONG_SECONDS
        parts.append(f"{phase} {seconds_text(state.phase_seconds)}" if is_long else phase)
    if state.silent >= SILENT_SECONDS:
        parts.append(f"no sign of it for {seconds_text(state.silent)}")
    return "  ".join(filter(None, parts))


def rounds_line(state: LiveState, width: int) -> Table:
    """`round 18/40 ━━━━━━━ 45%  elapsed 5s  ETA 6s`."""
    total, done = max(state.rounds, 1), state.rounds_done
    table = Table.grid(padding=(0, 1))
    texts = [f"elapsed {seconds_text(state.elapsed)}"]
    if state.eta is not None:
        texts.append(f"ETA {seconds_text(state.eta)}")
    cells: list[RenderableType] = [f"round {done}/{state.rounds}"]
    room = width - FRAME - len(cells[0]) - sum(map(len, texts)) - 10  # type: ignore[arg-type]
    if room >= 8:
        cells.append(ProgressBar(total=total, completed=done, width=min(BAR_WIDTH, room)))
    cells += [share_text(done / total), *texts]
    for _ in cells:
        table.add_column(no_wrap=True)
    table.add_row(*cells)
    return table


def grid(lines: Sequence[Line], width: int, bars: str) -> Table:
    """Name, value and curve of each line; curves take what is left of the width."""
    names = max(len(name) for name, _, _ in lines)
    values = max((len(value) for _, value, points in lines if points), default=0)
    room = min(SPARK_WIDTH, width - names - values - 2)
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(no_wrap=True, overflow="ellipsis")
    for name, value, points in lines:
        text = Text(value, no_wrap=True, overflow="ellipsis")
        if points and room >= LEAST_SPARK:
            gap = " " * (values - len(value) + 1)
            text.append(gap + sparkline(points, room, bars), style="cyan")
        table.add_row(name, text)
    return table


def sample_lines(sample: NewestSample) -> list[RenderableType]:
    score = "" if sample.score is None else f", score {number_text(sample.score)}"
    return [
        one_line(f"sample ({sample.origin}{score})", "dim"),
        one_line(f"  > {sample.prompt[-SAMPLE_CHARACTERS:]}"),
        one_line(f"  < {sample.response[:SAMPLE_CHARACTERS]}", "cyan"),
    ]
