"""Every reader of a damaged folder gives a value, a finding, or refuses it in words."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fuzz import Case, Example, cases, pristine, tried

pytestmark = pytest.mark.usefixtures("costly")


@pytest.mark.parametrize(
    ("case", "reader"),
    [
        pytest.param(
            case, reader, id=f"{case.name}-{reader}", marks=[pytest.mark.slow] * case.is_slow
        )
        for case in cases()
        for reader in case.readers
    ],
)
@given(st.integers(0, 2**32 - 1))
def test_a_damaged_folder_is_read_or_refused_in_words(case: Case, reader: str, seed: int) -> None:
    done, end, raised = tried(Example(case, reader, seed))
    assert end != "failed", f"{done}\n{raised}"


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_whole_folder_is_read(case: Case, tmp_path: Path) -> None:
    for name, reader in case.readers.items():
        folder = tmp_path / name
        shutil.copytree(pristine(case), folder, symlinks=True)
        reader(folder)


def test_a_failure_is_seen_again_by_its_number() -> None:
    case = cases()[0]
    first, again = (tried(Example(case, next(iter(case.readers)), 3)) for _ in range(2))
    assert first == again
