"""A generator over vLLM from its options, and what vLLM's engine gets of them."""

from __future__ import annotations

import copy
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rlhf_lab.models.devices import chosen
from rlhf_lab.rollout.generators.hf import Tokenizer
from rlhf_lab.rollout.generators.options import Lengths
from rlhf_lab.rollout.generators.vllm.generator import VLLMGenerator
from rlhf_lab.rollout.generators.vllm.options import VLLMSampling
from rlhf_lab.rollout.generators.vllm.proof import Proof
from rlhf_lab.rollout.generators.vllm.requests import Drawing, EngineFailure
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.text_frame import TextFrame

DIGITS = 16
CONFIG = "config.json"
CPU_ROWS = 256


def model_folder(model: Any, cache: Path | None) -> Path:
    """A folder in `cache` that is named by the hash of the model's config. vLLM's caches of
    compiled code depend on the name: the next run finds what this one has compiled. Processes may
    make the same folder at the same time. Without a cache the folder is a temporary one."""
    root = (cache or Path(tempfile.gettempdir()) / "rlhf_lab") / "vllm"
    root.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".new_", dir=root))
    try:
        save_config(model, made)
        digest = hashlib.sha256((made / CONFIG).read_bytes()).hexdigest()
        folder = root / f"{model.config.model_type}_{digest[:DIGITS]}"
        # Servers may run as another user.
        made.chmod(0o755)
        try:
            made.rename(folder)
        except OSError:
            # Another process has made the same folder, which appears whole or not at all.
            if not (folder / CONFIG).is_file():
                raise
        return folder.absolute()
    finally:
        shutil.rmtree(made, ignore_errors=True)


def save_config(model: Any, folder: Path) -> None:
    # A copy: several threads may do this with one model.
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)


def vllm_generator(
    options: VLLMSampling,
    tokenizer: Tokenizer,
    load_model: Callable[[], Any],
    lengths: Lengths,
    seed: int,
    cache: Path | None = None,
) -> VLLMGenerator:
    """load_model makes the policy in transformers: its weights are not read and may be on `meta`.
    seed is the rollout's. cache: the product's, which vLLM's model folder is kept in."""
    model = load_model().eval()
    proof = Proof(
        model,
        options.temperature,
        options.tolerance(dtype_of(options, model), name_of(model.dtype)),
        options.threads,
        chosen(options.device, "generator.device"),
    )
    try:
        backend = options.start_backend(model, lengths, cache)
    except EngineFailure as error:
        raise UserError(f"generator={options.name} could not start: {error}") from error
    drawing = Drawing(options.temperature, lengths.response, TextFrame(tokenizer).ends)
    return VLLMGenerator(backend, tokenizer, drawing, seed, proof, options.prove)


def visible_gpus(options: VLLMSampling) -> dict[str, str]:
    """The variable that shows vLLM, which always takes the first GPUs that it sees, those from
    generator.device on; none where the option names no number."""
    device, _, number = options.device.partition(":")
    if device != "cuda" or not number:
        return {}
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = shown.split(",") if shown else list(map(str, range(torch.cuda.device_count())))
    first = int(number)
    return {"CUDA_VISIBLE_DEVICES": ",".join(names[first : first + options.num_gpus])}


def engine_settings(options: VLLMSampling, model: Any, lengths: Lengths) -> dict[str, Any]:
    """Arguments of vLLM's engine. Weights are dummies, so that all that count are transferred."""
    copies = options.data_parallel_size
    # Prompts that are read in parts take a request's random generator back, which vLLM 0.32 cannot
    # do with one of a CPU: it fails.
    on_cpu = {"enable_chunked_prefill": False, "max_num_seqs": CPU_ROWS}
    # vLLM admits samples by the blocks of keys and values that are free, whatever the number.
    rows = {"max_num_seqs": options.max_num_seqs} if options.max_num_seqs else {}
    return {
        **({} if torch.cuda.is_available() else on_cpu),
        **rows,
        **({"data_parallel_size": copies} if copies > 1 else {}),
        "load_format": "dummy",
        # The folder holds a config alone, and requests hold token ids.
        "skip_tokenizer_init": True,
        "dtype": dtype_of(options, model),
        "tensor_parallel_size": options.tensor_parallel_size,
        "gpu_memory_utilization": options.gpu_memory_utilization,
        "max_model_len": sum(lengths),
        "enforce_eager": options.is_eager(torch.cuda.is_available()),
        # The distribution that is drawn from, at the temperature.
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        "seed": 0,
    }


def dtype_of(options: VLLMSampling, model: Any) -> str:
    """The type of vLLM's weights here."""
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    return options.dtype_on(device_type, name_of(model.dtype))


def name_of(dtype: torch.dtype) -> str:
    """The name of a type as options have it."""
    return str(dtype).removeprefix("torch.")
