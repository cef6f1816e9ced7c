"""How a lesson is written: predictions that are answered, sittings that end, cells that hold the idea."""

from __future__ import annotations

import ast
import re

import pytest

from gpu_utils.course.cells import Cell, parse_cells
from gpu_utils.course.paths import course
from gpu_utils.course.predictions import asked, sittings
from gpu_utils.course.reasons import told

WIDEST = 88
MOST_IMPORTS = 8
MOST_WORDS = 3_000
UNITS = [unit for unit in course().written() if course().source(unit, "lesson").is_file()]


def lesson(unit) -> list[Cell]:
    path = course().source(unit, "lesson")
    return parse_cells(path.read_text("utf-8"), path.name)


def trees(cells: list[Cell]) -> list[ast.Module]:
    return [ast.parse(cell.source) for cell in cells if cell.kind == "code"]


each_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.number)


@each_unit
def test_every_prediction_has_a_name_of_its_own_and_is_answered_in_a_later_cell_with_exactly_its_slots(unit):
    found = asked(lesson(unit))
    assert found
    assert len({one.name for one in found}) == len(found)
    for one in found:
        assert one.name.startswith(f"{unit.number}.")
        assert one.answered is not None, f"{one.name} is never revealed"
        assert one.answered > one.cell, one.name
        assert sorted(one.revealed) == sorted(one.slots), one.name


@each_unit
def test_every_answer_says_why_and_the_notebook_does_not_say_it_under_the_question(unit):
    cells = lesson(unit)
    assert told(cells, unit.number).keys() == {one.name for one in asked(cells)}
    assert "because=" not in course().notebook(unit, "lesson").read_text("utf-8")


@each_unit
def test_predictions_are_answered_in_the_order_in_which_they_are_asked(unit):
    found = asked(lesson(unit))
    cells = [cell for one in found for cell in (one.cell, one.answered)]
    assert cells == sorted(cells), "answer a prediction before the next one is asked"


@each_unit
def test_predict_and_reveal_stand_at_the_top_of_a_cell_where_they_are_found(unit):
    cells = lesson(unit)
    calls = [node for tree in trees(cells) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    asking = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "predict"]
    answering = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "reveal"]
    assert len(asking) == len(answering) == len(asked(cells))


@each_unit
def test_no_variable_waits_for_a_guess(unit):
    assert "my_guess" not in course().source(unit, "lesson").read_text("utf-8")


@each_unit
def test_every_prediction_belongs_to_a_sitting_which_is_no_longer_than_one_can_read(unit):
    cells = lesson(unit)
    found = sittings(cells)
    assert [name for one in found for name in one.asks] == [one.name for one in asked(cells)]
    ends = [at for at, cell in enumerate(cells) if cell.kind == "code" and re.search(r"\bsitting\(", cell.source)]
    for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False), 1):
        prose = " ".join(cell.source for cell in cells[start:end] if cell.kind == "markdown")
        open_text = re.sub(r"<details>.*?</details>", "", prose, flags=re.DOTALL)
        assert len(open_text.split()) <= MOST_WORDS, f"sitting {number}"


@each_unit
def test_code_fits_a_window_of_1000_pixels(unit):
    wide = [
        line for cell in lesson(unit) if cell.kind == "code" for line in cell.source.split("\n") if len(line) > WIDEST
    ]
    assert wide == []


@each_unit
@pytest.mark.parametrize("what", ["lesson", "lab"])
def test_no_line_of_text_begins_with_the_number_of_an_issue_which_some_pages_show_as_a_heading(unit, what):
    path = course().source(unit, what)
    texts = [cell.source for cell in parse_cells(path.read_text("utf-8"), path.name) if cell.kind == "markdown"]
    assert [line for text in texts for line in text.split("\n") if re.match(r"[>\s-]*#+\d", line)] == []


@each_unit
def test_the_imports_of_a_lesson_fit_in_eight_lines(unit):
    statements = [n for tree in trees(lesson(unit)) for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))]
    assert sum(node.end_lineno - node.lineno + 1 for node in statements) <= MOST_IMPORTS


@each_unit
def test_no_cell_lays_out_columns_by_format_strings(unit):
    values = [node for tree in trees(lesson(unit)) for node in ast.walk(tree) if isinstance(node, ast.FormattedValue)]
    specs = [ast.unparse(node.format_spec) for node in values if node.format_spec is not None]
    assert [spec for spec in specs if re.match(r"f?['\"].?[<>^]|f?['\"]\d", spec)] == [], "a table does that"


def cells_of(*sources: str) -> list[Cell]:
    text = "\n".join(f"# %% cell {at}\n{source}" for at, source in enumerate(sources))
    return parse_cells(text, "lesson.py")


def test_a_prediction_is_matched_with_the_answer_of_its_variable():
    first, second = asked(
        cells_of(
            'guess = predict("00.a", "?", x=number(), y=number())\nother = predict("00.b", "?", z=number())',
            'guess.reveal(x=1, y=2, because="so")',
            "1 + 1",
        )
    )
    assert (first.name, first.slots, first.revealed, first.answered) == ("00.a", ("x", "y"), ("x", "y"), 1)
    assert (second.name, second.answered) == ("00.b", None)


def test_a_sitting_ends_with_its_cell_and_names_the_next_heading():
    found = sittings(
        cells_of(
            'a = predict("00.a", "?", x=number())',
            'lesson.sitting("00", 1)',
            '"""text"""',
            'b = predict("00.b", "?", x=number())',
            'lesson.sitting("00", 2)',
        )
    )
    assert [(one.number, one.asks) for one in found] == [(1, {"00.a": ("x",)}), (2, {"00.b": ("x",)})]
