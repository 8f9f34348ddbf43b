"""One run's timed part: from the first rollout to the last update."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors.torch import save_file

from rlhf_lab import build
from rlhf_lab.checkpoint import Checkpoints
from rlhf_lab.checks import check_context, response_tokens, warnings
from rlhf_lab.config import Config
from rlhf_lab.engines.led import STOP, LedEngine, follow
from rlhf_lab.evals import Validate
from rlhf_lab.forward import load_weights
from rlhf_lab.ledger import Ledger
from rlhf_lab.loop import ALL, Hooks, Loop
from rlhf_lab.memory import keep_freed_memory
from rlhf_lab.models.causal_lm import load_policy, save_policy
from rlhf_lab.models.reward_model import load_reward_model
from rlhf_lab.processes import Processes, current, join, leave, together
from rlhf_lab.rows import read_rows
from rlhf_lab.runs import METRICS, POLICY, SCHEDULE, TIMELINE, cut_back
from rlhf_lab.scorers import reading_paths
from rlhf_lab.signals import SIGNALS
from rlhf_lab.trackers.console import Bar, Console
from rlhf_lab.trackers.identity import Tracked
from rlhf_lab.trackers.jsonl import JsonlFile, JsonlTracker
from rlhf_lab.trackers.mirrors import mirrors
from rlhf_lab.types import (
    Batch,
    Engine,
    Group,
    Metrics,
    Tracker,
    UserError,
    ValueModel,
    Weights,
    num_parameters,
)

FAILED_BATCH = "failed_batch"
Row = Mapping[str, Any]


def learn(
    config: Config,
    sources: build.Sources,
    folder: Path,
    console: Console,
    facts: Mapping[str, Any],
    should_stop: Callable[[], bool] = lambda: False,
) -> Weights:
    """Train from the newest checkpoint in the folder, or from the beginning; write metrics, kept
    versions and, if the run came to its end, the policy. Returns the last weights.

    facts: `resolved`, the config as plain data for the trackers that record it, `run_id`, and the
    `commit` of the code.
    """
    keep_freed_memory()
    torch.set_num_threads(config.engine.threads)
    model, tokenizer = load_policy(sources.policy, None, config.seed)
    check_context(config, model)
    for warning in warnings(config):
        console.say(f"warning: {warning}")
    state = dict(model.named_parameters())
    pipe = build.pipeline(config, sources, tokenizer, state, console.say, should_stop)
    checkpoints = Checkpoints(folder / "checkpoints", config.checkpoint)
    start = checkpoints.newest(pipe.chunk, console.say)
    begin = start.round if start else 0
    refuse_past_pause(config, begin)
    if start:
        console.say(f"resumed at round {begin} of {config.run.num_rounds}")
    wall, mirrored = cut_files(folder, begin)
    with ExitStack() as stack:
        trackers: list[Tracker] = [JsonlTracker(folder / METRICS)]
        tracked = Tracked(folder, facts["resolved"], facts["run_id"], commit=facts["commit"])
        trackers += mirrors(config.tracker, tracked, mirrored, console.say)
        for tracker in trackers:
            stack.callback(tracker.close)
        stack.enter_context(pipe)
        bar = stack.enter_context(console.stage(title(config), total=config.run.num_rounds))
        bar.advance(begin)
        values = build.value_model(config, sources, model, tokenizer)
        ledger = new_ledger(config, sources, num_parameters(model), values)
        if start:
            ledger.restore(start.ledger, wall)
        loop = Loop(
            algo=config.algo,
            correction=config.correction,
            engine=led_engine(config, sources, model, values),
            pipeline=pipe,
            recipe=config.run,
            optim=config.optim,
            ledger=ledger,
            seed=config.seed,
            pad_id=build.pad_id(tokenizer),
            response_limit=response_tokens(config),
            hooks=Hooks(
                log=logger(trackers, bar),
                record=recorder(folder, stack),
                save=saver(folder, kept_versions(config)),
                keep_batch=batch_keeper(folder),
                should_stop=should_stop,
            ),
            checkpoints=checkpoints,
            probe_groups=config.tracker.probe_groups,
            reference_groups=reference_groups(config),
        )
        weights = loop.train(start)
    if weights.version == config.run.num_rounds:
        # The engine may have cut the trained one into parts.
        trained, _ = load_policy(sources.policy, None, config.seed)
        load_weights(trained, weights)
        save_policy(trained, tokenizer, folder / POLICY)
    return weights


def led_engine(config: Config, sources: build.Sources, model: Any, values: Any | None) -> Engine:
    """The run's engine; with several processes, all of them make theirs."""
    processes = current()
    if processes.size == 1:
        return build.engine(config, model, values)
    with together(processes):
        processes.agreed((config, sources))
        return LedEngine(build.engine(config, model, values), processes)


def take_part() -> NoReturn:
    """A process of a run that another one leads: train with it until it says stop. Reads its
    config and models, writes nothing and says nothing."""
    # Signals are for the lead, which may want a checkpoint still.
    processes = join()
    for name in (*SIGNALS, signal.SIGINT):
        signal.signal(name, signal.SIG_IGN)
    try:
        work(processes)
    except BaseException as error:
        leave(processes, error)
    leave(processes, None)


def work(processes: Processes) -> None:
    """What a follower does between joining and leaving."""
    word = processes.agreed(None)
    if word == STOP:
        return
    config, sources = word
    keep_freed_memory()
    torch.set_num_threads(config.engine.threads)
    model, tokenizer = load_policy(sources.policy, None, config.seed)
    values = build.value_model(config, sources, model, tokenizer)
    follow(build.engine(config, model, values), processes)


def reference_groups(config: Config) -> int:
    """Groups per round that the reference is asked about."""
    asked = config.tracker.reference_groups
    return ALL if asked == ALL or build.reads_reference(config) else asked


def new_ledger(
    config: Config, sources: build.Sources, policy_parameters: int, values: Any | None
) -> Ledger:
    has_own = config.algo.needs.values is ValueModel.own
    return Ledger(
        num_devices=build.num_devices(config),
        num_background=config.mode.num_background,
        policy_parameters=policy_parameters,
        reward_parameters=proxy_size(config, sources),
        value_parameters=num_parameters(values) if values is not None and has_own else 0,
    )


def cut_files(folder: Path, begin: int) -> tuple[float, int]:
    """Cut what was written after round `begin`. Returns the wall-clock seconds that had passed by
    then, and how many rounds the mirrors have."""
    rows = read_rows(folder / METRICS)
    for name, key in ((METRICS, "step"), (SCHEDULE, "round"), (TIMELINE, "round")):
        cut_back(folder / name, begin, key)
    return (rows[-1]["seconds/wall"] if rows else 0.0), len(rows)


def title(config: Config) -> str:
    """What the bar of a run says."""
    return (
        f"{config.algo.name} {config.mode.name} N={config.run.updates_per_round} "
        f"S={config.mode.max_staleness}"
    )


def proxy_size(config: Config, sources: build.Sources) -> int:
    """Parameters of the reward models that score the rollouts, 0 for a rule."""
    paths = reading_paths(config.reward, sources.proxies)
    return sum(num_parameters(load_reward_model(path)[0]) for path in paths)


def logger(trackers: Sequence[Tracker], bar: Bar) -> Callable[[Metrics, int], None]:
    """Write a round everywhere, and show what matters."""

    def log(metrics: Metrics, round_: int) -> None:
        for tracker in trackers:
            tracker.log(metrics, round_)
        wall = metrics["seconds/wall"]
        bar.advance(
            1,
            reward=metrics["reward/mean"],
            kl=metrics["kl/sampled_reference_k1"],
            lag=metrics.get("lag/updates_mean", 0.0),
            waiting=metrics["seconds/wait"] / wall if wall else 0.0,
        )

    return log


def recorder(folder: Path, stack: ExitStack) -> Callable[[Sequence[Row], Sequence[Row]], None]:
    """Write down the schedule, and when what happened; the files close with the stack."""
    files = [JsonlFile(folder / name) for name in (SCHEDULE, TIMELINE)]
    for file in files:
        stack.callback(file.close)

    def record(*rows: Sequence[Row]) -> None:
        for file, part in zip(files, rows, strict=True):
            file.append(*part)

    return record


def refuse_past_pause(config: Config, done: int) -> None:
    """A run cannot pause at a round that lies behind it."""
    pause = config.checkpoint.pause_round
    if 0 < pause < done:
        raise UserError(
            f"checkpoint.pause_round={pause}: the run has done {done} rounds already; choose a "
            "later one, or 0 to go on to the end"
        )


def kept_versions(config: Config) -> set[int]:
    """The versions that will be read again: those of eval.snapshots, where the run pauses, and the
    last one if it is to be validated."""
    rounds = config.run.num_rounds
    versions = set(config.eval.versions(rounds))
    if config.checkpoint.pause_round:
        versions.add(config.checkpoint.pause_round)
    if config.eval.validate is not Validate.none:
        versions.add(rounds)
    return versions


def saver(folder: Path, keep: set[int]) -> Callable[[Weights], None]:
    """Keep the versions that will be evaluated."""
    (folder / "weights").mkdir(exist_ok=True)

    def save(weights: Weights) -> None:
        if weights.version in keep:
            save_file(
                dict(weights.state), folder / "weights" / f"{weights.version:06d}.safetensors"
            )

    return save


def batch_keeper(folder: Path) -> Callable[[Batch, Sequence[Group], str], None]:
    """Save a batch that could not be trained on: its tensors, its texts, and why."""

    def keep_batch(batch: Batch, groups: Sequence[Group], why: str) -> None:
        # Tensors may be one and the same, which the file format refuses.
        tensors = {name: tensor.clone().contiguous() for name, tensor in vars(batch).items()}
        save_file(tensors, folder / f"{FAILED_BATCH}.safetensors")
        chosen = sorted(set(batch.group_B.tolist()))
        rows = [
            {
                "uid": groups[place].prompt.example.uid,
                "prompt": groups[place].prompt.example.prompt,
                "samples": [sample.text for sample in groups[place].samples],
                "rewards": [repr(reward) for reward in groups[place].rewards],
            }
            for place in chosen
        ]
        text = json.dumps({"why": why, "groups": rows}, indent=1)
        (folder / f"{FAILED_BATCH}.json").write_text(text, encoding="utf-8")

    return keep_batch
