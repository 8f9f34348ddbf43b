"""Facts of a run that follow from several options, and the devices of its processes."""

from __future__ import annotations

import math
import re
from dataclasses import fields, replace
from typing import Any

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.models.devices import chosen
from rlhf_lab.models.sampling import GenerationSettings
from rlhf_lab.rewards.fields import AUTO
from rlhf_lab.rewards.options import named_parts, num_proxies, reads_tokens
from rlhf_lab.rollout.generators.options import GeneratorOptions
from rlhf_lab.tasks.pairs import PairColumns, form_of
from rlhf_lab.training.engines.ranks import declared, world_size
from rlhf_lab.types.errors import UserError

PROBE_EVERY_ON_GPU = 10
FULL_SCORING = {"device": "cpu", "dtype": "float32"}


def generator_devices(config: Config) -> list[str]:
    """The device of each generator beside the trainer: generator number i takes the i-th GPU from
    generator.device=cuda:N on; with auto the i-th that no trainer of this machine uses, or all the
    trainer's where there are too few. One of several GPUs (vLLM's, with tensor or data parallelism)
    is named by its first. Those that share a server all have the device of the option.

    Raises UserError for a GPU that this machine does not have.
    """
    device, count = config.generator.device, config.mode.num_background
    if config.generator.address:
        return [device] * count
    size = config.generator.num_gpus
    if (named := re.fullmatch(r"cuda:(\d+)", device)) and count:
        first = int(named[1])
        require_gpus(device, first, count, size)
        return [f"cuda:{first + number * size}" for number in range(count)]
    if device == "auto" and count and chosen(device, "generator.device").type == "cuda":
        trained = trainer_gpus(config)
        free = [number for number in range(num_visible()) if number not in trained]
        if size > 1:  # its GPUs are neighbours
            free = [number for number in free if number > max(trained, default=-1)]
        if len(free) >= count * size:
            return [f"cuda:{number}" for number in free[: count * size : size]]
    return [device] * count


def require_gpus(device: str, first: int, count: int, size: int) -> None:
    """Raises UserError unless this machine has `count` times `size` GPUs from the first one on."""
    last = first + count * size - 1
    if last >= num_visible():
        raise UserError(
            f"generator.device={device} with mode.num_generators={count}: generators would take "
            f"{device} to cuda:{last}, and torch sees {num_visible()} GPUs here; pass "
            "a smaller mode.num_generators, or generator.device=cuda, which all of them share"
        )


def num_visible() -> int:
    """GPUs that torch sees here."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def trainer_gpus(config: Config) -> set[int]:
    """Numbers of the GPUs that the trainers of this machine use."""
    device = chosen(config.engine.device)
    if device.type != "cuda":
        return set()
    if device.index is not None:
        return {device.index}
    return set(range(declared("LOCAL_WORLD_SIZE", world_size())))


def response_tokens(config: Config) -> int:
    """Longest response, the end token included."""
    return config.generator.max_new_tokens or int(config.task.max_response_tokens)


def response_key(config: Config) -> str:
    """The key that bounds responses."""
    is_own = config.generator.max_new_tokens
    return "generator.max_new_tokens" if is_own else "task.max_response_tokens"


def observation_tokens(config: Config) -> int:
    """What the environment of an episode may write at most; 0 for a task without one."""
    return int(config.task.max_turns * config.task.max_observation_tokens)


def sample_tokens(config: Config) -> int:
    """What stands behind a prompt at most: the response, and observations between its turns."""
    return response_tokens(config) + observation_tokens(config)


def sequence_tokens(config: Config) -> int:
    """The longest sequence of a run: a prompt, and what stands behind it."""
    return int(config.task.max_prompt_tokens) + sample_tokens(config)


def sft_response_tokens(config: Config) -> int:
    """Longest reference that SFT reads, the end token included."""
    return config.sft.max_response_tokens or response_tokens(config)


def sft_tokens(config: Config) -> int:
    """Longest prompt with its reference that SFT reads."""
    longest = int(config.task.max_prompt_tokens) + sft_response_tokens(config)
    return min(longest, config.sft.max_tokens or longest)


def judged_tokens(config: Config) -> int:
    """The longest response that evaluation judges."""
    return config.eval.max_new_tokens or response_tokens(config)


def has_references(config: Config) -> bool:
    """Whether the task has reference answers, which SFT, proxies and win-rates need."""
    return bool(config.task.has_references)


def reads_reference_tokens(config: Config) -> bool:
    """Whether reward models of the run read reference answers; other rewards read their texts."""
    return has_references(config) and (reads_tokens(config.reward) or reads_tokens(config.judge))


def has_judge(config: Config) -> bool:
    """Whether samples are judged in evaluation."""
    return bool(config.judge.scores)


def trains_proxy(config: Config) -> bool:
    """Whether the run's reward needs a proxy reward model that the pipeline trains."""
    return num_proxies(config.reward) > 0


def trains_on_labels(config: Config) -> bool:
    """Whether samples of the run are pairs of the pipeline's own label stage."""
    if config.run.offline_share:
        return not config.run.offline_pairs
    return not config.generator.draws_samples and not config.generator.pairs_path


def pairs_file(config: Config) -> tuple[str, str]:
    """The user's file of fixed pairs that the run trains on, and the option that names it; '' for
    the file if there is none."""
    if config.run.offline_share:
        return config.run.offline_pairs, "run.offline_pairs"
    return config.generator.pairs_path, "generator.path"


def pair_columns(config: Config) -> PairColumns:
    """The columns of every set of pairs, and how their prompts are shown."""
    labels = config.labels
    return PairColumns(
        labels.prompt_column,
        labels.chosen_column,
        labels.rejected_column,
        labels.held_out_split,
        form=form_of(config.task),
    )


def is_verified(config: Config) -> bool:
    """Whether the judge's score means right or wrong: the rule of a verifiable task."""
    return bool(config.task.is_verifiable and config.judge.is_rule)


def chunks_per_round(config: Config) -> int:
    """Chunks that make up a round; the last one may be smaller."""
    return math.ceil(config.run.groups_generated / config.generator.chunk_groups)


def chunks_in_advance(config: Config) -> int:
    """Chunks that each generator beside the trainer may hold: those of a whole round, where it
    draws them side by side."""
    together = chunks_per_round(config) if config.generator.draws_together else 0
    return max(config.mode.prefetch, together)


def generation_settings(config: Config) -> GenerationSettings:
    """How a run's policy samples, for the generation config of a saved policy."""
    return GenerationSettings(config.generator.temperature, response_tokens(config))


def num_devices(config: Config) -> int:
    """Devices that the run holds, for device-seconds: GPUs if it trains on them, else cores."""
    if chosen(config.engine.device).type == "cuda":
        return num_gpus(config)
    training = config.engine.threads * world_size()
    background = config.mode.num_background * config.generator.threads
    return training + background if background else max(training, config.generator.threads)


def precision(config: Config) -> dict[str, dict[str, Any]]:
    """Where and how exactly a run computes here, for its manifest: what `auto` stands for. Reward
    models are named where they are not in float32 on a CPU."""
    trains_on = chosen(config.engine.device, "engine.device").type
    engine, generator = config.engine.on(trains_on), generator_precision(config)
    scoring = {}
    for key, part in [*named_parts("reward", config.reward), *named_parts("judge", config.judge)]:
        if part.is_learned or part.step_model_paths():
            by_generator = part.device == AUTO
            scores_on = generator["device"] if by_generator else chosen(part.device).type
            scoring[key] = {"device": scores_on, "dtype": part.dtype.on(scores_on).value}
    return {
        "engine": {
            "device": trains_on,
            "dtype": engine.dtype.value,
            "micro_tokens": engine.micro_tokens,
            "tf32": engine.tf32,
        },
        "generator": generator,
        **{key: found for key, found in scoring.items() if found != FULL_SCORING},
    }


def generator_precision(config: Config) -> dict[str, str]:
    """Device and type of the weights that the generator has here."""
    draws_on = chosen(config.generator.device, "generator.device").type
    policy = getattr(config.model, "policy_dtype", "float32")
    return {"device": draws_on, "dtype": sampling_of(config).dtype_on(draws_on, policy)}


def sampling_of(config: Config) -> GeneratorOptions:
    """The options of the generator. dtype: for generator=hf, float32 is what auto stands for with
    adapters beside weights of half precision, whose small updates rounding would undo."""
    part, model = config.generator, config.model
    is_free = part.decodes_here and part.dtype == "auto"
    if is_free and model.lora_rank and getattr(model, "dtype", "float32") != "float32":
        return replace(part, dtype="float32")
    return part


def num_gpus(config: Config) -> int:
    """GPUs of a run that trains on them: one for each trainer, those of its vLLM servers, and those
    of generators which are placed on none of the trainers'."""
    generator = config.generator
    if generator.server_gpus:
        return world_size() + generator.server_gpus
    names = generator_devices(config) or [generator.device]
    places = {chosen(name, "generator.device") for name in names}
    size = generator.num_gpus
    firsts = [place.index or 0 for place in places if place.type == "cuda"]
    used = {first + number for first in firsts for number in range(size)}
    return world_size() + len(used - trainer_gpus(config))


def reference_groups(config: Config) -> int:
    """Groups per round whose log-probs under the reference are computed."""
    from rlhf_lab.training.batch_builder import ALL

    groups = config.tracker.reference_groups
    return ALL if groups == ALL or config.algo.needs.reference else groups


def probe_every(config: Config) -> int:
    """Rounds from one measurement of the gaps to the next. It moves two versions of the policy back
    to the device: nothing beside a round on a CPU, a large part of one on a GPU."""
    is_gpu = chosen(config.engine.device).type == "cuda"
    return config.tracker.probe_every or (PROBE_EVERY_ON_GPU if is_gpu else 1)


def timing_settings(config: Config) -> dict[str, Any]:
    """The settings that decide a run's time, for `rlhf-lab plan`."""
    return {
        **{f.name: getattr(config.run, f.name) for f in fields(config.run)},
        "max_staleness": config.mode.max_staleness,
        "segment_tokens": config.mode.segment_steps,
        "is_virtual": config.mode.is_virtual,
        "num_generators": config.mode.num_background,
        "num_trainers": world_size(),
        "chunk_groups": config.generator.chunk_groups,
        "compares": bool(config.algo.needs.trained_rows),
    }
