"""The figure of what changed between two texts."""

from gpu_utils.ui.diff_figure import DiffFigure

BEFORE = "\n".join(f"line {number}" for number in range(20))
AFTER = BEFORE.replace("line 3", "line three").replace("line 15", "line <15>")


def test_only_the_changed_lines_and_their_neighbours_are_shown():
    assert DiffFigure(BEFORE, AFTER, "a file", around=1).lines == [
        (" ", "line 2"),
        ("-", "line 3"),
        ("+", "line three"),
        (" ", "line 4"),
        ("⋯", ""),
        (" ", "line 14"),
        ("-", "line 15"),
        ("+", "line <15>"),
        (" ", "line 16"),
    ]


def test_lines_that_were_renamed_stand_in_pairs_and_other_lines_do_not():
    before = "cudaStream_t stream;\ncudaEvent_t event;\n"
    marks = [mark for mark, _ in DiffFigure(before, before.replace("cuda", "hip"), "renamed").lines]
    assert marks == ["-", "+", "-", "+"]
    marks = [mark for mark, _ in DiffFigure(before, "int a = 0;\nreturn 7 * b;\n", "written anew").lines]
    assert marks == ["-", "-", "+", "+"]


def test_the_html_escapes_the_text_and_marks_changes_without_colour():
    html = DiffFigure(BEFORE, AFTER, "a & b")._repr_html_()
    for part in ("+ line &lt;15&gt;</ins>", "- line 15</del>", "<b>a &amp; b</b>", "what changed in a &amp; b"):
        assert part in html


def test_equal_texts_show_the_title_alone():
    assert repr(DiffFigure(BEFORE, BEFORE, "a file")) == "a file"
