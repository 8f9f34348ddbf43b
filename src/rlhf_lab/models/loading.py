"""Models and tokenizers from folders or the hub; what is not whole is refused with its option."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from huggingface_hub import constants, get_safetensors_metadata
from huggingface_hub.errors import NotASafetensorsRepoError
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoTokenizer
from transformers.utils.hub import cached_file
from transformers.utils.peft_utils import find_adapter_config_file

from rlhf_lab.models.folders import require_config, require_files
from rlhf_lab.models.layer_stack import stack_of
from rlhf_lab.models.numerical_check import padding_problem
from rlhf_lab.models.quiet import first_line, quiet_transformers
from rlhf_lab.models.sampling import end_tokens
from rlhf_lab.models.weights import MetaWeights
from rlhf_lab.runs.memory import is_shortage
from rlhf_lab.runs.reading import MEBIBYTE, REASON, Unreadable, is_parsers, read_json
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.text_frame import framed

SINGLE, PICKLE = "model.safetensors", "pytorch_model.bin"
INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
INDEX_BYTES = 64 * MEBIBYTE
CONFIG_BYTES = 16 * MEBIBYTE
MISMATCH = "ignore_mismatched_sizes"


def weight_names(path: str, where: Mapping[str, Any]) -> set[str] | None:
    """The names in a folder or a repository of the hub; None where they are known only once the
    weights are read: one file of pickles, and, without a network, what was never downloaded.

    where: keywords of the hub, of which only indices and headers are downloaded.
    """
    for name in INDICES:
        if index := file_of(path, name, where):
            return set(read_json(index, dict[str, Any], INDEX_BYTES)["weight_map"])
    here = {**where, "local_files_only": True}
    if file := file_of(path, SINGLE, here):
        with safe_open(file, framework="pt") as opened:
            return set(opened.keys())
    if Path(path).is_dir() or constants.HF_HUB_OFFLINE or file_of(path, PICKLE, here):
        return None
    try:
        metadata = get_safetensors_metadata(path, **where)
    except NotASafetensorsRepoError:
        return None
    return set(metadata.weight_map)


def file_of(path: str, name: str, where: Mapping[str, Any]) -> Path | None:
    """A file of a folder or a repository; None if it is not there."""
    file = cached_file(
        path,
        name,
        **where,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if file is None else Path(file)


@dataclass(frozen=True)
class Base:
    """The model that adapters were trained beside. path, revision: where it is. key: what names it
    in refusals. has_tokenizer: whether the adapters bring one of their own. kind: its class; ''
    where their config names none."""

    path: str
    revision: str
    key: str
    has_tokenizer: bool
    kind: str


def base_of(path: str, where: Mapping[str, str], key: str) -> Base | None:
    """The base model of the adapters in a folder or a repository of the hub; None for whole models.
    where: keywords of the hub. Raises UserError, naming the option `key`, where the adapters'
    config names none."""
    try:
        found = find_adapter_config_file(path, **where)
    except OSError:
        return None  # nothing is there: the refusal is that of a whole model
    if found is None:
        return None
    try:
        config = read_json(Path(found), dict[str, Any], CONFIG_BYTES)
    except Unreadable as error:
        text = f"{key}={path} could not be loaded ({error}): save the adapters again"
        raise UserError(text) from error
    base = config.get("base_model_name_or_path")
    if not isinstance(base, str) or base in ("", path):
        raise UserError(
            f"{key}={path}: its adapter_config.json has no base_model_name_or_path: write there "
            "the hub name or folder of the model that the adapters were trained beside"
        )
    own = cached_file(
        path,
        "tokenizer_config.json",
        **where,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    named = f"{key}={path}: base_model_name_or_path"
    mapping = config.get("auto_mapping")
    kind = mapping.get("base_model_class") if isinstance(mapping, dict) else None
    return Base(base, str(config.get("revision") or ""), named, own is not None, str(kind or ""))


def located(path: str, revision: str = "") -> tuple[str, dict[str, str]]:
    """Name and keywords for from_pretrained. A hub name may carry its revision: NAME@REVISION."""
    if not revision and not Path(path).exists():
        path, _, revision = path.partition("@")
    return path, {"revision": revision} if revision else {}


@contextmanager
def parsed(path: str, key: str) -> Iterator[None]:
    """Errors of a package that reads a model in the block, as a UserError that names the option."""
    try:
        with quiet_transformers():
            yield
    except BaseException as error:
        if is_shortage(error) or not is_parsers(error):
            raise
        raise not_loadable(path, key, error) from error


def load_weights_of(kind: Any, path: str, key: str, revision: str = "", **options: Any) -> Any:
    """A model by one of transformers' Auto classes, every one of its parameters from the files.

    Raises UserError, naming the option `key`, where files are absent, damaged or incomplete.
    """
    require_files(path, key)
    name, where = located(path, revision)
    with parsed(path, key):
        model, loading = kind.from_pretrained(
            name, output_loading_info=True, trust_remote_code=False, **where, **options
        )
    if missing := sorted(loading["missing_keys"]):
        raise no_weights(kind, missing, path, key)
    require_finite(model, path, key)
    return model


def require_head(kind: Any, model: Any, path: str, key: str) -> None:
    """Refuse files without weights for the head of a model, by their headers alone. model: of
    `shape_of`. Files whose names are known only once they are read as a whole are not refused."""
    name, where = located(path)
    with parsed(path, key):
        found = weight_names(name, where)
    body = f"{model.base_model_prefix}."
    head = [one for one, _ in model.named_parameters() if not one.startswith(body)]
    missing = [one for one in head if not any(saved.endswith(one) for saved in found or head)]
    if missing:
        raise no_weights(kind, missing, path, key)


def no_weights(kind: Any, missing: Sequence[str], path: str, key: str) -> UserError:
    """The refusal of files without some of a model's weights."""
    return UserError(
        f"{key}={path} holds no weights for {', '.join(missing[:3])}, which would be drawn at "
        f"random: pass {key}=<a model saved as {kind.__name__.removeprefix('AutoModelFor')}>"
    )


def require_finite(model: Any, path: str, key: str) -> None:
    """Refuse weights that are NaN or infinite, of which every output would be."""
    for name, weight in model.named_parameters():
        if weight.is_floating_point() and not torch.isfinite(weight).all():
            raise UserError(
                f"{key}={path} has weights in {name} that are NaN or infinite: its training went "
                "astray, or its files are damaged; pass another version of it"
            )


def load_config_of(path: str, key: str, revision: str = "") -> Any:
    """A model's config, of adapters that of their base. Raises UserError, naming `key`, if there is
    none."""
    name, where = located(path, revision)
    if base := base_of(name, where, key):
        return load_config_of(base.path, base.key, base.revision)
    require_config(path, key)
    with parsed(path, key):
        return AutoConfig.from_pretrained(name, trust_remote_code=False, **where)


def load_tokenizer_of(path: str, key: str, revision: str = "") -> Any:
    """A tokenizer from a folder or the hub, marked with the text frame of its model; that of their
    base for adapters without one. Raises UserError, naming `key`, if there is none."""
    name, where = located(path, revision)
    base = base_of(name, where, key)
    if base and not base.has_tokenizer:
        return load_tokenizer_of(base.path, base.key, base.revision)
    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False, **where)
            # Of some families, transformers makes an empty one where there are no files.
            is_empty = set(tokenizer.get_vocab().values()) <= set(tokenizer.all_special_ids)
    except BaseException as error:
        if not is_parsers(error):
            raise
        raise no_tokenizer(path, key, first_line(error)) from error
    if is_empty:
        raise no_tokenizer(path, key, "its vocabulary is empty")
    # Defaults of config classes may name tokens that the vocabulary does not have.
    ends = [token for token in end_tokens(name, where, key) if token < len(tokenizer)]
    try:
        with quiet_transformers():
            return framed(tokenizer, ends)
    except BaseException as error:
        if not is_parsers(error):
            raise
        raise no_tokenizer(path, key, first_line(error)) from error


def shape_of(kind: Any, config: Any, path: str, key: str, **options: Any) -> Any:
    """The model that a config describes, by one of transformers' Auto classes, without weights:
    its parameters are on `meta`, its buffers have values.

    Raises UserError, naming the option `key`, where the config describes none.
    """
    with parsed(path, key), MetaWeights():
        return kind.from_config(config, trust_remote_code=False, **options)


def no_tokenizer(path: str, key: str, why: str) -> UserError:
    """The refusal of a model without a tokenizer. Those of reward models may be elsewhere."""
    remedy = f"pass {key}=<folder where model and tokenizer were saved by save_pretrained>"
    if is_of_scorer(key):
        remedy = f"pass {tokenizer_key(key)}=<hub name or folder of its tokenizer>"
    return UserError(
        f"{key}={path} has no tokenizer that could be loaded as a folder or from the hub ({why}): "
        f"{remedy}"
    )


def is_of_scorer(key: str) -> bool:
    """Whether the model that an option names scores samples."""
    return key.startswith(("reward", "judge"))


def tokenizer_key(key: str) -> str:
    """The option that names the tokenizer of a reward model, by that which names the model."""
    return f"{key.rpartition('.')[0]}.tokenizer"


def not_loadable(path: str, key: str, error: BaseException) -> UserError:
    """The refusal of a model that is not there, or damaged."""
    if MISMATCH in str(error):
        return UserError(
            f"{key}={path} has weights of other shapes than its config.json says: pass the folder "
            "as save_pretrained wrote it"
        )
    if isinstance(error, UnpicklingError):
        return UserError(
            f"{key}={path} has weights in a pickle that holds more than tensors, or is damaged; it "
            "is not run: save the model again as safetensors, where you trust it"
        )
    what = "is damaged" if isinstance(error, SafetensorError) else "could not be loaded"
    known = "" if is_of_scorer(key) else ", or model=smollm2_135m, which needs no hub"
    return UserError(
        f"{key}={path} {what} as a folder or from the hub ({reason(error)}): pass "
        f"{key}=<local folder made by save_pretrained>{known}"
    )


def reason(error: BaseException) -> str:
    """What another package complains of, in a line of bounded length, with the kind of error where
    the message alone may not tell."""
    line = first_line(error)[:REASON]
    is_plain = isinstance(error, OSError | ValueError | SafetensorError)
    return line if is_plain else f"{type(error).__name__}: {line}"


def require_vocabulary(model: Any, tokenizer: Any, path: str, key: str) -> None:
    """Raise UserError unless every token of the tokenizer has a row in the model's embedding."""
    rows = int(model.get_input_embeddings().weight.shape[0])
    outside = {text: token for text, token in tokenizer.get_vocab().items() if token >= rows}
    if outside:
        text, token = max(outside.items(), key=lambda pair: pair[1])
        raise UserError(
            f"{key}={path}: its tokenizer has {len(outside)} tokens beyond the {rows} rows of the "
            f"model's embedding, up to {text!r} = {token}: pass a folder whose model and tokenizer "
            "belong together"
        )


def require_end_token(tokenizer: Any, path: str, key: str) -> None:
    """A policy must be able to end its answer."""
    if tokenizer.eos_token_id is None:
        raise UserError(
            f"{key}={path}: its tokenizer has no end token, so no answer could ever end: set "
            "eos_token in its tokenizer_config.json"
        )


def require_padded_rows(model: Any, path: str, key: str) -> None:
    """Raise UserError unless a policy reads rows with padding as it reads each row alone."""
    if stack_of(model) is None and (problem := padding_problem(model.eval())):
        raise UserError(
            f"{key}={path}: rows of {type(model).__name__} cannot be read side by side, because it "
            f"does not mask their padding ({problem}): pass a model of another family"
        )
