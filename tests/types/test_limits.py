"""Every number of the config has a range, and what is out of it is refused in one line."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlhf_lab.cli.exit_codes import message
from rlhf_lab.evaluation.options import EvalOptions
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.config.keys import sections
from rlhf_lab.experiment.config.schema import schema_of
from rlhf_lab.experiment.config.typed import live
from rlhf_lab.models.options import ScratchModel
from rlhf_lab.sweeps.search.options import SearchOptions
from rlhf_lab.tasks.arithmetic import Arithmetic
from rlhf_lab.training.engines.options import SingleEngineOptions
from rlhf_lab.training.optim import Optim
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.ranges import Range, items
from rlhf_lab.types.run_options import RunOptions
from tests.conftest import MakeConfig
from tests.support.composed import registered
from tests.support.examples import call
from tests.support.variants import names

pytestmark = pytest.mark.usefixtures("costly")

REFUSALS = (UserError, HydraException, OmegaConfBaseException)
# As they stand in an override; Hydra reads text, lists, truth and numbers out of them.
VALUES = ("nan", "inf", "-inf", "-1", "0", "1e30", str(10**30), "some", "[1]", "true", "null")
# What a part cannot be made without.
NEEDED: dict[str, dict[str, Any]] = {
    "ScratchModel": {"name": "s", "hidden_size": 16, "num_layers": 1, "num_heads": 2},
    "PretrainedModel": {"name": "p", "path": "somewhere"},
    "CombinedReward": {"terms": {"rule": {}, "other": {}}},
    "PerTaskReward": {"terms": {"sums": {}}},
    "Mixture": {"tasks": {"sums": Arithmetic()}, "weights": {"sums": 1.0}},
    "EngineOptions": {"name": "single"},
}


def schemas() -> dict[str, list[type]]:
    """Every part of the config, by where it is mounted."""
    found: dict[str, list[type]] = {"hydra.sweeper": [SearchOptions]}
    for title, (part, _) in sections().items():
        found.setdefault(title.partition("=")[0], []).append(part)
    return found


def numbers() -> Iterator[tuple[str, type, limits.Column]]:
    """Every field that holds numbers by its type, with its part."""
    for key, parts in schemas().items():
        for part in parts:
            for column in limits.columns(part):
                if {int, float} & set(limits.types_of(get_type_hints(part)[column.name])):
                    yield key, part, column


def test_every_number_of_every_schema_has_limits_and_a_default_within_them() -> None:
    found = list(numbers())
    assert len(found) > 200
    assert [(part.__name__, column.name) for _, part, column in found if not column.range] == []
    for key, part, _ in found:
        made = part(**NEEDED.get(part.__name__, {}))
        limits.check(made, part, key)
    assert limits.column_of(Config, "seed").range is not None


@functools.cache
def parsed(text: str) -> Any:
    """What Hydra reads out of KEY=TEXT."""
    return OverridesParser.create().parse_override(f"key={text}").value()


@functools.cache
def node_of(part: type) -> DictConfig:
    """A part as it is composed, with what it cannot be made without."""
    registered()
    node: DictConfig = OmegaConf.structured(schema_of(part))
    for name, value in NEEDED.get(part.__name__, {}).items():
        OmegaConf.update(node, name, value)
    return node


def shown(text: str) -> list[str]:
    """How a refusal may repeat a value that Hydra has read."""
    special = {"true": ["True"], "null": ["None", "not Optional"]}
    with suppress(ValueError):
        return [text, str(float(text))]
    return special.get(text, [text])


def holding(part: type, name: str, value: Any) -> Any:
    """A value, in a list or mapping where the field is one."""
    origin = get_origin(get_type_hints(part)[name])
    return [value] if origin is list else {"rule": value} if origin is dict else value


def settled(key: str, part: type, name: str, text: str) -> Any:
    """The part with one value overridden, as a command makes it."""
    node = node_of(part).copy()
    OmegaConf.update(node, name, holding(part, name, parsed(text)))
    return live(OmegaConf.to_object(node), key)


@pytest.mark.parametrize("text", names(VALUES, set(VALUES) - {"-inf", "0", "1e30"}))
def test_any_value_of_any_number_is_within_its_range_or_refused_in_one_line(text: str) -> None:
    for key, part, column in numbers():
        try:
            made = settled(key, part, column.name, text)
        except REFUSALS as error:
            told = message(error)
            assert "\n" not in told
            assert column.name in told, told
            assert any(value in told for value in shown(text)), told
            continue
        assert column.range
        for _, value in items("", getattr(made, column.name)):
            assert isinstance(value, int if column.is_whole else float), (part, column.name)
            assert column.range.allow(value), (part, column.name, value)
            json.dumps(value, allow_nan=False)


@pytest.mark.parametrize(
    ("bounds", "text", "inside", "outside"),
    [
        ({"min": 0, "below": 1}, "0 or more and below 1", [0, 0.999], [-1e-9, 1]),
        ({"above": 0, "max": 2.5}, "above 0 and up to 2.5", [1e-300, 2.5], [0, 2.6]),
        ({"min": 1, "max": 5}, "1 to 5", [1, 5], [0, 6, 10**400]),
        ({"above": 0, "below": 1}, "above 0 and below 1", [0.5], [0, 1]),
        (
            {"min": 2, "max": 1e6, "also": {0: "for none"}},
            "2 to 1e6, or 0 for none",
            [0, 2, 10**6],
            [1, -1],
        ),
    ],
)
def test_limits_are_what_their_text_is(
    bounds: dict[str, Any], text: str, inside: list[float], outside: list[float]
) -> None:
    limit = Range(**bounds)
    assert str(limit) == text
    assert all(map(limit.allow, inside))
    assert not any(map(limit.allow, [*outside, float("nan"), float("inf"), -float("inf")]))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Optim(beta2=1.5), "optim.beta2=1.5 is out of range: choose 0 or more and below 1"),
        (lambda: Optim(lr=True), "optim.lr=True is no number: choose above 0 and below 1"),
        (
            lambda: RunOptions(passes=1.5),  # type: ignore[arg-type]
            r"run.passes=1.5 is no whole number: choose 1 to 1000000000",
        ),
        (lambda: Optim(eps=[1e-8]), r"optim.eps=\[1e-08\] is no number"),  # type: ignore[arg-type]
        (lambda: EvalOptions(ks=[0]), r"eval.ks\[0\]=0 is out of range: choose 1 to 100000"),
        (lambda: SingleEngineOptions(threads=10**6), "engine.threads=1000000 is out of range"),
        (lambda: ScratchModel("s", 10**30, 1, 1), "model.hidden_size=1000000000000000000000000000"),
    ],
)
def test_a_part_made_in_code_is_checked_too(make: Any, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        make()


def choices() -> Iterator[tuple[str, type, limits.Column, type[Enum]]]:
    """Every field that holds a member of an enum, with its part."""
    for key, parts in schemas().items():
        for part in parts:
            if limits.OptionGroup in part.__mro__:
                for column in limits.columns(part):
                    if column.choices:
                        yield key, part, column, column.choices


def test_a_choice_by_its_name_is_its_member_in_every_part_made_in_code() -> None:
    """Or else the name would be compared by `is` with members, and never be any of them."""

    def outcome(part: type, name: str, value: object) -> Any:
        try:
            return part(**NEEDED.get(part.__name__, {}) | {name: value})
        except UserError as error:  # of two options that do not go together
            return str(error)

    found = list(choices())
    assert len({part for _, part, *_ in found}) > 30
    for _, part, column, kind in found:
        for member in kind:
            by_name = outcome(part, column.name, member.name)
            assert by_name == outcome(part, column.name, member), (part, column.name)
            if not isinstance(by_name, str):
                assert getattr(by_name, column.name) is member
        for other in ("no such choice", None, 7, ["a"]):
            refusal = outcome(part, column.name, other)
            assert f"{column.name}={other}" in refusal
            assert all(member.name in refusal for member in kind)


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["proxy.num_layers=0"], "proxy.num_layers=0 is out of range: choose 1 to"),
        (["seed=-1"], "seed=-1 is out of range: choose 0 to 9223372036854775807"),
        ([f"seed={2**63}"], "seed=9223372036854775808 is out of range"),
        (["mode.hang_seconds=inf"], "mode.hang_seconds=inf is out of range: choose above 0"),
        (["checkpoint.minutes=nan"], "checkpoint.minutes=nan is out of range: choose 0 to"),
        (["reward@judge=endpoint", "judge.retries=-1"], "judge.retries=-1 is out of range"),
        (
            [
                "reward=combined",
                "+reward@reward.terms.rule=task_rule",
                "reward.terms.rule.time_limit_s=nan",
            ],
            "reward.terms.rule.time_limit_s=nan is out of range",
        ),
        (
            ["reward=function", "reward.path=a.b", "+reward.arguments.scale=inf"],
            "reward.arguments.scale=inf is no finite number",
        ),
    ],
)
def test_a_number_is_refused_by_its_whole_name(
    config_of: MakeConfig, overrides: list[str], complaint: str
) -> None:
    with pytest.raises(UserError) as refused:
        config_of(*overrides)
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("optim.beta1=1", ["optim.beta1=1.0", "below 1"]),
        ("labels.noise_scale=nan", ["labels.noise_scale=nan", "1e-6 to 1e6"]),
        ("optim.eps=abc", ["'abc'", "optim.eps"]),
        ("eval.ks=[a]", ["'a'", "eval.ks[0]"]),
    ],
)
def test_a_number_out_of_range_ends_a_command_with_exit_code_2_and_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    override: str,
    parts: list[str],
) -> None:
    arguments = ("train", "debug=tiny", override, f"output.root={tmp_path}")
    assert call(*arguments, monkeypatch=monkeypatch) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert all(part in told for part in parts), told
    assert list(tmp_path.iterdir()) == []


def test_a_field_needs_a_lower_and_an_upper_bound() -> None:
    with pytest.raises(AssertionError):
        Range(min=0)
    assert {f.name for f in dataclasses.fields(Range)} >= {"min", "above", "max"}
