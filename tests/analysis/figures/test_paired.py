"""Paired effects in figures, words for settings, and the level of differences."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from rlhf_lab_analysis.comparison.registry.definitions import Definition
from rlhf_lab_analysis.comparison.registry.looks import (
    family_text,
    looks_of,
    of_last_version,
)
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.figures.catalogue import draw
from rlhf_lab_analysis.figures.comparable_time import overlapping
from rlhf_lab_analysis.words import in_words, setting_text
from tests.support.figure_tables import end_of, run_of
from tests.support.table_records import tables

pytestmark = pytest.mark.usefixtures("costly")

# 0.975 quantile of Student's t with 2 degrees of freedom.
T2 = 4.302652729911275


def effects(name: str, conditions: list[dict[str, object]]) -> pd.DataFrame:
    """The rows of differences; each next condition is .05 worse, .051 and .052 of later seeds."""
    runs = [run_of(s, parts, end_of(10 * s, -place * (0.049 + 0.001 * s)), "own")
            for place, parts in enumerate(conditions) for s in (1, 2, 3)]  # fmt: skip
    data = draw(name, tables(*runs)).data
    return data[data["part"].fillna("").str.startswith("paired")]


LAGGED = {"mode": "lagged", "max_staleness": 4}


@pytest.mark.parametrize(
    ("name", "conditions"),
    [
        ("fig4_losses", [{"algo": a, "updates_per_round": n} for a in ("ppo", "rloo")
                         for n in (1, 4)]),
        ("corrections", [LAGGED | {"correction": c} for c in ("none", "icepop")]),
    ],
)  # fmt: skip
def test_differences_have_the_interval_of_pairs(
    name: str, conditions: list[dict[str, object]]
) -> None:
    """Seeds lie .1 apart and differences .001: an interval of levels would hide them."""
    found = effects(name, conditions)
    last = found.iloc[-1]
    half = T2 * 0.001 / math.sqrt(3)
    assert last["y"] == pytest.approx(-0.051)
    assert [last["low"], last["high"]] == pytest.approx([-0.051 - half, -0.051 + half])
    assert (last["n"], last["seeds"], last["interval"]) == (3, "1 2 3", "95% t")
    assert last["y_name"] == "difference of gold win-rate"


def test_a_difference_is_of_common_seeds_and_of_common_updates() -> None:
    runs = [run_of(s, {"algo": "ppo", "updates_per_round": n}, end_of(s, -0.01 * (n > 1)), "own")
            for n, seeds in ((1, (1, 2, 3, 4)), (2, (2, 3, 4, 5))) for s in seeds]  # fmt: skip
    data = draw("fig3_off_policy_ladder", tables(*runs)).data
    found = data[data["part"].fillna("").str.startswith("paired")]
    assert set(found["seeds"]) == {"2 3 4"}
    # Versions 0, 2 and 4 of N=1 are 0, 2 and 4 updates, of N=2 they are 0, 4 and 8.
    assert found["x"].tolist() == [0, 4]
    # N=2 is at version 2 after 4 updates: three quarters of its end, .52, .53 and .54.
    assert found["y"].iloc[-1] == pytest.approx(0.75 * 0.52 - 0.53)


def test_two_seeds_are_needed_for_a_pair() -> None:
    runs = [run_of(1, LAGGED | {"correction": c}, end_of(1, 0), "own") for c in ("none", "icepop")]
    data = draw("corrections", tables(*runs)).data
    assert "part" not in data or not data["part"].fillna("").str.startswith("paired").any()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("grpo nano_s round_weights=fp8_e4m3", "GRPO 0.3M weights in FP8 (E4M3)"),
        ("round_weights=none lr=0.0003", "weights not rounded learning rate 0.0003"),
        ("max_staleness=16", "S=16"),
        ("optim.lr=5e-05 lora_rank=0", "learning rate 5e-05 no LoRA"),
        ("grpo (adapters_nano)", "GRPO (sweep adapters nano)"),
        ("N=4 beta1=0.8 a$b$_% (own)", "N=4 beta1=0.8 a$b$_% (own)"),
    ],
)
def test_settings_are_in_words(text: str, words: str) -> None:
    assert in_words(text) == words


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("episodes.tool_deadline", 40.0, "40 s for tools"),
        ("episodes.tool_deadline", 0.0, "no limit for tools"),
        ("episodes.tool_deadline", None, "no limit for tools"),
        ("run.mask_truncated", True, "cut episodes left out"),
        ("run.mask_truncated", False, "cut episodes kept"),
        ("optim.schedule_per", None, "rate per update"),
        ("mode.when_stale", None, ""),
        ("updates_per_round", 4, "N=4"),
        ("correction", "none", "no correction"),
        ("algo.beta", None, "no algo.beta"),
    ],
)
def test_a_legend_has_the_words_of_a_name(key: str, value: Any, words: str) -> None:
    assert setting_text(key, value) == words
    if value in (True, 40.0):
        assert in_words(f"grpo {key}={value}") == f"GRPO {words}"


def test_spans_that_begin_before_the_end_of_any_before_them_are_counted() -> None:
    assert overlapping([(0.0, 10.0), (10.0, 20.0), (20.0, 30.0)]) == 0
    # The third begins in the first, which the second does not end.
    assert overlapping([(0.0, 100.0), (10.0, 20.0), (30.0, 40.0), (200.0, 210.0)]) == 2
    # Starts are in whole seconds.
    assert overlapping([(0.0, 10.4), (10.0, 20.0)]) == 0
    assert overlapping([]) == 0


def test_a_family_is_named_by_its_comparisons_and_looks() -> None:
    assert family_text(1) == "by itself" and family_text(4) == "1 of 4 comparisons"
    assert family_text(4, 2) == "1 of 4 comparisons, 2 looks"


def test_the_looks_of_a_claim_share_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = {claim.name: claim for claim in of_last_version()}
    assert claims and all(claim.looks > 1 for claim in claims.values())
    runs = [run_of(s, {"algo": "ppo", "updates_per_round": n}, end_of(s, -0.001 * n * s), "own")
            for n in (1, 4) for s in (1, 2, 3)]  # fmt: skip
    made = tables(*runs)
    first, second = cells(made).cells
    once = draw("differences", made).data.iloc[0]
    assert (once["interval"], once["family"]) == ("90% t", "by itself")
    assert looks_of([(second, first)]) == [1]

    claim = {"measure": "quality", "runs": {}, "change": {"updates_per_round": [1, 4]}, "looks": 3}
    stated = Definition("n4", "a paper", cast(Any, claim))
    monkeypatch.setattr("rlhf_lab_analysis.comparison.registry.looks.of_last_version",
                        lambda: (stated,))  # fmt: skip
    assert looks_of([(second, first)]) == [3] and looks_of([(first, second)]) == [3]
    thrice = draw("differences", made).data.iloc[0]
    assert (thrice["interval"], thrice["family"]) == ("96.67% t", "by itself, 3 looks")

    module = "rlhf_lab_analysis.figures.against_first.looks_of"
    monkeypatch.setattr(module, lambda pairs: [2] * len(pairs))
    twice = draw("differences", made).data.iloc[0]
    assert (twice["interval"], twice["family"]) == ("95% t", "by itself, 2 looks")
    assert np.subtract(twice["high"], twice["low"]) > np.subtract(once["high"], once["low"])
