"""content/ makes the same notebooks every time, and a mistake in it names file and line."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime

import pytest
from typer.testing import CliRunner

from gpu_utils.course.build import build, differences, render, strays
from gpu_utils.course.cut import complete, find_cuts, stub
from gpu_utils.course.ipynb import nbformat
from gpu_utils.course.paths import Course
from gpu_utils.course.units import find_unit
from gpu_utils.errors import ContentError

LESSON = """# %% [markdown] title
# # Vectors
#
# A sum: $x + y$

# %% numbers
x = 1

# %%
y = 2
"""

LAB = '''# %% [markdown]
# # Lab

# %% imports tags=["setup"]
import triton

from gpu_utils import check

# %% [markdown] statement
# Write it.

# %% 00.vector_add tags=["answer", "00.vector_add"]
@triton.jit
def vector_add_kernel(x_ptr, n):
    """Adds."""
    # BEGIN SOLUTION
    offsets = 1

    # a comment
    mask = 2
    # END SOLUTION


def vector_add(x, y):
    size = 3
    # BEGIN SOLUTION
    return x + y + size
    # END SOLUTION


# %% tags=["check"]
check("00.vector_add")

# %% [markdown] why tags=["solution"]
# Because.

# %% more tags=["solution"]
vector_add(1, 2)

# %% [markdown] end
# The end.
'''

UNIT = find_unit("00")
NOON = datetime(2026, 1, 2, 12, 0, 0)
OUTPUT = '{"output_type": "stream", "name": "stdout", "text": "x"}'


@pytest.fixture
def here(tmp_path) -> Course:
    folder = tmp_path / "content" / UNIT.name
    folder.mkdir(parents=True)
    (folder / "lesson.py").write_text(LESSON)
    (folder / "lab.py").write_text(LAB)
    (tmp_path / "gpu_utils").mkdir()
    (tmp_path / "gpu_utils" / "__init__.py").touch()
    return Course(tmp_path)


def notebook(here: Course, kind: str):
    return nbformat.reads(render(here, UNIT, kind), as_version=4)


def refusal(here: Course, lab: str, part: str = "lab") -> str:
    (here.content / UNIT.name / f"{part}.py").write_text(lab)
    with pytest.raises(ContentError) as caught:
        build(here, [UNIT], NOON)
    assert not here.notebook(UNIT, "lab").exists(), "a mistake must not leave half of a unit built"
    return str(caught.value)


def line_of(text: str, line: str) -> int:
    return text.split("\n").index(line) + 1


def test_a_lab_has_stubs_where_the_solution_has_answers(here):
    cell = next(cell for cell in notebook(here, "lab").cells if "answer" in cell.metadata.get("tags", []))
    assert (
        cell.source
        == '''@triton.jit
def vector_add_kernel(x_ptr, n):
    """Adds."""
    # YOUR CODE (about 2 lines)
    pass


def vector_add(x, y):
    size = 3
    # YOUR CODE (about 1 line)
    raise NotImplementedError("00.vector_add is yours to write")'''
    )


def test_a_solution_is_complete_and_has_no_markers(here):
    text = render(here, UNIT, "solution")
    assert "return x + y + size" in text
    assert "BEGIN SOLUTION" not in text
    assert "END SOLUTION" not in text


def test_solution_cells_are_only_in_the_solution(here):
    assert "Because." in render(here, UNIT, "solution")
    assert "Because." not in render(here, UNIT, "lab")
    assert "vector_add(1, 2)" not in render(here, UNIT, "lab")


def test_a_cell_has_the_same_id_in_the_lab_and_in_the_solution(here):
    lab, solution = ([cell.id for cell in notebook(here, kind).cells] for kind in ("lab", "solution"))
    assert [identity for identity in solution if identity in lab] == lab
    assert len(set(solution)) == len(solution)


def test_a_new_cell_elsewhere_does_not_move_the_other_ids(here):
    before = {cell.source: cell.id for cell in notebook(here, "lesson").cells}
    (here.content / UNIT.name / "lesson.py").write_text("# %% new\nz = 0\n\n" + LESSON)
    after = {cell.source: cell.id for cell in notebook(here, "lesson").cells}
    assert {source: after[source] for source in before} == before


def test_answers_and_checks_name_their_exercise_in_the_metadata(here):
    marked = [cell.metadata.w2w for cell in notebook(here, "lab").cells if "w2w" in cell.metadata]
    assert marked == [
        {"exercise": "00.vector_add", "role": "answer"},
        {"exercise": "00.vector_add", "role": "check"},
    ]


def test_titles_are_not_shown(here):
    cell = notebook(here, "lesson").cells[0]
    assert cell.cell_type == "markdown"
    assert cell.source == "# Vectors\n\nA sum: $x + y$"


def test_the_format_is_stable_and_carries_no_outputs(here):
    text = render(here, UNIT, "solution")
    made = json.loads(text)
    assert text == json.dumps(made, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    assert (made["nbformat"], made["nbformat_minor"]) == (4, 5)
    assert made["metadata"]["kernelspec"]["name"] == "python3"
    assert made["metadata"]["w2w"] == {"unit": "00_start", "kind": "solution", "schema": 1}
    assert all(cell["outputs"] == [] for cell in made["cells"] if cell["cell_type"] == "code")
    nbformat.validate(made)


def test_two_processes_make_the_same_bytes(here):
    program = (
        "import sys; from pathlib import Path; from gpu_utils.course.paths import Course; "
        "from gpu_utils.course.build import build; from datetime import datetime; "
        "c = Course(Path(sys.argv[1])); build(c, c.written(), datetime.now())"
    )
    made = []
    for seed in ("1", "2"):
        subprocess.run([sys.executable, "-c", program, here.root], check=True, env={"PYTHONHASHSEED": seed})
        made.append([here.notebook(UNIT, kind).read_bytes() for kind in ("lesson", "lab", "solution")])
        for kind in ("lesson", "lab", "solution"):
            here.notebook(UNIT, kind).unlink()
    assert made[0] == made[1]


def test_a_second_build_writes_nothing(here):
    assert len(build(here, [UNIT], NOON)) == 3
    assert build(here, [UNIT], NOON) == []


@pytest.mark.parametrize(
    "trace", ['"execution_count": 1', '"outputs": [{"output_type": "stream", "name": "stdout", "text": "x"}]']
)
def test_a_notebook_that_was_run_in_place_is_kept_before_it_is_overwritten(here, trace):
    build(here, [UNIT], NOON)
    path = here.notebook(UNIT, "lab")
    clean = path.read_text()
    edited = clean.replace('"execution_count": null' if "count" in trace else '"outputs": []', trace, 1)
    path.write_text(edited)
    (written,) = build(here, [UNIT], NOON)
    assert path.read_text() == clean
    assert written.kept == here.work / "00_start.20260102-120000.ipynb"
    assert written.kept.read_text() == edited


def test_a_notebook_that_is_only_old_is_not_kept(here):
    build(here, [UNIT], NOON)
    (here.content / UNIT.name / "lesson.py").write_text(LESSON + "z = 3\n")
    assert [written.kept for written in build(here, [UNIT], NOON)] == [None]
    assert not here.work.exists()


def test_a_difference_names_the_first_cell_that_differs(here):
    build(here, [UNIT], NOON)
    path = here.notebook(UNIT, "lab")
    path.write_text(path.read_text().replace("size = 3", "size = 4"))
    (found,) = differences(here, [UNIT])
    assert found.path == path
    assert found.why.startswith("differs first in cell 4 (00-vector_add-0-")
    assert found.why.endswith("source")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda text: text.replace('"outputs": []', f'"outputs": [{OUTPUT}]'), "outputs"),
        (lambda text: text + "\n", "layout"),
        (lambda text: "{", "is not a notebook"),
        (lambda text: text.replace('"schema": 1', '"schema": 2'), "metadata"),
        (lambda text: json.dumps({**json.loads(text), "cells": []}), "has 0 cells, expected 6"),
    ],
)
def test_every_kind_of_change_is_seen(here, change, why):
    build(here, [UNIT], NOON)
    path = here.notebook(UNIT, "lab")
    path.write_text(change(path.read_text()))
    (found,) = differences(here, [UNIT])
    assert why in found.why


def test_a_missing_notebook_is_a_difference(here):
    build(here, [UNIT], NOON)
    here.notebook(UNIT, "solution").unlink()
    assert [found.why for found in differences(here, [UNIT])] == ["is missing"]


def test_a_stray_file_is_reported_and_never_deleted(here):
    build(here, [UNIT], NOON)
    stray = here.root / "labs" / "mine.ipynb"
    stray.write_text("mine")
    (here.root / "labs" / ".ipynb_checkpoints").mkdir()
    (here.root / "labs" / ".ipynb_checkpoints" / "x.ipynb").touch()
    assert [found.path for found in strays(here)] == [stray]
    build(here, [UNIT], NOON)
    assert stray.read_text() == "mine"


def test_the_command_fails_on_differences_and_on_stray_files(here, monkeypatch):
    typer = pytest.importorskip("typer")
    from gpu_utils.cli.build import build as command

    app = typer.Typer()
    app.command()(command)
    monkeypatch.chdir(here.root)

    def run(*arguments):
        result = CliRunner().invoke(app, list(arguments))
        return result.exit_code, result.output

    assert run("--check")[0] == 1
    assert run() == (
        0,
        "wrote notebooks/00_start.ipynb\nwrote labs/00_start.ipynb\nwrote solutions/00_start.ipynb\n"
        "3 notebooks of 1 unit: 3 changed\n",
    )
    assert run("--check", "00") == (0, "3 notebooks of 1 unit are current\n")
    (here.root / "labs" / "mine.ipynb").touch()
    code, output = run("--check")
    assert code == 1
    assert "labs/mine.ipynb is not made from content/" in output


# Mistakes: (what is replaced, by what, the line that the message names, a part of the message).
MISTAKES = {
    "begin without end": ("size\n    # END SOLUTION", "size", "    # BEGIN SOLUTION", "without an `# END"),
    "end without begin": (
        "    # BEGIN SOLUTION\n    offsets",
        "    offsets",
        "    # END SOLUTION",
        "without a `# BEGIN",
    ),
    "nested": ("    # a comment", "    # BEGIN SOLUTION", "    # BEGIN SOLUTION", "of the one on line 16"),
    "misspelt marker": (
        "# BEGIN SOLUTION\n    offsets",
        "#BEGIN SOLUTION\n    offsets",
        "    #BEGIN SOLUTION",
        "exactly",
    ),
    "empty cut": ("    return x + y + size\n", "", "    # BEGIN SOLUTION", "no code between the markers"),
    "marker outside an answer": ("# Write it.", "# # BEGIN SOLUTION", "# # BEGIN SOLUTION", "outside a cell tagged"),
    "duplicate title": (
        "# %% more tags",
        "# %% imports tags",
        '# %% imports tags=["solution"]',
        "already used on line 4",
    ),
    "cut only in the kernel": (
        "    # BEGIN SOLUTION\n    return x + y + size\n    # END SOLUTION",
        "    return x + y + size",
        '# %% 00.vector_add tags=["answer", "00.vector_add"]',
        "no cut in host code",
    ),
    "check without an answer": (
        'check("00.vector_add")',
        'check("00.saxpy")',
        '# %% tags=["check"]',
        "00.saxpy has no answer",
    ),
    "answer without a check": (
        '# %% tags=["check"]\ncheck("00.vector_add")\n',
        "",
        '# %% 00.vector_add tags=["answer", "00.vector_add"]',
        'no cell tagged "check"',
    ),
    "check tag missing": ('# %% tags=["check"]', "# %%", "# %%", "if and only if"),
    "wrong function name": (
        "def vector_add(",
        "def add(",
        '# %% 00.vector_add tags=["answer", "00.vector_add"]',
        "is a function named 'vector_add', found vector_add_kernel, add",
    ),
    "unknown tag": ('tags=["check"]', 'tags=["chek"]', '# %% tags=["chek"]', "unknown tag 'chek'"),
    "another unit's exercise": (
        '00.vector_add tags=["answer", "00.vector_add"]',
        '01.vector_add tags=["answer", "01.vector_add"]',
        '# %% 01.vector_add tags=["answer", "01.vector_add"]',
        "is not of unit 00_start",
    ),
    "title is not the id": (
        "# %% 00.vector_add tags",
        "# %% add tags",
        '# %% add tags=["answer", "00.vector_add"]',
        "expected '00.vector_add'",
    ),
    "answer without an id": (
        'tags=["answer", "00.vector_add"]',
        'tags=["answer"]',
        '# %% 00.vector_add tags=["answer"]',
        "an answer is",
    ),
    "no setup": ('tags=["setup"]', "tags=[]", "# %% imports tags=[]", 'tags=["setup"]'),
    "tags in single quotes": ('tags=["check"]', "tags=['check']", "# %% tags=['check']", "double quotes"),
    "a header without a space": ("# %% more", "#%% more", '#%% more tags=["solution"]', "is not a cell header"),
    "a header inside brackets": ("vector_add(1, 2)", "vector_add(1,\n# %% b\n2)", "# %% b", "inside brackets"),
    "tags that are not a list": ('tags=["check"]', 'tags="check"', '# %% tags="check"', "is not a cell header"),
    "not Python": ("size = 3", "size = = 3", "    size = = 3", "not valid Python: invalid syntax"),
    "a kernel that would not compile": (
        "    # END SOLUTION\n\n\ndef",
        "    # END SOLUTION\n    n + offsets\n\n\ndef",
        "    # BEGIN SOLUTION",
        "still uses 'offsets'",
    ),
    "a cut around a whole function": (
        "def vector_add(x, y):\n    size = 3\n    # BEGIN SOLUTION",
        "# BEGIN SOLUTION\ndef vector_add(x, y):\n    size = 3",
        "# BEGIN SOLUTION",
        "inside the body of one function",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_names_its_line(here, mistake):
    old, new, line, says = MISTAKES[mistake]
    assert old in LAB
    lab = LAB.replace(old, new, 1)
    message = refusal(here, lab)
    place, _, sentence = message.partition(": ")
    path, _, number = place.rpartition(":")
    assert path == "content/00_start/lab.py"
    assert lab.split("\n")[int(number) - 1] == line, message
    assert says in sentence


def test_text_before_the_first_cell_is_a_mistake(here):
    assert refusal(here, "import os\n" + LAB).startswith("content/00_start/lab.py:1: text before the first cell")


def test_a_second_answer_to_an_exercise_is_a_mistake(here):
    again = LAB[LAB.index("# %% 00.vector_add") : LAB.index('# %% tags=["check"]')]
    assert "already" in refusal(here, LAB + again)


@pytest.mark.parametrize("tag", ["answer", "check", "solution", "00.saxpy"])
def test_a_lesson_has_no_exercises(here, tag):
    text = LESSON.replace("# %% numbers", f'# %% numbers tags=["{tag}"]')
    assert "belongs in lab.py" in refusal(here, text, "lesson")


def test_a_file_that_is_not_utf_8_is_a_mistake(here):
    (here.content / UNIT.name / "lesson.py").write_bytes("# %%\nx = 'ü'\n".encode("latin-1"))
    with pytest.raises(ContentError, match=r"lesson\.py:1: not UTF-8"):
        build(here, [UNIT], NOON)


def test_a_folder_that_no_unit_is_called_after_is_a_mistake(here):
    (here.content / "00_begin").mkdir()
    (here.content / "00_begin" / "lab.py").touch()
    with pytest.raises(ContentError, match="no unit has this name"):
        here.written()


def test_a_cell_header_inside_a_string_is_text(here):
    (here.content / UNIT.name / "lesson.py").write_text('# %%\ns = """\n# %% no cell\n"""\n')
    assert [cell.source for cell in notebook(here, "lesson").cells] == ['s = """\n# %% no cell\n"""']


def test_a_magic_is_a_comment_in_content_and_a_magic_in_the_notebook(here):
    (here.content / UNIT.name / "lesson.py").write_text("# %%\n# %matplotlib inline\nx = 1\n")
    assert notebook(here, "lesson").cells[0].source == "%matplotlib inline\nx = 1"


@pytest.mark.parametrize("decorator", ["@triton.jit", "@jit", "@triton.jit(do_not_specialize=['n'])", "@gluon.jit"])
def test_a_cut_in_a_kernel_becomes_pass(decorator):
    source = f"{decorator}\ndef k(n):\n    # BEGIN SOLUTION\n    n += 1\n    # END SOLUTION"
    assert stub(source, "00.k", "lab.py", 1).endswith("    # YOUR CODE (about 1 line)\n    pass")


def test_a_kernel_that_adds_to_what_only_the_cut_binds_is_a_mistake():
    source = "@triton.jit\ndef k(n):\n    # BEGIN SOLUTION\n    total = n\n    # END SOLUTION\n    total += 1"
    with pytest.raises(ContentError, match=r"lab\.py:3: after the cut k still uses 'total'"):
        stub(source, "00.k", "lab.py", 1)
    assert stub(source.replace("(n):", "(n):\n    total = 0"), "00.k", "lab.py", 1)


def test_a_cut_deep_in_a_host_function_keeps_its_indentation():
    source = "def f(n):\n    for i in n:\n        # BEGIN SOLUTION\n        g(i)\n        # END SOLUTION\n    return n"
    assert stub(source, "00.f", "lab.py", 1) == (
        "def f(n):\n    for i in n:\n        # YOUR CODE (about 1 line)\n"
        '        raise NotImplementedError("00.f is yours to write")\n    return n'
    )


def test_two_cuts_in_one_cell_are_both_found():
    cut_out = "    # BEGIN SOLUTION\n    a()\n    # END SOLUTION\n"
    source = f"def f():\n{cut_out}\n{cut_out}"
    assert [cut.begin for cut in find_cuts(source, "lab.py", 1)] == [1, 5]


CPP = '''def k():
    """The kernel k(x)."""
    return """
__global__ void k(float *x) {
  // BEGIN SOLUTION
  // one line of comment
  float y = 1.0f;
  x[0] = y;
  // END SOLUTION
}
"""'''


def test_a_cut_in_cpp_becomes_an_error_of_the_preprocessor_where_it_was():
    assert stub(CPP, "03.k", "lab.py", 1) == (
        'def k():\n    """The kernel k(x)."""\n    return """\n__global__ void k(float *x) {\n'
        '  // YOUR CODE (about 2 lines)\n  #error "03.k is yours to write"\n}\n"""'
    )
    assert complete(CPP) == CPP.replace("  // BEGIN SOLUTION\n", "").replace("  // END SOLUTION\n", "")


def test_cuts_in_cpp_and_in_python_may_stand_in_one_cell():
    text = f"{CPP}\n\n\ndef launch():\n    # BEGIN SOLUTION\n    return 1\n    # END SOLUTION"
    assert [cut.in_cpp for cut in find_cuts(text, "lab.py", 1)] == [True, False]
    assert 'raise NotImplementedError("03.k is yours to write")' in stub(text, "03.k", "lab.py", 1)


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("// BEGIN", "# BEGIN", 5, "exactly `// BEGIN SOLUTION`"),
        ("// BEGIN", "//BEGIN", 5, "exactly `// BEGIN SOLUTION`"),
        ("  // END SOLUTION\n", "", 5, "without an `// END SOLUTION`"),
        ("  // BEGIN SOLUTION\n", "", 8, "without a `// BEGIN SOLUTION`"),
        ("  float y = 1.0f;\n  x[0] = y;\n", "", 5, "no code between the markers"),
    ],
)
def test_a_mistake_in_a_cut_in_cpp_names_its_line(old, new, line, says):
    with pytest.raises(ContentError, match=rf"lab\.py:{line}: .*{says}"):
        find_cuts(CPP.replace(old, new), "lab.py", 1)


IN_A_FILE = LAB.replace(
    "def vector_add(x, y):\n",
    'def vector_add(x, y):\n    cpp = """\n// INSERT gpu_utils/exercises/u03_porting_to_rocm/ballot.cu\n"""\n',
)


def test_the_cpp_of_an_exercise_is_inserted_from_its_file(here):
    (here.content / UNIT.name / "lab.py").write_text(IN_A_FILE)
    lab, solution = render(here, UNIT, "lab"), render(here, UNIT, "solution")
    assert '#error \\"00.vector_add is yours to write\\"' in lab
    assert "__popcll(votes)" in solution
    assert "__popcll(votes)" not in lab
    assert "INSERT" not in lab + solution


@pytest.mark.parametrize(
    ("held", "says"),
    [
        (None, "there is no file gpu_utils/exercises/u03_porting_to_rocm/ballot.cu to insert"),
        ("#define TWO \\\n  2\n", "ballot.cu would read otherwise in this string"),
        ('const char *x = """;\n', "ballot.cu would read otherwise in this string"),
    ],
    ids=["no such file", "a backslash", "quotes"],
)
def test_a_file_that_cannot_be_inserted_is_refused_with_its_line(here, tmp_path, monkeypatch, held, says):
    monkeypatch.setattr("gpu_utils.course.cells._ROOT", tmp_path)
    if held is not None:
        path = tmp_path / "gpu_utils/exercises/u03_porting_to_rocm/ballot.cu"
        path.parent.mkdir(parents=True)
        path.write_text(held)
    line = line_of(IN_A_FILE, "// INSERT gpu_utils/exercises/u03_porting_to_rocm/ballot.cu")
    message = refusal(here, IN_A_FILE)
    assert message.startswith(f"content/00_start/lab.py:{line}: ")
    assert says in message
