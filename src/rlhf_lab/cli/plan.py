"""`rlhf-lab plan` and `rlhf-lab cluster fit`: what other settings would take, predicted from the
seconds of a run, what layouts of named GPUs would take, predicted from sizes, and the virtual
cluster that behaves like a real asynchronous run.
"""

from __future__ import annotations

import argparse
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rlhf_lab.cli.arguments import is_option, primary_flags, recorded_overrides
from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from rlhf_lab.experiment.config.config import Config
    from rlhf_lab.experiment.planning.layouts.choice import Workload
    from rlhf_lab.experiment.planning.layouts.gpus import Gpu
    from rlhf_lab.experiment.planning.layouts.search import Plan


SETTINGS = (
    "of RUN: settings to predict, several values with commas: run.passes=1,2 mode=sync,async; with "
    "--gpu: the overrides of a run, as for `rlhf-lab train`, and layout=NODESxDEVICES:T+G"
)
FIXABLE = (
    "engine",
    "engine.dtype",
    "engine.micro_tokens",
    "engine.gradient_checkpointing",
    "generator.tensor_parallel_size",
)
OPEN = ("auto", "0")
MOST_NODES, MOST_DEVICES = 64, 64
FITTED = (
    *("generators", "sequences", "step_seconds", "prefill_tokens_per_second"),
    *("round_seconds", "order"),
)


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("words", nargs="*", metavar="RUN", help="a run that was trained")
    text = (
        "predict from sizes for this GPU (h200, h100, a100, ...; `this` measures this machine's; "
        "the path of a gpu_check.jsonl takes what `make gpu-check` measured)"
    )
    add("--gpu", default="", metavar="NAME", help=text)
    add("--devices", type=int, default=1, metavar="N", help="GPUs of each node (1)")
    add("--nodes", type=int, default=1, metavar="N", help="nodes (1)")
    add("--prompt-tokens", type=float, metavar="N", help="mean length of prompts (the longest)")
    add("--response-tokens", type=float, metavar="N", help="mean length of responses (the longest)")
    text = "mean length of the observations of an episode (the longest)"
    add("--observed-tokens", type=float, metavar="N", help=text)
    add("--rows", type=int, default=10, metavar="N", help="layouts to print (10)")
    text = "write the fastest layout there as a virtual cluster, for mode=virtual"
    add("--cluster", type=Path, metavar="FILE", help=text)
    parser.add_argument_group("KEY=VALUE", SETTINGS)


def plan(options: argparse.Namespace, console: Console) -> int:
    """Print what other settings of a run would take; with --gpu layouts for a config, or the error
    of the prediction for a run."""
    words = options.words
    is_of_run = words and not is_option(words[0])
    if options.gpu:
        require_counts(options)
        if is_of_run:
            run = Path(words[0])
            recorded = [*primary_flags(run, []), *recorded_overrides(run)]
            with_config(recorded, lambda config: compare(options, config, console), run)
        else:
            own = [word for word in words if not word.startswith("layout=")]
            texts = [word.removeprefix("layout=") for word in words if word not in own]
            with_config(own, lambda config: search(options, texts, own, config, console))
        return 0
    if not is_of_run:
        from rlhf_lab.experiment.planning.layouts.gpus import KNOWN

        line = shlex.join(["rlhf-lab", "plan", "--gpu", "NAME", *options.words])
        raise UserError(f"rlhf-lab plan without RUN needs --gpu NAME, as in {line}: choose {KNOWN}")
    folder = Path(options.words[0])
    from rlhf_lab.experiment.planning import planner

    planner.show(folder, options.words[1:], console)
    return 0


def require_counts(options: argparse.Namespace) -> None:
    for name, most in (("devices", MOST_DEVICES), ("nodes", MOST_NODES)):
        if not 1 <= getattr(options, name) <= most:
            raise UserError(f"--{name} {getattr(options, name)}: choose 1 to {most}")
    for name, least in (("prompt_tokens", 1), ("response_tokens", 1), ("observed_tokens", 0)):
        number = getattr(options, name)
        if number is not None and not least <= number <= 1e7:
            text = f"--{name.replace('_', '-')} {number:g}: choose {least} to 10 million tokens"
            raise UserError(text)


def with_config(
    overrides: Sequence[str], act: Callable[[Config], None], run: Path | None = None
) -> None:
    """Act on the config of these overrides, of a run if there is one. What a machine must have to
    run it is not required."""
    from rlhf_lab.cli.compose import compose
    from rlhf_lab.experiment.config.typed import typed
    from rlhf_lab.experiment.rules.checks import check

    def job(cfg: object) -> None:
        config = typed(cfg)  # type: ignore[arg-type]
        check(config, here=False)
        act(config)

    compose(job, overrides, run=run)


def search(
    options: argparse.Namespace,
    layouts: Sequence[str],
    overrides: Sequence[str],
    config: Config,
    console: Console,
) -> None:
    from rlhf_lab.experiment.config.layout import parsed
    from rlhf_lab.experiment.planning.layouts.choice import workload_of
    from rlhf_lab.experiment.planning.layouts.gpu_checks import show_checked
    from rlhf_lab.experiment.planning.layouts.gpus import is_measured, named
    from rlhf_lab.experiment.planning.layouts.search import layouts_of, show_layouts

    gpu = named(options.gpu)
    if is_measured(options.gpu):
        show_checked(Path(options.gpu), gpu, console)
    given = (options.prompt_tokens, options.response_tokens, options.observed_tokens)
    work = workload_of(config).with_lengths(*given)
    pairs = [text.partition("=")[::2] for text in overrides]
    fixed = {key: value for key, value in pairs if key in FIXABLE and value not in OPEN}
    copies = config.generator.num_gpus // config.generator.gpus_per_copy
    fixed["generator.data_parallel_size"] = str(copies)
    size = copies * int(fixed.get("generator.tensor_parallel_size", 1))
    chosen = [parsed(text) for text in layouts]
    for node in (node for layout in chosen for node in layout.placed()):
        node.servers(size)
    if not chosen:
        every = layouts_of(options.nodes, options.devices)
        chosen = [layout for layout in every if layout.has_servers_of(size)]
    plans = show_layouts(chosen, work, gpu, fixed, options.rows, overrides, console)
    if options.cluster:
        write_cluster(options.cluster, plans, work, gpu, console)


def write_cluster(
    path: Path, plans: Sequence[Plan], work: Workload, gpu: Gpu, console: Console
) -> None:
    """Write the virtual cluster of the fastest plan as an option of config group `cluster`."""
    from rlhf_lab.experiment.planning.cluster_fit import cluster_yaml
    from rlhf_lab.experiment.planning.cluster_rates import cluster_of, comments_of, fastest_apart

    choice = fastest_apart(plans)
    cluster = cluster_of(work, choice, gpu, path.stem)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(cluster_yaml(cluster, comments_of(work, choice, gpu)), encoding="utf-8")
    console.print(f"  wrote {path}: mode=virtual cluster={path.stem}")


def compare(options: argparse.Namespace, config: Config, console: Console) -> None:
    from rlhf_lab.experiment.planning.layouts.choice import workload_of
    from rlhf_lab.experiment.planning.layouts.errors import show_errors
    from rlhf_lab.experiment.planning.layouts.gpus import named
    from rlhf_lab.models.devices import torch_threads

    folder = Path(options.words[0])
    # The device is measured with as many threads as the run's trainer had.
    with torch_threads(config.engine.threads):
        gpu = named(options.gpu)
    work = workload_of(config)
    show_errors(folder, config, work, gpu, console)


PLAN = OptionsCommand(
    "plan",
    "predict other settings from a run's times, or layouts of GPUs",
    "runs/RUN mode=async run.passes=1,2",
    usage=(
        "RUN [key=value,value ...] | --gpu NAME [--devices N] [RUN [--trust] | layout=... "
        "key=value ...]"
    ),
    completes="folders",
    add_options=add_plan_options,
    action=plan,
)


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["fit"], help="fit: take the rates from a run")
    parser.add_argument("run", type=Path, metavar="RUN", help="a run of mode=free or mode=async")
    text = "write the options there, as an option of config group `cluster`"
    parser.add_argument("--out", type=Path, metavar="FILE", help=text)


def fit_cluster(options: argparse.Namespace, console: Console) -> int:
    """Print the rates of a run, and what they predict of it."""
    from rlhf_lab.experiment.planning.cluster_fit import cluster_yaml, distance, fitted

    fit = fitted(options.run)
    lags, wall = fit.predicted()
    values = asdict(fit.options)
    console.table(
        f"virtual cluster fitted to {options.run}",
        ("option", "value"),
        [[f"cluster.{name}", text_of(values[name])] for name in FITTED],
    )
    console.table(
        "the run, and what the cluster predicts of it",
        ("", "run", "predicted (virtual)"),
        [
            ["wall-clock", f"{fit.wall:.1f} s", f"{wall:.1f} virtual s"],
            ["share of chunks by lag", shares(fit.lags), shares(lags)],
        ],
    )
    console.print(
        f"error of the wall-clock {100 * (wall / fit.wall - 1):+.1f}%, total variation of the lags "
        f"{distance(fit.lags, lags):.3f}"
    )
    if options.out:
        comment = f"Fitted to {options.run.resolve().name} by `rlhf-lab cluster fit`."
        options.out.write_text(cluster_yaml(fit.options, [comment]), encoding="utf-8")
        console.print(f"wrote {options.out}")
    return 0


def text_of(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(getattr(value, "value", value))


def shares(lags: Sequence[int]) -> str:
    counts = Counter(lags)
    return ", ".join(f"{lag}: {100 * counts[lag] / len(lags):.0f}%" for lag in sorted(counts))


CLUSTER = OptionsCommand(
    "cluster",
    "fit a virtual cluster to the timeline of a run",
    "fit runs/RUN --out conf/cluster/mine.yaml",
    usage="fit RUN [--out FILE]",
    add_options=add_cluster_options,
    action=fit_cluster,
)
