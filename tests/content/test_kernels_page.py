"""docs/kernels.md is made from the solutions as they are, holds what the compiler says, and shows no spills."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import triton

ROOT = Path(__file__).parents[2]
AGAIN = "run `python tools/kernel_table.py`"


@functools.cache
def tool() -> ModuleType:
    place = importlib.util.spec_from_file_location("kernel_table", ROOT / "tools" / "kernel_table.py")
    assert place is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


EXERCISES = tool().on_the_page()


@functools.cache
def sections() -> dict[str, str]:
    """Id of an exercise -> its part of the page."""
    parts = re.split(r"^## (\d\d\.\w+)$", tool().PAGE.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(exercise_id: str) -> list[tuple[str, ...]]:
    table = re.findall(r"^\| (.*) \|$", sections()[exercise_id], re.MULTILINE)
    return [tuple(row.split(" | ")) for row in table[2:]]


def test_the_page_has_every_kernel_exercise_of_unit_04_and_later():
    assert list(sections()) == [exercise.id for exercise in EXERCISES], AGAIN
    assert all(exercise.kind == "kernel" and exercise.unit >= "04" for exercise in EXERCISES)


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_the_page_is_made_from_the_solution_as_it_is(exercise):
    assert f"<!-- made from {tool().fingerprint(exercise)} -->" in sections().get(exercise.id, ""), AGAIN


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_no_kernel_of_a_solution_spills_where_data_centre_chips_are_new(exercise):
    found = rows(exercise.id)
    assert {row[0] for row in found} == {*tool().targets_of(exercise)}, AGAIN
    assert [row for row in found if row[0] in tool().NO_SPILLS_ON and row[3] != "0"] == []


def test_a_row_of_the_page_is_what_the_compiler_says_today():
    if f"Triton {triton.__version__}:" not in tool().PAGE.read_text("utf-8"):
        pytest.skip("the page was made with another version of Triton")
    exercise, target = EXERCISES[0], "gfx942"
    assert tool().rows_of(exercise, (target,)) == [row for row in rows(exercise.id) if row[0] == target], AGAIN
