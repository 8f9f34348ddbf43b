"""`task=verifiers`: environments of the package verifiers (0.4), played in this process.

An environment is a taskset, whose rows become prompts, and which speaks to the policy between its
actions. Its rewards score the conversation at the end.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from dataclasses import dataclass, field
from typing import Any

from rlhf_lab.tasks import fields
from rlhf_lab.tasks.optional_packages import MOST_ROWS, importing, require_package, seeded_globals
from rlhf_lab.tasks.text_games import NoTurn, TextGames, refused_settings
from rlhf_lab.tasks.verifiers_agent import Exchange, PolicyAgent, require_plain, unsupported
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Split

PACKAGE = "verifiers"


@dataclass(frozen=True)
class Verifiers(TextGames):
    """Rows of a taskset of the package verifiers, with its environment and its rewards."""

    name: str = limits.name(PACKAGE)
    env_id: str = limits.option(
        "",
        about="Name of an installed taskset of verifiers, or of a module that exports one.",
        trust=True,
    )
    config: str = limits.option(
        "{}",
        about=(
            "Settings of the environment as verifiers names them, a JSON object as text: those of "
            "the taskset are in `taskset`."
        ),
    )
    train_size: int = fields.size(1024, "train", max=MOST_ROWS)
    validation_size: int = fields.size(128, "validation", max=MOST_ROWS)
    test_size: int = fields.size(128, "test", max=MOST_ROWS)

    def require_usable(self, key: str) -> None:
        require_package("verifiers", "verifiers", f"{key}={self.name}")
        if not self.env_id:
            raise UserError(f"{key}.env_id='': pass {key}.env_id=<an installed taskset>")

    def seed(self, split: Split, index: int) -> int:
        """The place of the row in its taskset: those of train come first, then validation."""
        before = {
            Split.train: 0,
            Split.validation: self.train_size,
            Split.test: self.train_size + self.validation_size,
        }
        return before[split] + index

    def game(self) -> VerifiersGame:
        """A conversation. Raises UserError if the taskset is not one of conversations alone."""
        self.require_usable("task")
        return VerifiersGame(self)


@dataclass
class VerifiersGame:
    """One conversation."""

    task: Verifiers
    _exchange: Exchange | None = field(default=None, init=False)
    _traces: list[Any] = field(default_factory=list, init=False)

    def reset(self, seed: int) -> str:
        """Begin with the row at this place. Returns its prompt, or what opens the conversation."""
        environment, rows = loaded(self.task)
        row = rows[seed].with_data()
        place = f"task.env_id={self.task.env_id}, row {seed},"
        require_plain(row, place)
        (name,) = agents_of(environment)
        spec, traces = getattr(environment.config, name), list[Any]()
        # Nothing of the episode may hold this object: its end abandons the episode.
        self._traces = traces
        agent = functools.partial(PolicyAgent, name, spec, place=place, traces=traces)
        self._exchange = Exchange(lambda exchange: play(environment, row, agent(exchange)))
        weakref.finalize(self, self._exchange.abandon)
        first = self._exchange.begin()
        if first is None:
            raise NoTurn
        return first

    def step(self, action: str) -> tuple[str, float, bool, dict[str, float]]:
        """The environment's answer. All rewards come at the end, the weighted sum of all that the
        package recorded."""
        assert self._exchange is not None, "reset comes first"
        message = self._exchange.answer(action)
        if message is not None:
            return message, 0.0, False, {}
        info: dict[str, float] = {}
        for trace in self._traces:
            scores = {f"reward_{name}": one.value for name, one in trace.rewards.items() if one}
            metrics = {f"metric_{n}": one for n, one in trace.metrics.items() if one is not None}
            info |= scores | metrics
        return "", sum(trace.reward for trace in self._traces), True, info


class Agents:
    """The one agent of an environment, under its name."""

    def __init__(self, agent: PolicyAgent) -> None:
        setattr(self, agent.name, agent)


async def play(environment: Any, row: Any, agent: PolicyAgent) -> None:
    """An episode as the package plays it: setup, run, and what the environment makes of it."""
    from verifiers.v1.episode import EnvInfo, Episode
    from verifiers.v1.trace import TraceTask

    agents = Agents(agent)
    await environment.setup(agents)
    await environment.run(row, agents)
    recorded = TraceTask(type=type(row).__name__, data=row.data, key=row.key, hash=row.hash)
    episode = Episode(env=EnvInfo(id=environment.config.env_id), task=recorded)
    episode.traces = agent.traces
    await environment.finalize(row, episode)


def agents_of(environment: Any) -> list[str]:
    """Names of the agents that an environment has."""
    from verifiers.v1.configs.agent import agent_config_fields

    return list(agent_config_fields(environment.config))


@functools.lru_cache(maxsize=4)
def loaded(task: Verifiers) -> tuple[Any, list[Any]]:
    """The environment of the package and the rows of its taskset that the splits have. Raises
    UserError if there is none, it has too few rows, or needs more than a conversation."""
    settings = task.settings()
    taskset = {**settings.get("taskset", {}), "id": task.env_id}
    num = task.train_size + task.validation_size + task.test_size
    try:
        with seeded_globals(task.world_seed), importing():
            environment = environment_of({**settings, "taskset": taskset})
            rows = list(itertools.islice(environment.taskset, num))
    # Modules that are named by users, and their data, may raise anything.
    except Exception as error:
        raise refused_settings(task, error) from error
    place = f"task.env_id={task.env_id}"
    if len(agents_of(environment)) != 1:
        raise unsupported(place, f"has the agents {', '.join(agents_of(environment))}")
    if type(environment.taskset).toolsets(environment.taskset.config):
        raise unsupported(place, "has tools on servers (toolsets)")
    if len(rows) < num:
        raise UserError(
            f"{place} has {len(rows)} rows, and the splits need {num}: lower task.train_size, "
            "task.validation_size or task.test_size"
        )
    return environment, rows


def environment_of(data: dict[str, Any]) -> Any:
    """An environment of the package. Its agents' programs are never started: `null` is the one that
    needs nothing."""
    from verifiers.v1.configs.agent import agent_config_fields
    from verifiers.v1.utils.loaders import harness_config_type, load_environment, resolve_env_config

    config = resolve_env_config(data)
    nothing = harness_config_type("null").model_validate({"id": "null"})
    agents = {
        name: spec.model_copy(update={"harness": nothing})
        for name, spec in agent_config_fields(config).items()
    }
    return load_environment(config.model_copy(update=agents))
