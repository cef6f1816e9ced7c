"""What a student is told: enough to go on, nothing that is hidden, nothing of others, and hostile text stays text."""

from __future__ import annotations

import html.parser
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as some

from gpu_utils.classroom.exports import gradescope
from gpu_utils.classroom.feedback import NAME, feedback, file_stem, told
from gpu_utils.classroom.marks import class_of
from gpu_utils.classroom.writing import write_all
from tests.unit.classroom.made_class import SEED, UNIT, book, hand_in, outcome, result, small_class, submission

VOID = {"meta", "br", "rect", "line", "link", "img", "input"}
HIDDEN = ("918273", "424242.5", "fresh-label", "fresh-why", "flag-sentinel", "log-sentinel", SEED, str(int(SEED, 16)))


class Reader(html.parser.HTMLParser):
    """Reads a page, and notes tags that are not closed in order, and everything that would run or be fetched."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.text = ""
        self.feed(content.decode("utf-8"))
        self.close()
        self.wrong += self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs}
        if tag in {"script", "img", "iframe", "object", "link", "a"} or names & {"src", "href", "srcset", "action"}:
            self.wrong.append(f"{tag} {attrs}")
        self.wrong += [f"{tag} {name}" for name in names if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("code", "span", "strong"):
            self.text += " "
        if tag not in VOID and (not self.open or self.open.pop() != tag):
            self.wrong.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


def _page(made, student="a") -> bytes:
    found = next(each for each in class_of(made) if each.id == student)
    return feedback(found, told(found, made.results(student)))


def _text(made, student="a") -> str:
    return " ".join(Reader(_page(made, student)).text.split())


def _one(tmp_path, found, **of_submission):
    made = book(tmp_path)
    made.put_submission(submission(found.student, **of_submission))
    made.put_result(found)
    return made


def _hiding(**other):
    """A failed answer with something hidden wherever there is room for it."""
    fresh = {"fresh": True, "case": "fresh-label n=918273", "why": "fresh-why 918273"}
    return result(
        "a",
        "00.saxpy",
        "failed",
        **{
            "outcomes": (
                outcome("failed", detail="out[3] = 0.0, expected 1.5"),
                outcome("failed", **fresh, kind="value", detail="out[918273] = 0.0, expected 424242.5"),
                outcome("failed", **fresh, kind="error:E918273", detail="E918273: fresh-label"),
                outcome("passed", **fresh),
            ),
            "flags": ("flag-sentinel 918273",),
            "log": "log-sentinel 424242.5",
            "headline": "3 of 4 checks failed; first: case three blocks on virtual:sm_80: out[3] = 0.0, expected 1.5",
        }
        | other,
    )


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"headline": "1 failed; first: fresh case fresh-label n=918273 on x: out[918273] = 0.0, expected 424242.5"},
        {"headline": f"the seed was {SEED}, {int(SEED, 16)}"},
        {
            "outcomes": (outcome("failed", fresh=True, case="fresh-label", why="fresh-why", detail="918273"),),
            "headline": "918273",
        },
    ],
)
def test_nothing_that_is_hidden_is_in_a_page_or_in_results_json(tmp_path, changed):
    made = _one(tmp_path, _hiding(**changed))
    (student,) = class_of(made)
    found = told(student, made.results("a"))
    for content in (feedback(student, found).decode(), json.dumps(gradescope(student, found))):
        assert not [word for word in HIDDEN if word in content]


def test_public_cases_are_told_with_what_differs_and_fresh_ones_in_words(tmp_path):
    said = _text(_one(tmp_path, _hiding(headline="3 of 4 checks failed")))
    assert "failed: three blocks (a multiple of the block; virtual:sm_80) out[3] = 0.0, expected 1.5" in said
    fresh = "Fresh cases drawn when it was graded: 1 of 3 checks passed"
    assert f"{fresh}; 1 failed: wrong values; 1 failed: it raised an error." in said


def test_what_the_headline_says_is_said_once(tmp_path):
    assert _text(_one(tmp_path, _hiding())).count("out[3] = 0.0, expected 1.5") == 1


def test_an_error_that_every_case_raises_is_told(tmp_path):
    detail = "NameError: name 'offsets' is not defined"
    outcomes = tuple(outcome("failed", kind="error:NameError", detail=detail, fresh=fresh) for fresh in (False, True))
    said = _text(_one(tmp_path, _hiding(outcomes=outcomes, headline=f"2 of 2 checks failed; first: case x: {detail}")))
    assert said.count(detail) == 1
    assert "0 of 1 checks passed; 1 failed: it raised an error." in said


def test_it_is_said_when_only_a_fresh_case_failed(tmp_path):
    outcomes = (outcome(), outcome("failed", fresh=True, case="n=918273", kind="nan", detail="918273"))
    said = _text(
        _one(tmp_path, _hiding(outcomes=outcomes, headline="1 of 2 checks failed; first: fresh case n=918273"))
    )
    assert "The public cases passed, a fresh case did not." in said
    assert "The public checks passed; fresh cases drawn when it was graded: 0 of 1 checks passed; 1 failed: NaN" in said


def test_a_case_that_goes_alike_on_two_backends_is_told_once(tmp_path):
    twice = tuple(
        outcome("failed", detail="out[3] is wrong", where=where) for where in ("virtual:sm_80", "virtual:gfx942")
    )
    said = _text(_one(tmp_path, _hiding(outcomes=twice)))
    assert said.count("out[3] is wrong") == 1
    assert "virtual:sm_80, virtual:gfx942" in said


def test_paths_of_the_grader_are_left_out(tmp_path):
    detail = "FileNotFoundError: '/home/grader/.cache/w2w/x.py' and C:\\Users\\grader\\x.py; 3/4 of it, a/b/c"
    said = _text(_one(tmp_path, _hiding(outcomes=(outcome("failed", detail=detail),), headline=detail)))
    assert "grader" not in said.replace("Fresh cases drawn when it was graded", "")
    assert "3/4 of it, a/b/c" in said


def test_an_answer_without_a_sandbox_says_so(tmp_path):
    assert "ran without a sandbox" in _text(_one(tmp_path, _hiding(walls="none")))
    assert "sandbox" not in _text(_one(tmp_path / "with", _hiding()))


def test_a_page_holds_one_student_and_no_other(tmp_path):
    made = small_class(tmp_path)
    for student in class_of(made):
        said = _page(made, student.id).decode()
        assert [other.id for other in class_of(made) if other.id in said and other.id != student.id] == []


def test_the_teachers_reason_stays_with_the_teacher(tmp_path):
    made = small_class(tmp_path)
    said = _text(made, "student-003")
    assert "could not be read as a notebook" in said
    assert "class.zip" not in said
    assert "Nothing was handed in for this unit." in _text(made, "student-004")
    made.put_result(result("student-003", "00.saxpy", "unreadable", headline="Your notebook ends too early."))
    assert "Your notebook ends too early." in _text(made, "student-003")


def test_lateness_is_told_with_the_marks(tmp_path):
    said = _text(small_class(tmp_path), "student-002")
    assert "2.4 of 6.1 points" in said
    assert "2 days late: 20 % of the marks are taken off." in said


HOSTILE = "</p><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7*7 }}{% raw %}\u202e\x1b[2J"


def test_hostile_text_stays_text(tmp_path):
    made = book(tmp_path)
    made.put_submission(submission(HOSTILE, name=HOSTILE))
    outcomes = (outcome("failed", **dict.fromkeys(("case", "why", "where", "detail"), HOSTILE)),)
    made.put_result(result(HOSTILE, "00.saxpy", "failed", headline=HOSTILE, hint=HOSTILE, outcomes=outcomes))
    page = Reader(_page(made, HOSTILE))
    assert page.wrong == []
    assert page.text.count("{{ 7*7 }}") >= 6
    assert not set("\u202e\x1b") & set(page.text)


def test_megabytes_of_text_are_cut(tmp_path):
    long = "word " * 10**5
    outcomes = (outcome("failed", **dict.fromkeys(("case", "why", "where", "detail"), long)),)
    made = _one(tmp_path, _hiding(headline=long, hint=long, outcomes=outcomes), name=long)
    assert len(_page(made)) < 30_000


def test_every_page_of_a_class_is_in_order_and_fetches_nothing(tmp_path):
    made = small_class(tmp_path)
    write_all(made, class_of(made))
    pages = [*tmp_path.glob("feedback/*.html"), tmp_path / "report.html"]
    assert len(pages) == 6
    for path in pages:
        assert Reader(path.read_bytes()).wrong == []
        assert not re.search(r"https?:|@import|url\(", path.read_text("utf-8"))


NAMES = [
    "../../x",
    "CON",
    "con",
    "Con",
    "",
    "a" * 300,
    "a" * 301,
    "学生",
    "a/b",
    "a-b",
    "a b",
    ".hidden",
    "x\0y",
    "LPT1.x",
    "\n",
]


def test_file_names_are_plain_whatever_an_id_is_and_no_two_ids_share_one():
    stems = [file_stem(name, b"secret") for name in NAMES]
    assert len({stem.casefold() for stem in stems}) == len(NAMES)
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{10,60}", stem) for stem in stems)
    assert all(NAME.fullmatch(f"{stem}.html") for stem in stems)


@given(some.text("aZ0_-./\\é学\0 ", max_size=90))
def test_any_id_makes_a_file_name(student):
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{10,60}", file_stem(student, b""))


def test_nobody_can_tell_the_name_of_anothers_file_without_the_secret():
    assert file_stem("student-001", b"one") != file_stem("student-001", b"two")
    assert file_stem("student-001", b"one").startswith("student-001-")


def test_pages_of_students_who_are_gone_are_taken_out_and_a_teachers_own_file_stays(tmp_path):
    made = book(tmp_path)
    hand_in(made, "a")
    stale = tmp_path / "feedback" / "gone-0123456789.html"
    own = tmp_path / "feedback" / "notes.html"
    stale.parent.mkdir()
    for path in (stale, own):
        path.write_text("x", encoding="utf-8")
    write_all(made, class_of(made))
    assert sorted(path.name for path in (tmp_path / "feedback").iterdir()) == [
        f"{file_stem('a', made.secret())}.html",
        "notes.html",
    ]
    assert own.read_text("utf-8") == "x"


def test_every_exercise_of_the_unit_is_on_the_page(tmp_path):
    said = _text(_one(tmp_path, result("a", UNIT[0])))
    assert all(exercise in said for exercise in UNIT)
    assert said.count("not graded yet") == len(UNIT) - 1
