"""Answers are read out of a notebook whatever was done to it; one broken cell costs only itself."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_utils.errors import NotebookUnreadable
from gpu_utils.grading.notebook import MAX_BYTES, answers

FIXTURES = Path(__file__).parents[1] / "fixtures"


def run(source: str, name: str, *arguments):
    namespace: dict = {}
    exec(source, namespace)
    return namespace[name](*arguments)


def add(fixture: str):
    found = answers(FIXTURES / f"{fixture}.ipynb").find("00.vector_add")
    assert found is not None
    assert found.error == ""
    return run(found.source, "vector_add", 1, 2)


def test_the_fixtures_are_what_their_script_makes():
    made = runpy.run_path(str(FIXTURES / "make_notebooks.py"))["files"]()
    on_disk = {path.name: path.read_bytes() for path in FIXTURES.glob("*.ipynb")}
    assert {name: on_disk.get(name) for name in made} == made


def test_a_complete_notebook_gives_every_answer_and_its_setup():
    found = answers(FIXTURES / "answers_complete.ipynb")
    assert found.exercises == ["00.saxpy", "00.vector_add"]
    assert found.setup == "import math"
    assert found.unit == "00_start"


@pytest.mark.parametrize(
    "fixture",
    [
        "answers_complete",
        "answers_out_of_order",
        "answers_duplicated",
        "answers_split_in_two",
        "answers_without_tags",
        "answers_retyped_in_new_cells",
        "answer_beside_its_stub",
        "answer_with_magics",
        "setup_deleted",
        "metadata_of_the_wrong_types",
    ],
)
def test_the_answer_is_found(fixture):
    assert add(fixture) == 3


def test_a_note_says_when_the_answer_is_not_in_its_own_cell():
    assert "cell 2" in answers(FIXTURES / "answers_retyped_in_new_cells.ipynb").find("00.vector_add").note
    assert "cell 4" in answers(FIXTURES / "answer_beside_its_stub.ipynb").find("00.vector_add").note
    assert answers(FIXTURES / "answers_complete.ipynb").find("00.vector_add").note == ""


def test_an_untouched_stub_is_the_answer_when_there_is_no_other():
    with pytest.raises(NotImplementedError, match=r"00\.vector_add is yours to write"):
        add("answer_not_started")


def test_magics_become_pass_and_strings_keep_their_percent_signs():
    source = answers(FIXTURES / "answer_with_magics.ipynb").find("00.vector_add").source
    assert "%d is kept" in source
    assert "timeit" not in source
    assert "!echo" not in source
    assert source.count("\n") == 12


def test_a_deleted_answer_is_absent_and_the_others_remain():
    found = answers(FIXTURES / "answer_deleted.ipynb")
    assert found.find("00.vector_add") is None
    assert found.exercises == ["00.saxpy"]


def test_a_syntax_error_costs_only_its_cell():
    found = answers(FIXTURES / "answer_with_a_syntax_error.ipynb")
    assert found.find("00.vector_add").error == "cell 2 is not valid Python: invalid syntax (line 2)"
    assert run(found.find("00.saxpy").source, "saxpy", 1, 2) == 4


def test_an_answer_in_a_markdown_cell_is_named_as_such():
    assert "not a code cell" in answers(FIXTURES / "answer_turned_into_markdown.ipynb").find("00.vector_add").error


def test_a_lost_setup_cell_is_an_empty_setup():
    assert answers(FIXTURES / "setup_deleted.ipynb").setup == ""


@pytest.mark.parametrize(
    ("fixture", "says"),
    [
        ("broken_truncated", "not complete JSON"),
        ("broken_empty", "is empty"),
        ("broken_no_cells", "not a Jupyter notebook"),
        ("broken_a_list", "not a Jupyter notebook"),
        ("broken_latin_1", "not UTF-8"),
        ("broken_png", "not UTF-8"),
        ("no_such_file", "there is no file"),
    ],
)
def test_a_file_that_is_no_notebook_gives_one_sentence(fixture, says):
    with pytest.raises(NotebookUnreadable, match=says) as caught:
        answers(FIXTURES / f"{fixture}.ipynb")
    assert "\n" not in str(caught.value)


def test_a_folder_is_no_notebook():
    with pytest.raises(NotebookUnreadable, match="not a file"):
        answers(FIXTURES)


def test_a_huge_file_is_refused_without_reading_it(tmp_path):
    path = tmp_path / "huge.ipynb"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(NotebookUnreadable, match="Clear Outputs"):
        answers(path)


def test_a_byte_order_mark_is_no_obstacle(tmp_path):
    path = tmp_path / "bom.ipynb"
    path.write_bytes(b"\xef\xbb\xbf" + (FIXTURES / "answers_complete.ipynb").read_bytes())
    assert answers(path).exercises == ["00.saxpy", "00.vector_add"]


@pytest.mark.parametrize(
    "source",
    ["(" * 5000, "-" * 200_000 + "1", "x = 1\0", "x = '\ud800'", "!ls\n" * 1000, "#" * 2_000_000],
    ids=["brackets", "deep", "null", "surrogate", "magics", "long"],
)
def test_a_hostile_cell_costs_only_itself(tmp_path, source):
    made = json.loads((FIXTURES / "answers_complete.ipynb").read_text())
    made["cells"].append({"cell_type": "code", "metadata": {"tags": ["answer", "00.evil"]}, "source": source})
    path = tmp_path / "hostile.ipynb"
    path.write_text(json.dumps(made))
    found = answers(path)
    assert found.find("00.evil").error
    assert found.find("00.vector_add").error == ""


def test_deeply_nested_json_is_one_sentence(tmp_path):
    path = tmp_path / "deep.ipynb"
    path.write_text("[" * 100_000)
    with pytest.raises(NotebookUnreadable):
        answers(path)


WHOLE = (FIXTURES / "answers_complete.ipynb").read_bytes()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def read_without_a_surprise(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        found = answers(path)
    except NotebookUnreadable:
        return
    for exercise in [*found.exercises, "00.vector_add"]:
        found.find(exercise)


@settings(max_examples=150, deadline=None)
@given(at=st.integers(0, len(WHOLE) - 1), length=st.integers(0, 40), new=st.binary(max_size=20))
def test_damaged_bytes_are_read_or_refused_in_one_sentence(tmp_path_factory, at, length, new):
    path = tmp_path_factory.getbasetemp() / "damaged.ipynb"
    read_without_a_surprise(path, WHOLE[:at] + new + WHOLE[at + length :])


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_value_of_any_type_anywhere_is_read_or_refused_in_one_sentence(tmp_path_factory, data):
    made = json.loads(WHOLE)
    place = data.draw(
        st.sampled_from([made, made["metadata"], *made["cells"], *(c["metadata"] for c in made["cells"])])
    )
    place[data.draw(st.sampled_from([*sorted(place), "w2w", "tags"]))] = data.draw(JSON)
    read_without_a_surprise(tmp_path_factory.getbasetemp() / "odd.ipynb", json.dumps(made).encode())
