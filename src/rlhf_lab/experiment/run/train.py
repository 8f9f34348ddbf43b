"""One run's timed part: from the first rollout to the last update."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, Protocol

import torch

from rlhf_lab.experiment.build.engine import (
    EngineJob,
    build_teacher,
    build_value_model,
    engine_job,
    require_same_logits,
)
from rlhf_lab.experiment.build.policy import Sources
from rlhf_lab.experiment.build.prompts import chat_note
from rlhf_lab.experiment.build.rollout import build_pipeline
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.planning.forecast import kept_weights
from rlhf_lab.experiment.rules.checks import warnings
from rlhf_lab.experiment.rules.derived import (
    num_devices,
    probe_every,
    reference_groups,
    response_tokens,
    sampling_of,
)
from rlhf_lab.experiment.rules.devices import idle_cores
from rlhf_lab.experiment.rules.models import check_context
from rlhf_lab.experiment.run.round_warnings import NothingTrained, RoundWarnings
from rlhf_lab.models.devices import chosen, deterministic, release_unused
from rlhf_lab.models.reward_model import reward_model_shape
from rlhf_lab.models.weights import num_parameters
from rlhf_lab.rewards.options import parts, scoring_paths
from rlhf_lab.rollout.generators.options import RoundWeights
from rlhf_lab.runs.memory import keep_freed_memory
from rlhf_lab.runs.signals import SIGNALS
from rlhf_lab.training.checkpoint import Checkpoints
from rlhf_lab.training.checkpoint_files import Snapshot
from rlhf_lab.training.engines.broadcast_engine import STOP, follow
from rlhf_lab.training.engines.distributed import Processes, join, leave
from rlhf_lab.training.ledger import Ledger
from rlhf_lab.training.loop import Hooks, Loop
from rlhf_lab.training.probe import MismatchLimit
from rlhf_lab.training.round_metrics import token_texts
from rlhf_lab.types.data import ValueModel, Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.text_frame import TextFrame


class Output(Protocol):
    """Where a run writes its results, and the checkpoints that it resumes from."""

    @property
    def checkpoints(self) -> Checkpoints: ...

    def report(self, text: str) -> None:
        """Print a line."""
        ...

    def note(self, **facts: Any) -> None:
        """Record facts about the run."""
        ...

    def phase(self, words: str) -> AbstractContextManager[None]:
        """Show what is done while the block runs."""
        ...

    def opened(self, begin: int) -> AbstractContextManager[tuple[Hooks, float]]:
        """Discard what was written after round `begin` and open the rest for more. Gives the hooks
        of the loop, and the seconds of training that had passed by then."""
        ...


def learn(
    config: Config,
    sources: Sources,
    policy: tuple[Any, Any],
    output: Output,
    should_stop: Callable[[], bool] = lambda: False,
    state: Callable[[Snapshot | None], Snapshot | None] = lambda found: found,
    finishes_chunks: bool = False,
) -> Weights:
    """Train the policy from the newest checkpoint of the output, or from the beginning. Returns
    the last weights.

    policy: the model at version 0, which training changes, and its tokenizer. The only files that
    are read or written are those of the output, of the reward models and of a teacher.
    state(checkpoint): what is gone on from. finishes_chunks: whether a pause waits for all chunks
    on their way.
    """
    model, tokenizer = policy
    keep_freed_memory()
    torch.set_num_threads(config.engine.threads)
    check_context(config, model)
    with output.phase("preparing the training"):
        teacher = build_teacher(config, tokenizer)
        require_same_logits(config, model, teacher)
        report_settings(config, policy, output.report)
        pipe = build_pipeline(config, sources, model, tokenizer, output.report, should_stop)
        start = state(output.checkpoints.newest(pipe.chunk, output.report, pipe.restore_prompts))
    begin = start.round if start else 0
    refuse_past_pause(config, begin)
    if start:
        output.report(f"resumed at round {begin} of {config.run.num_rounds}")
    with ExitStack() as stack:
        stack.enter_context(deterministic(config.deterministic))
        hooks, wall = stack.enter_context(output.opened(begin))
        stack.enter_context(pipe)
        output.note(generation=list(pipe.notes))
        values = build_value_model(config, sources, model, tokenizer)
        ledger = new_ledger(config, sources, model, values, teacher)
        if start:
            ledger.restore(start.ledger, wall)
        job = engine_job(config, model, values, teacher, sources.policy)
        report_packing(job, output.report)
        loop = configured_loop(config, policy)(
            engine=stack.enter_context(job.led()),
            pipeline=pipe,
            ledger=ledger,
            hooks=watching(hooks, config, output, should_stop),
            checkpoints=output.checkpoints,
            finishes_chunks=finishes_chunks,
        )
        return loop.train(start)


def configured_loop(config: Config, policy: tuple[Any, Any]) -> partial[Loop]:
    """The loop, with all that config, model and tokenizer decide."""
    model, tokenizer = policy
    return partial(
        Loop,
        algo=config.algo,
        correction=config.correction,
        run_options=config.run,
        optim=config.optim,
        seed=config.seed,
        pad_id=TextFrame(tokenizer).pad,
        response_limit=response_tokens(config),
        probe_groups=config.tracker.probe_groups,
        probe_every=probe_every(config),
        compares_weights=config.tracker.changed_share,
        reference_groups=reference_groups(config),
        kept_samples=config.tracker.samples,
        token_texts=partial(token_texts, tokenizer),
        left_out={config.fork.round: config.fork.without_rows},
        mismatch=mismatch_limit(config, str(model.dtype).removeprefix("torch.")),
    )


def watching(
    hooks: Hooks, config: Config, output: Output, should_stop: Callable[[], bool]
) -> Hooks:
    """The hooks of an output, with the warnings about rounds and what stops a run."""
    warned = RoundWarnings(hooks.log, config, output.report)
    log = NothingTrained(warned, config, output.report)
    return replace(hooks, should_stop=lambda: hooks.should_stop() or should_stop(), log=log)


def report_settings(config: Config, policy: tuple[Any, Any], report: Callable[[str], None]) -> None:
    """Print what a user should know of the settings before the first step."""
    model, tokenizer = policy
    for warning in warnings(config):
        report(f"warning: {warning}")
    notes = [part.note for node in (config.reward, config.judge) for part in parts(node)]
    notes += chat_note(config, tokenizer), kept_weights(config, model), idle_cores(config, model)
    for line in filter(None, notes):
        report(line)


def report_packing(job: EngineJob, report: Callable[[str], None]) -> None:
    """Say why prompts are not shared, where they were to be."""
    if job.options.share_prompts and (problem := job.networks.packing_problem):
        report(f"engine.share_prompts=true: prompts are not shared, because {problem}")


def mismatch_limit(config: Config, policy_dtype: str) -> MismatchLimit | None:
    """How far generator and trainer may be apart; None where the config makes them differ, by
    rounding, kernels or precision. policy_dtype: of its weights."""
    generator, device = sampling_of(config), chosen(config.engine.device).type
    is_comparable = generator.draws_samples and not generator.has_own_kernels
    if not is_comparable or generator.round_weights is not RoundWeights.none:
        return None
    own = generator.dtype_on(chosen(generator.device).type, policy_dtype)
    if own != config.engine.on(device).dtype.value:
        return None
    is_half = own != "float32" or (config.engine.tf32 and device == "cuda")
    return MismatchLimit(is_half, generator.temperature)


def run_worker_rank() -> NoReturn:
    """A process beside the main rank: train with it until it sends stop. It gets models from the
    main rank; it reads no files, and writes none but its shards of checkpoints."""
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
    """Build each engine that rank 0 broadcasts, and follow its calls until it stops."""
    keep_freed_memory()
    while (job := processes.broadcast_call(None)) != STOP:
        torch.set_num_threads(job.options.threads)
        # Back to the kernels of before afterwards, as on rank 0.
        with deterministic(job.is_deterministic):
            if follow(job.engine(processes), processes) == STOP:
                return
        del job
        release_unused()


def new_ledger(
    config: Config, sources: Sources, policy: Any, values: Any | None, teacher: Any | None
) -> Ledger:
    has_own = config.algo.needs.values is ValueModel.own
    return Ledger(
        num_devices=num_devices(config),
        num_background=config.mode.num_background,
        policy_parameters=num_parameters(policy),
        reward_parameters=proxy_size(config, sources),
        value_parameters=num_parameters(values) if values is not None and has_own else 0,
        reference_parameters=0 if teacher is None else num_parameters(teacher),
    )


def proxy_size(config: Config, sources: Sources) -> int:
    """Parameters of the reward models that score the rollouts, 0 for a rule."""
    paths = scoring_paths(config.reward, sources.proxies)
    return sum(num_parameters(reward_model_shape(path)) for path in paths)


def refuse_past_pause(config: Config, done: int) -> None:
    """A run cannot pause at a round that lies behind it."""
    pause = config.checkpoint.pause_round
    if 0 < pause < done:
        raise UserError(
            f"checkpoint.pause_round={pause}: the run has done {done} rounds already; choose a "
            "later one, or 0 to go on to the end"
        )
