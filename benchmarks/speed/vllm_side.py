"""vLLM's tokens per second, in its own environment: benchmarks.speed.vllm_side SPEC.

Prints one line of JSON: the median seconds of a round's generation, and its tokens.
"""

from __future__ import annotations

import sys
from statistics import median
from typing import Any

from benchmarks.speed.clock import seconds_of
from benchmarks.speed.spec import Spec, answer

TRIALS = 5


def measure_vllm(spec: Spec) -> dict[str, float]:
    """Generate the round a few times; the first is not counted."""
    from transformers import AutoTokenizer
    from vllm import LLM, SamplingParams

    # Of the device's memory: the trainer of a real run needs the rest.
    given: dict[str, Any] = {"gpu_memory_utilization": 0.4} if spec.device == "cuda" else {}
    model = LLM(
        model=str(spec.model_folder),
        dtype=spec.dtype,
        seed=spec.seed,
        enforce_eager=spec.device == "cpu",
        max_model_len=spec.max_prompt_tokens + spec.max_new_tokens,
        enable_prefix_caching=False,
        disable_log_stats=True,
        **given,
    )
    sampling = SamplingParams(
        n=spec.group_size, temperature=spec.temperature, max_tokens=spec.max_new_tokens
    )
    tokenizer = AutoTokenizer.from_pretrained(spec.model_folder)
    read = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in spec.queries()]
    prompts = [{"prompt_token_ids": tokens} for tokens in read[: spec.groups]]
    tokens: list[int] = []

    def generate() -> None:
        requests = model.generate(prompts, sampling, use_tqdm=False)
        tokens.append(sum(len(one.token_ids) for each in requests for one in each.outputs))

    seconds = seconds_of(generate, TRIALS)
    return {"seconds": median(seconds), "tokens": median(tokens[1:])}


if __name__ == "__main__":
    sys.exit(answer(measure_vllm))
