"""Models and tokenizers from folders or the hub; what is not whole is refused with its option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import AutoConfig, AutoTokenizer

from rlhf_lab.memory import is_shortage
from rlhf_lab.models.quiet import first_line, quiet_transformers
from rlhf_lab.models.shape import require_shape
from rlhf_lab.types import UserError

WEIGHTS = ("*.safetensors", "*.bin", "*.index.json")
# Whatever transformers raises where it reads files of a model, they are what is wrong: it raises
# many kinds, and calls no code of ours there.
MISMATCH = "ignore_mismatched_sizes"


def located(path: str, revision: str = "") -> tuple[str, dict[str, str]]:
    """Name and keywords for from_pretrained. A hub name may carry its revision: NAME@REVISION."""
    if not revision and not Path(path).exists():
        path, _, revision = path.partition("@")
    return path, {"revision": revision} if revision else {}


def require_files(path: str, key: str) -> None:
    """Refuse a local folder without a config or without weights, saying which."""
    folder = Path(path)
    if not folder.is_dir():
        return
    remedy = "pass a folder made by save_pretrained"
    if not (folder / "config.json").is_file():
        raise UserError(f"{key}={path} has no config.json: {remedy}")
    if not any(True for pattern in WEIGHTS for _ in folder.glob(pattern)):
        raise UserError(f"{key}={path} has no weights (model.safetensors): {remedy}")
    require_shape(path, key)


def load_weights_of(kind: Any, path: str, key: str, revision: str = "", **options: Any) -> Any:
    """A model by one of transformers' Auto classes, every one of its parameters from the files.

    Raises UserError, naming the option `key`, where files are absent, damaged or incomplete.
    """
    require_files(path, key)
    name, where = located(path, revision)
    try:
        with quiet_transformers():
            model, loading = kind.from_pretrained(
                name, output_loading_info=True, **where, **options
            )
    except Exception as error:
        if is_shortage(error):
            raise
        if isinstance(error, RuntimeError) and MISMATCH in str(error):
            raise UserError(
                f"{key}={path} has weights of other shapes than its config.json says: pass the "
                "folder as save_pretrained wrote it"
            ) from error
        raise not_loadable(path, key, error) from error
    if missing := sorted(loading["missing_keys"]):
        raise UserError(
            f"{key}={path} holds no weights for {', '.join(missing[:3])}, which would be drawn at "
            f"random: pass {key}=<a model saved as {kind.__name__.removeprefix('AutoModelFor')}>"
        )
    return model


def load_config_of(path: str, key: str, revision: str = "") -> Any:
    """A model's config. Raises UserError, naming `key`, if there is none that could be."""
    require_shape(path, key)
    name, where = located(path, revision)
    try:
        with quiet_transformers():
            return AutoConfig.from_pretrained(name, **where)
    except Exception as error:
        raise not_loadable(path, key, error) from error


def load_tokenizer_of(path: str, key: str, revision: str = "") -> Any:
    """A tokenizer from a folder or the hub. Raises UserError, naming `key`, if there is none."""
    name, where = located(path, revision)
    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(name, **where)
    except Exception as error:
        raise no_tokenizer(path, key, first_line(error)) from error
    # Of some families, transformers makes an empty tokenizer where there are no files of one.
    if set(tokenizer.get_vocab().values()) <= set(tokenizer.all_special_ids):
        raise no_tokenizer(path, key, "its vocabulary is empty")
    return tokenizer


def no_tokenizer(path: str, key: str, why: str) -> UserError:
    """The refusal of a model without a tokenizer."""
    return UserError(
        f"{key}={path} has no tokenizer that could be loaded as a folder or from the hub ({why}): "
        f"pass {key}=<folder where model and tokenizer were saved by save_pretrained>"
    )


def not_loadable(path: str, key: str, error: BaseException) -> UserError:
    """The refusal of a model that is not there, or damaged."""
    what = "is damaged" if isinstance(error, SafetensorError) else "could not be loaded"
    known = "" if key.startswith("reward") else ", or model=smollm2_135m, which needs no hub"
    return UserError(
        f"{key}={path} {what} as a folder or from the hub ({first_line(error)}): pass "
        f"{key}=<local folder made by save_pretrained>{known}"
    )


def require_vocabulary(model: Any, tokenizer: Any, path: str, key: str) -> None:
    """Every token that the tokenizer can say must have a row in the model's embedding."""
    rows = int(model.get_input_embeddings().weight.shape[0])
    outside = {text: token for text, token in tokenizer.get_vocab().items() if token >= rows}
    if outside:
        text, token = max(outside.items(), key=lambda pair: pair[1])
        raise UserError(
            f"{key}={path}: its tokenizer has {len(outside)} tokens beyond the {rows} rows of its "
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
