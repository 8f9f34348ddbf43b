"""Open the study of a search, and refuse one of another search."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlhf_lab.runs.reading import Unreadable, file_size, parsing
from rlhf_lab.sweeps.search.options import SearchOptions
from rlhf_lab.sweeps.search.space import Dimension
from rlhf_lab.sweeps.search.study import Study
from rlhf_lab.tasks.optional_packages import require_package
from rlhf_lab.types.errors import UserError

SPEC = "spec"
CODE = "code"
KEEP = ", or hydra.sweeper.other_code=keep to go on all the same"


@contextmanager
def open_study(
    path: Path, space: Sequence[Dimension], options: SearchOptions, spec: Mapping[str, Any]
) -> Iterator[Study]:
    """The study in a file, which is created if it does not exist. Raises UserError for a study of
    another search.

    spec: what must be the same when the search is continued, as JSON; `code` may be left out.
    """
    require_package(
        "optuna", "search", "hydra/sweeper=rlhf_lab_search", "search by a grid: train -m"
    )
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(path):
        file_size(path)
    with parsing(path, "study"):
        storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
    try:
        with parsing(path, "study"):
            study = optuna.create_study(
                storage=storage,
                study_name=path.parent.name,
                direction=options.direction.value,
                load_if_exists=True,
            )
            study.get_trials(deepcopy=False)
            before = study.user_attrs.get(SPEC)
        check_spec(path, before, spec)
        study.set_user_attr(SPEC, dict(spec))
        yield Study(study, space, options)
    finally:
        storage.remove_session()
        storage.engine.dispose()


def check_spec(path: Path, before: Mapping[str, Any] | None, spec: Mapping[str, Any]) -> None:
    """Refuse to continue a study of another search."""
    if before is None:
        return
    if not isinstance(before, Mapping):
        raise Unreadable(path, f"its {SPEC} is no mapping: restore it, or move it away")
    now = json.loads(json.dumps(spec))
    keys = sorted({*before, *now} - {CODE}) + [CODE] * (CODE in now)
    changed = [key for key in keys if before.get(key) != now.get(key)]
    if changed:
        key = changed[0]
        raise UserError(
            f"{path} is of a search with {key}={before.get(key)}, this one has "
            f"{key}={now.get(key)}: values of the two cannot be compared; pass another "
            f"output.root, or move that folder away{KEEP if key == CODE else ''}"
        )
