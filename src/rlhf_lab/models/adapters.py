"""Low-rank adapters beside frozen weights (LoRA, arXiv:2106.09685), through peft.

The reference is the same model with its adapters off. Generators, evaluation and export get merged
weights under the names of the plain model, without adapters.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.models.heads import is_tied, with_tying_recorded
from rlhf_lab.models.loading import located, parsed
from rlhf_lab.models.options import ALL_LINEAR, Lora, PretrainedModel, require_peft
from rlhf_lab.models.weights import with_parameters
from rlhf_lab.types.data import Adapters, Weights
from rlhf_lab.types.errors import UserError

# peft's own names: of the only adapter, and of the module that an adapted one holds.
ADAPTER = "default"
BASE = "base_layer"
# Rows of a matrix that are counted for the share of the adapters' update that rounding leaves.
COUNTED_ROWS = 64


def with_adapters(model: Any, lora: Lora, seed: int, base: PretrainedModel | None = None) -> Any:
    """Insert adapters into the model, the only parameters that are trained then.

    A is drawn from the seed and B is zero, so that the policy starts as the reference. The adapters
    are float32 whatever the weights are. base: where the model is, which saved adapters name.
    Raises UserError for modules that cannot have adapters.
    """
    from peft import LoraConfig, inject_adapter_in_model

    targets = ALL_LINEAR if ALL_LINEAR in lora.targets else list(lora.targets)
    adapted = check_targets(model, lora)
    kinds = {type(module).__name__ for module in adapted.values()}
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=targets,
        lora_dropout=0.0,
        bias="none",
        # GPT-2 stores its matrices the other way round.
        fan_in_fan_out=kinds == {"Conv1D"},
        task_type="CAUSAL_LM",
        auto_mapping={
            "base_model_class": type(model).__name__,
            "parent_library": type(model).__module__,
        },
        **({} if base is None else place_of(base)),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(config, model)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
        elif "lora_" in name:
            raise RuntimeError(f"adapter {name} is not trained")
    return model.eval()


def place_of(base: PretrainedModel) -> dict[str, str]:
    """The fields of peft's config that name a base model: by its hub name, or where it is here."""
    name, where = located(base.path, base.revision)
    is_here = Path(name).exists()
    return {"base_model_name_or_path": str(Path(name).absolute()) if is_here else name, **where}


def merged(model: Any, path: str, key: str, revision: str = "") -> Any:
    """The model with the adapters of a folder or a repository of the hub in its weights, which are
    float32: W + scale * B A. A head that is tied gets weights of its own if it, or the embedding,
    has adapters.

    Raises UserError, naming the option `key`, for adapters that are damaged, of another model, or
    of a kind that cannot be merged.
    """
    require_peft(f"{key}={path}", f"{key}=<a whole model>")
    from peft import PeftConfig, get_peft_model, get_peft_model_state_dict
    from peft.utils import load_peft_weights, set_peft_model_state_dict

    name, where = located(path, revision)
    was_tied = is_tied(model)
    # What peft warns of is refused or repaired below.
    with parsed(path, key), warnings.catch_warnings(action="ignore"):
        adapted = get_peft_model(model, PeftConfig.from_pretrained(name, **where))
        weights = load_peft_weights(name, device="cpu", **where)
        loading = set_peft_model_state_dict(adapted, weights)
        expected = set(get_peft_model_state_dict(adapted, save_embedding_layers=False))
        if strange := sorted((expected - set(weights)) | set(loading.unexpected_keys)):
            raise ValueError(f"{strange[0]} is in its files or in its base, not in both")
        if not hasattr(adapted, "merge_and_unload"):
            raise ValueError("adapters of this kind have no weights to merge")
        head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
        if was_tied and (hasattr(head, BASE) or hasattr(embedding, BASE)):
            plain = getattr(head, BASE, head)
            plain.weight = torch.nn.Parameter(plain.weight.detach().clone())
        whole = adapted.merge_and_unload(safe_merge=True).requires_grad_(True)
    return with_tying_recorded(whole) if was_tied else whole


def check_targets(model: Any, lora: Lora) -> dict[str, Any]:
    """The modules that get adapters, by name, as peft finds them."""
    linear = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D"
    }
    head = model.get_output_embeddings()
    if ALL_LINEAR in lora.targets:
        return {name: module for name, module in linear.items() if module is not head}
    found = {
        name: module
        for name, module in model.named_modules()
        if any(name == target or name.endswith(f".{target}") for target in lora.targets)
    }
    for target in lora.targets:
        if not any(name == target or name.endswith(f".{target}") for name in found):
            known = sorted({name.rpartition(".")[2] for name in linear})
            raise UserError(
                f"model.lora_targets names {target}, which the model does not have: choose among "
                f"{', '.join(known)}, or [{ALL_LINEAR}]"
            )
    tied = model.get_input_embeddings().weight
    for name, module in found.items():
        if name not in linear or module.weight is tied:
            what = "is no linear module" if name not in linear else "is tied to the input embedding"
            raise UserError(
                f"model.lora_targets names {name}, which {what} and cannot have an adapter of its "
                f"own: choose other modules, or [{ALL_LINEAR}]"
            )
    return found


def num_trained(model: Any, lora: Lora) -> int:
    """Parameters of the adapters that `with_adapters` would insert: rank (O + I) beside a matrix of
    O outputs and I inputs."""
    return sum(lora.rank * sum(one.weight.shape) for one in check_targets(model, lora).values())


def adapted_modules(model: Any) -> dict[str, Any]:
    """The modules that have adapters, by name; none in a plain model."""
    return {name: module for name, module in model.named_modules() if hasattr(module, "lora_A")}


def has_adapters(model: Any) -> bool:
    """Whether only adapters of the model are trained."""
    return bool(adapted_modules(model))


@contextmanager
def adapters_off(model: Any) -> Iterator[Any]:
    """Inside, the model computes without its adapters, as the reference does."""
    modules = list(adapted_modules(model).values())
    for module in modules:
        module.enable_adapters(False)
    try:
        yield model
    finally:
        for module in modules:
            module.enable_adapters(True)


def plain_name(name: str) -> str:
    """The name that a parameter has in the model without adapters."""
    return name.replace(f".{BASE}.", ".")


def plain_names(model: Any) -> dict[str, str]:
    """The name that each weight has here, by its name in the model without adapters."""
    return {plain_name(name): name for name, _ in model.named_parameters() if not is_adapter(name)}


def merged_weight(model: Any, name: str) -> Tensor:
    """A copy of a weight, with W + scale * B A, in float32, in place of W where it has an
    adapter."""
    weight: Tensor = model.get_parameter(name).detach()
    owner, _, kind = name.rpartition(f".{BASE}.")
    if kind != "weight":
        return weight.clone()
    with torch.no_grad():
        delta = model.get_submodule(owner).get_delta_weight(ADAPTER)
        merged: Tensor = weight.float() + delta.float()
    return merged


def kept_share(model: Any, dtype: torch.dtype) -> float:
    """Share of the weights that adapters change which still differ from those below the adapters
    once both are rounded to a type. Of each matrix, O by I, N rows are counted."""
    kept, changed = [], []
    with torch.no_grad():
        for module in adapted_modules(model).values():
            whole = module.get_base_layer().weight
            rows_OI = whole.T if module.fan_in_fan_out else whole
            every = max(1, len(rows_OI) // COUNTED_ROWS)
            up_NR = module.lora_B[ADAPTER].weight[::every]
            delta_NI = module.scaling[ADAPTER] * up_NR @ module.lora_A[ADAPTER].weight
            base_NI = rows_OI[::every].float()
            differs_NI = (base_NI + delta_NI).to(dtype) != base_NI.to(dtype)
            kept.append((differs_NI & (delta_NI != 0)).sum())
            changed.append((delta_NI != 0).sum())
    total = float(torch.stack(changed).sum())
    return float(torch.stack(kept).sum()) / total if total else 1.0


def is_adapter(name: str) -> bool:
    """Whether a parameter's name is that of an adapter's A or B."""
    return ".lora_A." in name or ".lora_B." in name


# What the names of tensors in files of peft begin with.
PREFIX = "base_model.model."


def adapters_of(model: Any) -> Adapters:
    """A copy of a model's adapters on the host."""
    from peft import get_peft_model_state_dict

    config = model.peft_config[ADAPTER].to_dict() | {"inference_mode": True}
    # Sets have another order in each process.
    plain = {name: sorted(v) if isinstance(v, set) else v for name, v in config.items()}
    state = get_peft_model_state_dict(model, adapter_name=ADAPTER, save_embedding_layers=False)
    return Adapters(plain, {f"{PREFIX}{name}": own(tensor) for name, tensor in state.items()})


def own(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True).contiguous()


def fill_adapters(model: Any, weights: Weights) -> None:
    """Copy a version's adapters into those of a model. Raises ValueError if these are others."""
    from peft import set_peft_model_state_dict

    assert weights.adapters is not None
    given = weights.adapters.state
    shapes = {name: tensor.shape for name, tensor in adapters_of(model).state.items()}
    held = {name: tensor.shape for name, tensor in given.items()}
    if wrong := {name for name, _ in shapes.items() ^ held.items()}:
        raise ValueError(
            f"adapters of version {weights.version} are of another model: they differ in "
            f"{sorted(wrong)[:3]}"
        )
    plain = {name.removeprefix(PREFIX): tensor for name, tensor in given.items()}
    set_peft_model_state_dict(model, plain, adapter_name=ADAPTER)


def merged_version(model: Any, weights: Weights) -> Weights:
    """A version from a file, with its weights on the host: W + scale * B A in float32,
    as training merges them, where it is adapters. model: the plain one that they were trained
    beside, which stays as it is. Raises UserError without peft."""
    if weights.adapters is None:
        return weights
    require_peft(f"version {weights.version}, which is adapters,")
    from peft import PeftConfig, inject_adapter_in_model

    adapted = with_parameters(model, dict(model.named_parameters()))
    inject_adapter_in_model(PeftConfig.from_peft_type(**weights.adapters.config), adapted)
    fill_adapters(adapted, weights)
    state = {
        plain: merged_weight(adapted, name).cpu() for plain, name in plain_names(adapted).items()
    }
    return Weights(weights.version, state, weights.adapters)
