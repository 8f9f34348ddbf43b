"""products.json: the artifacts that a run was made from, so that it finds them from any folder.

The cache belongs to the folder where a command is typed, and its keys to the version of the code;
a run's own artifacts are these, wherever it is read and by whatever code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from rlhf_lab.runs.disk import ENTRY, atomic_write, file_digest
from rlhf_lab.runs.identity import hash_of
from rlhf_lab.runs.reading import Unreadable, checked, read_json
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from rlhf_lab.experiment.config.config import Config


PRODUCTS = "products.json"
# Permits a command that works on a run to make what it was made from, if it is gone.
MAKE_STAGES = "--make-stages"
# Part of every key: other code makes another artifact from the same settings.
CODE = "code"
# Parts of keys: the engine that made an artifact, and the kind of device, where they decide bits.
BY_ENGINE = "by_engine"
ON_DEVICE = "on_device"


@dataclass(frozen=True)
class Product:
    """An artifact of a run. settings: hash of its key without code, engine and device. path: from
    the run's folder. absolute: where it was then. sha256: of its entry, which holds those of its
    files."""

    stage: str
    settings: str
    path: str
    absolute: str
    sha256: str


class Row(TypedDict):
    """A Product as products.json holds it."""

    stage: str
    settings: str
    path: str
    absolute: str
    sha256: str


@dataclass(frozen=True)
class RunProducts:
    """The recorded artifacts of the run in a folder, and whether missing ones may be made."""

    folder: Path | None = None
    recorded: tuple[Product, ...] = ()
    may_make: bool = True

    def find(self, stage: str, key: Mapping[str, Any], in_cache: Path) -> Path | None:
        """The folder of an artifact as the run recorded it. None where the cache has the same one,
        and where no unchanged one is found."""
        settings = settings_hash(key)
        for product in self.recorded:
            if (product.stage, product.settings) == (stage, settings):
                if Path(product.absolute).name == in_cache.name and in_cache.exists():
                    return None
                return self._unchanged(product, in_cache)
        return None

    def _unchanged(self, product: Product, in_cache: Path) -> Path | None:
        assert self.folder is not None, "what is recorded was read from a folder"
        near = Path(os.path.normpath(self.folder.absolute() / product.path))
        far = Path(product.absolute)
        for place in (near, far, in_cache.with_name(far.name)):
            entry = place / ENTRY
            if entry.is_file() and file_digest(entry) == product.sha256:
                return place
        return None

    def require_permission(self, stage: str, in_cache: Path) -> None:
        """Raise UserError where a missing artifact would be made again without --make-stages."""
        if self.may_make:
            return
        recorded = [product.absolute for product in self.recorded if product.stage == stage]
        places = " and ".join([*dict.fromkeys(recorded), str(in_cache)])
        raise UserError(
            f"output.cache={in_cache.parent.parent}: the {stage} of {self.folder} is not there "
            f"({places}): pass output.cache=FOLDER of the cache that holds it, or {MAKE_STAGES} "
            "to make it anew"
        )


@dataclass
class UsedProducts:
    """The artifacts that a command has used, by stage and settings."""

    folders: dict[tuple[str, str], Path] = field(default_factory=dict)

    def add(self, stage: str, key: Mapping[str, Any], folder: Path) -> None:
        self.folders[stage, settings_hash(key)] = folder

    def write(self, run: Path) -> None:
        """Write products.json into a run's folder."""
        rows = [
            asdict(product_at(stage, settings, folder.absolute(), run.absolute()))
            for (stage, settings), folder in self.folders.items()
        ]
        atomic_write(run / PRODUCTS, json.dumps({"products": rows}, indent=1) + "\n")


def product_at(stage: str, settings: str, folder: Path, run: Path) -> Product:
    """An artifact as it is recorded. Both paths are absolute."""
    path = os.path.relpath(folder, run)
    return Product(stage, settings, path, str(folder), file_digest(folder / ENTRY))


def products_of(run: Path, may_make: bool) -> RunProducts:
    """The recorded artifacts of a run; none of one that began before they were. Raises UserError
    if the file is damaged."""
    path = run / PRODUCTS
    if not path.is_file():
        return RunProducts(run, (), may_make)
    try:
        rows = checked(read_json(path, dict[str, Any]).get("products"), list[Row], path)
    except Unreadable as error:
        raise UserError(f"{error}: delete it to look for the artifacts in output.cache") from error
    return RunProducts(run, tuple(Product(**row) for row in rows), may_make)


def own_products(config: Config, may_make: bool) -> RunProducts:
    """What a run that is resumed was made from, or the run that this one replays or is a fork of.
    Artifacts of one that had not come so far are made."""
    before = config.mode.schedule if config.mode.is_replay else config.output.dir
    for folder in (before, config.fork.parent):
        found = products_of(Path(folder), may_make) if folder else RunProducts()
        if found.recorded:
            return found
    return RunProducts()


def settings_hash(key: Mapping[str, Any]) -> str:
    """The hash of a key's settings, by whatever code, engine and device it was made."""
    return hash_of(without_makers(key))


def without_makers(value: Any) -> Any:
    """Plain values without code, engine and device, which keys of earlier stages hold too."""
    if not isinstance(value, Mapping):
        return value
    makers = (CODE, BY_ENGINE, ON_DEVICE)
    return {name: without_makers(one) for name, one in value.items() if name not in makers}
