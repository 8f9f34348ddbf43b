"""The study of a search: its trials in an SQLite file, and the sampler of the next. Only this
module and `study_file` import Optuna."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlhf_lab.runs.identity import RULE
from rlhf_lab.runs.reading import Unreadable, file_size, parsing
from rlhf_lab.sweeps.search.options import Sampler, SearchOptions
from rlhf_lab.sweeps.search.space import Dimension, Value, grid
from rlhf_lab.tasks.optional_packages import require_package
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import stable_hash

PROBLEM = "problem"
# PED-ANOVA needs at least five good trials.
LEAST_GOOD = 5
LEAST_TRIALS = 4
SPEC = "spec"
CODE = "code"
BASE = "base"
KEEP = ", or hydra.sweeper.other_code=keep to go on all the same"


@dataclass(frozen=True)
class Trial:
    """A setting and its results. state: running, complete (reached the last rung), pruned or
    failed. values: by rung. problem: why it failed."""

    number: int
    setting: Mapping[str, Value]
    state: str = "running"
    values: Mapping[int, float] = field(default_factory=dict)
    problem: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it is neither complete, pruned nor failed."""
        return self.state == "running"


class Study:
    """The trials so far. Every change is on disk when the call returns."""

    def __init__(self, study: Any, space: Sequence[Dimension], options: SearchOptions) -> None:
        self._study = study
        self._options = options
        self._distributions = {part.key: distribution(part) for part in space}
        self._grid = shuffled_grid(space, options) if options.sampler is Sampler.grid else []

    def trials(self) -> list[Trial]:
        """All trials, in the order in which they were drawn."""
        return [trial_of(frozen) for frozen in self._study.get_trials(deepcopy=False)]

    def draw(self) -> Trial:
        """The next setting. It depends on the trials so far and the sampler's seed alone, so a
        search that was killed continues with the same settings."""
        import optuna

        number = len(self._study.get_trials(deepcopy=False))
        setting = self._grid[number] if self._grid else self._sampled(number)
        self._study.add_trial(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState.RUNNING,
                params=setting,
                distributions=self._distributions,
            )
        )
        return self.trials()[number]

    def _sampled(self, number: int) -> dict[str, Value]:
        """Draw a setting on a copy, so that a killed search leaves no half of it in the file."""
        import optuna

        seed = stable_hash(self._options.sampler_seed, "trial", number) % 2**32
        sampler: Any = optuna.samplers.RandomSampler(seed=seed)
        if self._options.sampler is Sampler.tpe:
            startup = self._options.startup
            sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup)
        copy = optuna.create_study(direction=self._options.direction.value, sampler=sampler)
        copy.add_trials(self._study.get_trials(deepcopy=False))
        return dict(copy.ask(self._distributions).params)

    def report(self, number: int, rung: int, value: float) -> None:
        storage = self._study._storage
        storage.set_trial_intermediate_value(self._id(number), rung, value)

    def complete(self, number: int, value: float) -> None:
        self._study.tell(number, value)

    def prune(self, number: int) -> None:
        from optuna.trial import TrialState

        self._study.tell(number, state=TrialState.PRUNED)

    def fail(self, number: int, problem: str) -> None:
        from optuna.trial import TrialState

        self._study._storage.set_trial_user_attr(self._id(number), PROBLEM, problem)
        self._study.tell(number, state=TrialState.FAIL)

    def _id(self, number: int) -> int:
        trial_id: int = self._study.get_trials(deepcopy=False)[number]._trial_id
        return trial_id

    def importances(self) -> dict[str, float]:
        """The share of each hyperparameter in a trial being good (PED-ANOVA, arXiv:2304.10255), by
        the values at the first rung, which all trials have. Empty if there are too few trials,
        or if all values are equal."""
        import optuna

        trials = [trial for trial in self.trials() if 0 in trial.values]
        values = sorted({trial.values[0] for trial in trials})
        if len(trials) < LEAST_TRIALS or len(values) < 2:
            return {}
        equal = optuna.create_study(direction=self._options.direction.value)
        for trial in trials:
            equal.add_trial(
                optuna.trial.create_trial(
                    params=dict(trial.setting),
                    distributions=self._distributions,
                    value=trial.values[0],
                )
            )
        share = min(0.5, max(0.1, LEAST_GOOD / len(trials)))
        sign = -1.0 if self._options.direction.value == "maximize" else 1.0
        losses = sorted(sign * trial.values[0] for trial in trials)
        # Trials that tie with the worst good one are good too; if all are, none differs.
        if losses[-1] <= losses[int(np.ceil(share * len(losses))) - 1]:
            return {}
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=share)
        found = optuna.importance.get_param_importances(equal, evaluator=evaluator)
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


def distribution(part: Dimension) -> Any:
    from optuna import distributions

    if part.choices:
        return distributions.CategoricalDistribution(part.choices)
    if part.is_integer:
        step = int(part.step or 1)
        return distributions.IntDistribution(int(part.low), int(part.high), part.is_log, step)
    return distributions.FloatDistribution(part.low, part.high, part.is_log, part.step)


def shuffled_grid(space: Sequence[Dimension], options: SearchOptions) -> list[dict[str, Value]]:
    """All settings in random order, so that brackets are alike."""
    settings = grid(space)
    if options.trials > len(settings):
        size = options.bracket_size
        raise UserError(
            f"hydra.sweeper.trials={options.trials} with sampler=grid: the space has "
            f"{len(settings)} settings; choose {max(1, len(settings) // size) * size} or fewer"
        )
    rng = np.random.default_rng(stable_hash(options.sampler_seed, "grid") % 2**32)
    return [settings[number] for number in rng.permutation(len(settings))]


def trial_of(frozen: Any) -> Trial:
    names = {"RUNNING": "running", "COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
    return Trial(
        number=frozen.number,
        setting=dict(frozen.params),
        state=names[frozen.state.name],
        values=dict(frozen.intermediate_values),
        problem=frozen.user_attrs.get(PROBLEM, ""),
    )


@contextmanager
def open_study(
    path: Path, space: Sequence[Dimension], options: SearchOptions, spec: Mapping[str, Any]
) -> Iterator[Study]:
    """The study in a file, which is created if it does not exist. Raises UserError for a study of
    another search.

    spec: what must be the same when the search is continued, as JSON; `code` may be left out.
    """
    for package in ("optuna", "scipy"):
        require_package(
            package, "search", "hydra/sweeper=rlhf_lab_search", "search by a grid: train -m"
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
    if before is None:
        return
    if not isinstance(before, Mapping):
        raise Unreadable(path, f"its {SPEC} is no mapping: restore it, or move it away")
    now = json.loads(json.dumps(spec))
    keys = sorted({*before, *now} - {CODE}) + [CODE] * (CODE in now)
    # Hashes of another rule are not compared: the folders of the runs show what they are.
    rules = [str(spec_.get(BASE)).startswith(RULE) for spec_ in (before, now)]
    if rules == [False, True]:
        keys.remove(BASE)
    changed = [key for key in keys if before.get(key) != now.get(key)]
    if changed:
        key = changed[0]
        raise UserError(
            f"{path} is of a search with {key}={before.get(key)}, this one has "
            f"{key}={now.get(key)}: values of the two cannot be compared; pass another "
            f"output.root, or move that folder away{KEEP if key == CODE else ''}"
        )
