"""TRL's side of the benchmark, in TRL's own environment.

python -m benchmarks.speed.trl_side SPEC

Prints one line of JSON: seconds, completions and tokens of the timed updates. rlhf_lab is not
imported here, so that nothing of it can slow TRL down or speed it up.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.speed.reward import Counted
from benchmarks.speed.spec import Spec, Timed


class Watch:
    """A callback that reads the clock and the reward's counts when the warm-up and the last update
    are over."""

    def __init__(self, warm_up: int, counted: Counted) -> None:
        self._warm_up = warm_up
        self._counted = counted
        self.marks: list[tuple[float, int, int]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self._warm_up:
            self.on_train_end(args, state, control)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.marks.append((perf_counter(), self._counted.completions, self._counted.tokens))

    @property
    def timed(self) -> Timed:
        start, end = self.marks
        return Timed(end[0] - start[0], end[1] - start[1], end[2] - start[2])


def arguments(spec: Spec, folder: str) -> dict[str, Any]:
    """Arguments of the trainer: nothing is evaluated, saved, logged or recomputed. Trainers that
    take K make one generation for each update, as our side does; online DPO generates anew for each
    forward pass, so there is only one."""
    found: dict[str, Any] = {
        "output_dir": folder,
        "max_steps": spec.warm_up + spec.updates,
        "learning_rate": spec.learning_rate,
        "lr_scheduler_type": "constant",
        "temperature": spec.temperature,
        "top_k": 0,
        "top_p": 1.0,
        "beta": spec.kl_coef,
        "seed": spec.seed,
        "use_cpu": True,
        "bf16": spec.dtype == "bfloat16",
        "gradient_checkpointing": False,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "disable_dropout": True,
    }
    if spec.algorithm == "online_dpo":
        rows, total, length = spec.groups, spec.groups, "max_new_tokens"
        found |= {"max_length": spec.max_prompt_tokens + spec.max_new_tokens}
    else:
        rows, total, length = min(spec.micro_rows, spec.rows), spec.rows, "max_completion_length"
        found |= {"num_generations": spec.group_size}
    steps = total // rows
    found |= {"per_device_train_batch_size": rows, "gradient_accumulation_steps": steps}
    return {**found, length: spec.max_new_tokens}


def trainer_of(spec: Spec, folder: str, **parts: Any) -> Any:
    """The trainer of the spec's algorithm with its arguments."""
    if spec.algorithm == "online_dpo":
        from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

        return OnlineDPOTrainer(args=OnlineDPOConfig(**arguments(spec, folder)), **parts)
    import trl

    name = spec.algorithm.upper()
    config, trainer = getattr(trl, f"{name}Config"), getattr(trl, f"{name}Trainer")
    return trainer(args=config(**arguments(spec, folder)), **parts)


def train(spec: Spec) -> Timed:
    """Train for the warm-up and the timed updates."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

    torch.set_num_threads(spec.threads)
    path = spec.model_folder
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    counted = Counted(tokenizer.eos_token_id)
    watch = type("Clock", (Watch, TrainerCallback), {})(spec.warm_up, counted)
    with tempfile.TemporaryDirectory() as folder:
        trainer_of(
            spec,
            folder,
            model=AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, spec.dtype)),
            processing_class=tokenizer,
            reward_funcs=[counted],
            train_dataset=Dataset.from_list([{"prompt": text} for text in spec.queries()]),
            callbacks=[watch],
        ).train()
    timed: Timed = watch.timed
    return timed


if __name__ == "__main__":
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    sys.stdout.write(json.dumps(asdict(train(Spec(**json.loads(text))))) + "\n")
