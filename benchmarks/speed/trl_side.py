"""TRL's side of the benchmark, in TRL's own environment.

python -m benchmarks.speed.trl_side SPEC

Prints one line of JSON: seconds, completions and tokens of the timed updates. rlhf_lab is not
imported here, so that nothing of it can slow TRL down or speed it up.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict
from time import perf_counter
from typing import Any

from benchmarks.speed.reward import Counted
from benchmarks.speed.spec import Spec, Timed, answer


class Watch:
    """Reads the clock and the reward's counts when the warm-up and the last update are over."""

    def __init__(self, warm_up: int, counted: Counted) -> None:
        self._warm_up = warm_up
        self._counted = counted
        self.marks: list[tuple[float, int, int]] = []

    def step_ended(self, step: int) -> None:
        if step == self._warm_up:
            self.mark()

    def mark(self) -> None:
        self.marks.append((perf_counter(), self._counted.completions, self._counted.tokens))

    @property
    def timed(self) -> Timed:
        (start, *before), (end, *after) = self.marks
        completions, tokens = (new - old for old, new in zip(before, after, strict=True))
        return Timed(end - start, completions, tokens)


def common(spec: Spec, folder: str) -> dict[str, Any]:
    """Arguments of every trainer: nothing is evaluated, saved, logged or recomputed."""
    return {
        "output_dir": folder,
        "max_steps": spec.warm_up + spec.updates,
        "learning_rate": spec.learning_rate,
        "lr_scheduler_type": "constant",
        "temperature": spec.temperature,
        "seed": spec.seed,
        "use_cpu": spec.device == "cpu",
        "bf16": spec.dtype == "bfloat16",
        "gradient_checkpointing": False,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "disable_dropout": True,
    }


def grouped(spec: Spec) -> dict[str, Any]:
    """Arguments of the trainers that take K: one generation for each update, as on our side."""
    rows = min(spec.micro_rows, spec.rows)
    return {
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": spec.rows // rows,
        "num_generations": spec.group_size,
        "max_completion_length": spec.max_new_tokens,
        "beta": spec.kl_coef,
        "top_k": 0,
        "top_p": 1.0,
    }


def paired(spec: Spec) -> dict[str, Any]:
    """Arguments of online DPO, which generates for each forward pass anew: so there is only one."""
    return {
        "per_device_train_batch_size": spec.groups,
        "gradient_accumulation_steps": 1,
        "max_new_tokens": spec.max_new_tokens,
        "max_length": spec.max_prompt_tokens + spec.max_new_tokens,
        "beta": spec.kl_coef,
        "top_k": 0,
        "top_p": 1.0,
    }


def trainer_of(spec: Spec, folder: str, **parts: Any) -> Any:
    """The trainer of the spec's algorithm with its arguments."""
    if spec.algorithm == "grpo":
        from trl import GRPOConfig, GRPOTrainer

        return GRPOTrainer(args=GRPOConfig(**common(spec, folder), **grouped(spec)), **parts)
    if spec.algorithm == "rloo":
        from trl import RLOOConfig, RLOOTrainer

        return RLOOTrainer(args=RLOOConfig(**common(spec, folder), **grouped(spec)), **parts)
    from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

    return OnlineDPOTrainer(args=OnlineDPOConfig(**common(spec, folder), **paired(spec)), **parts)


def train(spec: Spec) -> Timed:
    """Train for the warm-up and the timed updates."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

    torch.set_num_threads(spec.threads)
    tokenizer = AutoTokenizer.from_pretrained(spec.model, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(spec.model, dtype=getattr(torch, spec.dtype))
    counted = Counted(tokenizer.eos_token_id)
    watch = Watch(spec.warm_up, counted)

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            watch.step_ended(state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            watch.mark()

    prompts = Dataset.from_list([{"prompt": text} for text in spec.queries()])
    with tempfile.TemporaryDirectory() as folder:
        trainer_of(
            spec,
            folder,
            model=model,
            processing_class=tokenizer,
            reward_funcs=[counted],
            train_dataset=prompts,
            callbacks=[Clock()],
        ).train()
    return watch.timed


if __name__ == "__main__":
    sys.exit(answer(lambda spec: asdict(train(spec))))
