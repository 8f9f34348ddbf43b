"""Settings that make two runs the same, by hand and for every option of the package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.experiment.config.config import changed, settings_of
from rlhf_lab.experiment.config.groups import CLASSES
from rlhf_lab.experiment.config.own_parts import classes
from rlhf_lab.runs.identity import NOT_RESUMED, Settings, flat, hash_of, is_below, listed
from rlhf_lab.runs.run_directory import RunDirectory
from rlhf_lab.sweeps.job import ASIDE_OF_JOBS, content_of
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig


def test_the_hash_sees_values_and_not_the_order_of_keys() -> None:
    one = {"algo": {"beta": 0.1, "name": "dpo"}, "seed": 1}
    assert hash_of(one) == hash_of(dict(reversed(one.items())))
    assert hash_of(one) != hash_of(one | {"seed": 2})
    assert hash_of({}) == "44136fa355b3678a"


def parts() -> Iterator[Any]:
    """Every part of the package that can be made from its defaults alone."""
    for group in CLASSES:
        for part in classes(group).values():
            with suppress(UserError, TypeError):  # it needs a path, or other parts
                yield part()


def test_a_part_at_its_defaults_has_changed_nothing_but_its_name() -> None:
    made = list(parts())
    assert len(made) > 60
    for part in made:
        assert changed(part).keys() <= {"name"}, part


def test_an_option_that_a_recorded_run_lacks_is_at_its_default_or_a_difference(
    make_config: MakeConfig,
) -> None:
    config = make_config("optim.lr=1e-3", "algo=grpo", "algo.clip=0.3")
    whole = settings_of(config)
    assert {"optim.lr", "algo.name", "algo.clip"} <= set(whole.changed or ())
    assert "algo.beta" not in (whole.changed or ())
    for key in whole.values:
        earlier = Settings({k: v for k, v in whole.values.items() if k != key}, None)
        is_aside = is_below(key, NOT_RESUMED)
        found = earlier.differences(whole, NOT_RESUMED)
        is_shown = key in (whole.changed or ()) and not is_aside
        assert found == ({key: ("unset", whole.values[key])} if is_shown else {}), key
        if key not in (whole.changed or ()):
            later = Settings({**whole.values}, whole.changed)
            assert later.differences(earlier, ASIDE_OF_JOBS) == {}, "an option that went"


def test_content_is_that_of_what_was_changed(make_config: MakeConfig) -> None:
    plain_ = make_config()
    lr = plain_.optim.lr
    assert content_of(plain_) == content_of(make_config(f"optim.lr={lr}"))
    assert content_of(plain_) == content_of(make_config("output.cache=elsewhere"))
    assert content_of(plain_) != content_of(make_config("optim.lr=3e-3"))
    assert content_of(make_config("algo=rloo")) != content_of(make_config("algo=grpo"))


@pytest.mark.parametrize(
    ("was", "now", "found"),
    [
        ({"a": 1}, {"a": 2}, {"a": (1, 2)}),
        ({"a": 1}, {"a": 1, "b": 0}, {}),
        ({"a": 1}, {"a": 1, "c": 5}, {"c": ("unset", 5)}),
        ({"a": 1, "output.dir": "x"}, {"a": 1, "output.dir": "y"}, {}),
        ({"a": 1, "was": 3}, {"a": 1}, {"was": (3, "unset")}),
    ],
)
def test_differences_by_hand(was: dict[str, Any], now: dict[str, Any], found: Any) -> None:
    before, here = Settings(was, None), Settings(now, {"c"})
    assert before.differences(here, NOT_RESUMED) == found


def test_many_differences_are_counted() -> None:
    text = listed({f"k{number}": (number, -number) for number in range(1, 9)})
    assert text.startswith("k1=1 (here -1), k2=2 (here -2)") and text.endswith(" and 3 more")


def test_a_resumed_run_names_what_differs_with_both_values(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    facts = {"changed": ["optim.lr"]}
    text = "optim: {lr: 0.001, eps: 1.0e-08}\nmode: {at_bound: drop}\neval: {prompts: 4}\n"
    RunDirectory.create(folder, facts, text).finish("stopped")
    now = "optim: {lr: 0.001, eps: 1.0e-08, new: 0}\nmode: {when_stale: drop}\neval: {prompts: 8}\n"
    RunDirectory.resume(folder, facts, now).finish("stopped")
    for line, what in (
        ("optim: {lr: 0.002, eps: 1.0e-08}\nmode: {when_stale: drop}\n", "optim.lr=0.001 (here 0."),
        (now.replace("drop", "wait"), "mode.when_stale=drop (here wait)"),
    ):
        with pytest.raises(UserError) as refused:
            RunDirectory.resume(folder, facts, line)
        assert what in str(refused.value)
    with pytest.raises(UserError) as refused:
        RunDirectory.resume(folder, {"changed": ["optim.new"]}, now.replace("new: 0", "new: 1"))
    assert "optim.new=unset (here 1)" in str(refused.value)
    assert json.loads((folder / "manifest.json").read_text())["state"] == "stopped"


def test_flat_values_keep_lists_and_empty_mappings() -> None:
    assert flat({"a": {"b": [1], "c": {}}, "d": None}) == {"a.b": [1], "a.c": {}, "d": None}
