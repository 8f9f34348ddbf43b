"""hydra/sweeper=rlhf_lab_search: a search for hyperparameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, get_type_hints

from hydra.core.config_store import ConfigStore

from rlhf_lab.experiment.config.schema import default_of
from rlhf_lab.sweeps.options import SweeperOptions
from rlhf_lab.sweeps.plan_jobs import ContextSweeper
from rlhf_lab.sweeps.search.options import SearchOptions
from rlhf_lab.sweeps.sweep import OF_RUNS
from rlhf_lab.types.errors import UserError

NAME = "rlhf_lab_search"
# The options of sweeps that a search has too; `extend` is not needed for more trials.
OF_SWEEPER = ("dry", "rerun", "other_code")


class SearchSweeper(ContextSweeper):
    """See rlhf_lab.sweeps.search."""

    def __init__(self, params: Mapping[str, Any] | None, **options: Any) -> None:
        super().__init__(params)
        self._sweeper = SweeperOptions(**{key: options.pop(key) for key in OF_SWEEPER})
        self._options = SearchOptions(**options)

    def sweep(self, arguments: list[str]) -> Any:
        """Search. Raises JobsFailed if no setting could be chosen, or if the test failed."""
        context = self.context
        if context.command not in OF_RUNS:
            raise UserError(
                f"rlhf-lab {context.command} with hydra/sweeper={NAME}: a search compares runs; "
                "pass it to `rlhf-lab train -m`"
            )
        from rlhf_lab.sweeps.search.search import search

        every = [*(f"{key}={value}" for key, value in self.params.items()), *arguments]
        return search(context, every, self._options, self._sweeper)


def schema() -> type:
    """The options of both dataclasses, with types and defaults, as one schema for Hydra."""
    columns: list[Any] = [
        ("_target_", str, field(default=f"{__name__}.{SearchSweeper.__name__}")),
        ("_convert_", str, field(default="all")),
        ("params", dict[str, Any], field(default_factory=dict)),
    ]
    for part in (SweeperOptions, SearchOptions):
        hints = get_type_hints(part)
        columns += [
            (one.name, hints[one.name], default_of(one))
            for one in fields(part)
            if part is SearchOptions or one.name in OF_SWEEPER
        ]
    return dataclasses.make_dataclass("SearchSweeperOptions", columns)


ConfigStore.instance().store(group="hydra/sweeper", name=NAME, node=schema(), provider="rlhf_lab")
