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


def test_the_html_escapes_the_text_and_marks_changes_without_colour():
    html = DiffFigure(BEFORE, AFTER, "a & b")._repr_html_()
    for part in ("+ line &lt;15&gt;</ins>", "- line 15</del>", "<b>a &amp; b</b>", "what changed in a &amp; b"):
        assert part in html


def test_equal_texts_show_the_title_alone():
    assert repr(DiffFigure(BEFORE, BEFORE, "a file")) == "a file"
