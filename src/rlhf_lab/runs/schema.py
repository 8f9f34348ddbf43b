"""Types and ranges of the values in a run's files of rows, as far as the lab reads them.

Rows may have further keys, and older runs lack some: a key that is there has its type. A reader
that needs a key checks rows with a stricter type.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, NotRequired, Required, get_type_hints

from pydantic import BeforeValidator, Field
from typing_extensions import TypedDict

from rlhf_lab.runs.reading import read_json
from rlhf_lab.types.samples import OFFLINE


def as_whole(value: Any) -> Any:
    """16.0 as 16: JSON does not distinguish them."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Whole numbers that float64 has exactly, which columns with gaps hold.
Count = Annotated[int, BeforeValidator(as_whole), Field(ge=0, le=2**53)]
# Of the weights that wrote a token; OFFLINE where none of the run did.
WriterVersion = Annotated[int, BeforeValidator(as_whole), Field(ge=OFFLINE, le=2**53)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Pid = Annotated[int, Field(ge=1, lt=2**31)]
Text = Annotated[str, Field(min_length=1)]


Segment = Annotated[list[Count], Field(min_length=2, max_length=2)]
# A version, and the virtual second from which it wrote.
Moment = Annotated[list[Amount], Field(min_length=2, max_length=2)]
# The virtual seconds of its start and its end.
Pause = Annotated[list[Amount], Field(min_length=2, max_length=2)]


class Scheduled(TypedDict, total=False):
    """A row of schedule.jsonl."""

    round: Required[Count]
    chunk: Required[Count]
    segments: Required[Annotated[list[Segment], Field(min_length=1)]]
    dropped: Required[bool]
    steps: Count
    segment_tokens: Count
    segment_turns: Count
    place: Count
    virtual_generator: Count
    virtual_seconds_start: Amount
    virtual_seconds_versions: Annotated[list[Moment], Field(min_length=1)]
    virtual_seconds_pauses: list[Pause]
    virtual_seconds_end: Amount
    virtual_seconds_taken: Amount


class Timed(TypedDict, total=False):
    """A row of timeline.jsonl."""

    lane: Required[Text]
    phase: Required[Text]
    start: Required[Finite]
    end: Required[Finite]
    round: Required[Count]
    version: Required[Count]
    chunk: Count | None


class Written(TypedDict, total=False):
    """A text of a sample; only those of the policy have numbers, and a reward only in episodes."""

    writer: Required[Text]
    text: Required[str]
    reward: Finite
    token_texts: list[str]
    logps: list[Finite | None]
    version: WriterVersion
    newest_version: WriterVersion
    versions: list[WriterVersion]


@dataclass(frozen=True)
class RolloutSample:
    """A sample that a round was trained on: a row of rollouts.jsonl.

    round: from 0, as in metrics.jsonl. updates: optimizer updates before the round. prompt_id:
    number of the prompt in the run. uid: of the task's example. sample: number in its group.
    credit: mean over the response tokens of what the algorithm gave them. is_kept: whether any
    update used the sample. version: oldest weights that wrote it; newest_version: those of its last
    token. lag_rounds, lag_updates: age of the oldest weights when the round began. tokens: length
    of the response. finish: eos, or length for the limit. steps: (last token, reward) of each step
    that was rewarded. turns: the texts of an episode with their writers; those of the policy with
    the reward of the turn, log-probs of the tokens, and the versions that wrote first and last.
    """

    round: Count
    updates: Count
    prompt_id: Count
    uid: str
    sample: Count
    prompt: str
    response: str
    reward: Finite
    credit: Finite
    is_kept: bool
    version: WriterVersion
    newest_version: WriterVersion
    lag_rounds: Count
    lag_updates: Count
    tokens: Count
    finish: str
    steps: list[Annotated[list[Finite], Field(min_length=2, max_length=2)]]
    turns: list[Written] = field(default_factory=list)

    @property
    def num_turns(self) -> int:
        """Turns of the policy in an episode; 0 without one, whose text has no reward of its own."""
        return sum("reward" in turn for turn in self.turns)

    def row(self) -> dict[str, Any]:
        """The sample as a row of the file."""
        return asdict(self)


def row_type(part: type) -> Any:
    """The type of rows with the fields of a dataclass; one that has a default may be missing."""
    hints = get_type_hints(part, include_extras=True)
    is_needed = {one.name: one.default_factory is MISSING for one in fields(part)}
    types = {name: hints[name] if is_needed[name] else NotRequired[hints[name]] for name in hints}
    make: Any = TypedDict
    return make(part.__name__, types)


HARNESS = "evaluations"
PATTERN = "harness*.json"


class HarnessResult(TypedDict):
    """Results of some tasks. version: of the policy. limit: most examples of a task. lm_eval:
    version of the harness. tasks: scores by task, `NAME_stderr` being the standard error of NAME.
    examples: how many each task had. fewshot: solved examples before each question."""

    version: Count
    seed: int
    limit: Count
    lm_eval: str
    tasks: dict[str, dict[str, float]]
    examples: dict[str, Count]
    fewshot: dict[str, int]


def read_harness(run: Path) -> Iterator[tuple[str, HarnessResult]]:
    """Label and results of every evaluation by the harness. Raises Unreadable."""
    for path in sorted((run / HARNESS).glob(PATTERN)):
        label = path.stem.removeprefix("harness").removeprefix("-")
        yield label, read_json(path, HarnessResult)
