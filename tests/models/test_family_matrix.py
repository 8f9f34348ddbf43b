"""Every family of models: each way to read and write rows is exact, slower or refused."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from rlhf_lab.types.errors import UserError
from tests.support.families import FAMILIES, SHAPE, TABLE
from tests.support.family_matrix import (
    BEGIN,
    CPU,
    END,
    PACKED,
    PADDED,
    PROMPTS,
    RESPONSES,
    WAYS,
    Cell,
    Found,
    Read,
    Verdict,
    batch,
    cell,
    cells,
    line,
    single_rows,
    trained,
    written,
)
from tests.support.variants import names

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "models.md"
FINE = {Verdict.exact, Verdict.slower, Verdict.refused}
# One of each kind.
OFTEN = (
    "GPT-NeoX, Pythia",
    "Phi-3.5, Phi-4",
    "Gemma 3, images",
    "GPT-Neo",
    "Bloom",
    "DeepSeek V3, R1",
    "gpt-oss",
    "Qwen3.5",
    "Granite 4",
    "Mamba",
    "RWKV",
)

row_of = functools.cache(lambda name: cells(FAMILIES[name]))


@pytest.mark.parametrize("name", OFTEN)
def test_each_way_is_exact_or_slower_or_refused(name: str) -> None:
    found = {way: one for way, one in row_of(name).items() if one.verdict not in FINE}
    assert found == {}


@pytest.mark.pages
@pytest.mark.parametrize("name", FAMILIES)
def test_the_page_has_what_each_way_finds_and_none_is_wrong(name: str) -> None:
    found = {way: one for way, one in row_of(name).items() if one.verdict not in FINE}
    assert found == {}
    assert line(name, row_of(name)) in table(), "python -m tests.support.family_matrix --docs PAGE"


@pytest.mark.pages
def test_the_page_lists_every_family_in_order() -> None:
    assert [row.split(" | ")[0].removeprefix("| ") for row in table()[2:]] == list(FAMILIES)


def table() -> list[str]:
    """The lines between the page's markers."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [row for row in lines[lines.index(BEGIN) + 1 : lines.index(END)] if row]
