"""A report reads without colour, escapes what an answer said, and is brief where failures repeat."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest

from gpu_utils.grading.check import check
from gpu_utils.grading.report import Mode, Outcome, Report
from gpu_utils.ui.report import STORED, report_html, report_text
from tests.unit.sample_exercises import AFFINE, affine, forgets_the_one

LONG = "out[256] = 0.0, expected 3.0; " + "a long sentence about it " * 10


def failed(detail=LONG, count=3):
    outcomes = [
        Outcome(f"n={n}", "why it is there", "cpu", "failed", kind="value", detail=detail) for n in range(count)
    ]
    return Report("99.affine", "Scale and shift", "failed", "3 of 3 checks failed", outcomes, hint="Look at the shift.")


@pytest.mark.parametrize("show", [report_text, report_html])
def test_the_status_is_a_word_and_a_mark_not_only_a_colour(show):
    assert "✓ PASSED" in show(check(AFFINE, affine))
    assert "✗ FAILED" in show(check(AFFINE, forgets_the_one))


@pytest.mark.parametrize("show", [report_text, report_html])
def test_a_failure_shows_the_hint_the_reason_and_the_seed(show):
    report = check(AFFINE, forgets_the_one)
    text = html.unescape(show(report))
    assert report.hint in text
    assert AFFINE.cases[0].why in text
    assert f"seed={report.seed}" in text


@pytest.mark.parametrize("show", [report_text, report_html])
def test_a_sentence_that_repeats_is_cut_short(show):
    flat = re.sub(r"\s+", " ", show(failed()))
    assert flat.count("a long sentence about it " * 9) == 1
    assert flat.count("...") == 2


def test_what_an_answer_said_cannot_become_markup():
    shown = report_html(failed("<script>alert(1)</script><img src=x>"))
    assert "<script" not in shown
    assert "<img" not in shown


def test_the_html_needs_no_network_and_no_script():
    shown = report_html(check(AFFINE, forgets_the_one))
    assert not re.search(r"<script|https?://|src=|@import", shown)


def test_the_html_closes_what_it_opens():
    from html.parser import HTMLParser

    class Balance(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open = []

        def handle_starttag(self, tag, attrs):
            if tag != "br":
                self.open.append(tag)

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    parser = Balance()
    parser.feed(report_html(check(AFFINE, forgets_the_one)))
    assert parser.open == []


@pytest.mark.parametrize("show", [report_text, report_html])
def test_a_case_that_goes_alike_on_two_backends_is_one_row(show):
    outcomes = [
        Outcome("n=7", "a tail", backend, "failed", kind="value", detail="out[6] = 0")
        for backend in ("virtual:sm_80", "virtual:gfx942")
    ]
    shown = show(Report("99.affine", "Scale and shift", "failed", "2 of 2 checks failed", outcomes))
    assert "virtual:sm_80, virtual:gfx942" in shown
    assert shown.count("out[6] = 0") == 1


@pytest.mark.parametrize("show", [report_text, report_html])
@pytest.mark.parametrize(
    ("mode", "words"),
    [
        (Mode.RUN, "virtual:sm_80"),
        (Mode.IDLE, "virtual:sm_80 with idle kernels"),
        (Mode.COMPILED, "compiled for virtual:sm_80"),
        (Mode.NOT_RUN, "virtual:sm_80"),
    ],
)
def test_a_row_says_whether_kernels_ran_did_nothing_or_were_only_compiled(show, mode, words):
    outcome = Outcome("n=7", "a tail", "virtual:sm_80", "passed", mode=mode)
    shown = show(Report("99.affine", "Scale and shift", "passed", "well", [outcome]))
    assert re.search(rf"[> ] ?{words}(</td>| +n=7)", shown)


@pytest.mark.parametrize("show", [report_text, report_html])
def test_a_report_says_when_stored_listings_stood_in_for_the_compiler(show):
    passed = Report("99.affine", "Scale and shift", "passed", "well", stored=True, notes=("another",))
    assert STORED in show(passed)
    assert "another" in show(passed)
    assert STORED not in show(replace(passed, stored=False))


@pytest.mark.parametrize("show", [report_text, report_html])
def test_the_same_mistake_everywhere_is_said_once_with_its_count(show):
    backends = ("virtual:sm_80", "virtual:gfx942")
    outcomes = [
        Outcome(
            f"n={n}", "a size", name, "failed", kind="error:CompileFailed", detail=f"C++ for {name[8:]}: line 3: ';'"
        )
        for n in range(10)
        for name in backends
    ]
    headline = f"20 of 20 checks failed; first: {outcomes[0].detail}"
    shown = html.unescape(show(Report("99.affine", "Scale and shift", "failed", headline, outcomes)))
    assert shown.count("line 3: ';'") == 1
    assert "n=0 and 9 more cases" in shown
    assert "x20" in shown


@pytest.mark.parametrize("answer", [forgets_the_one, lambda x: 1 / 0, lambda x: x[:-1], affine])
def test_the_counts_of_rows_and_headline_agree(answer):
    report = check(AFFINE, answer)
    text = report_text(report)
    marks = re.findall(r"^  ([✗✓]) (?:x?(\d+) )?", text, re.MULTILINE)
    failed = sum(int(count or 1) for mark, count in marks if mark == "✗")
    assert sum(int(count or 1) for _, count in marks) == len(report.outcomes)
    assert failed == sum(outcome.status == "failed" for outcome in report.outcomes)
    assert not failed or report.headline.startswith(f"{failed} of {len(report.outcomes)} checks failed")


def test_the_sentence_of_the_headline_is_not_said_again_below_it():
    report = check(AFFINE, lambda x: 1 / 0)
    assert re.sub(r"\s+", " ", report_text(report)).count("ZeroDivisionError") == 1


def test_of_many_failures_three_are_told_with_one_of_each_kind_and_the_others_are_named():
    kinds = ["value"] * 18 + ["shape"]
    outcomes = [
        Outcome(f"n={n}", "odd", "cpu", "failed", kind=kind, detail=f"{kind} of {n}") for n, kind in enumerate(kinds)
    ]
    outcomes += [Outcome("n=0", "odd", "cpu", "passed", Mode.DEVICE)]
    outcomes += [Outcome("n=50", "even", "cpu", "passed"), Outcome("n=51", "even", "cpu", "skipped", detail="no GPU")]
    report = Report("99.affine", "Scale and shift", "failed", "19 of 20 checks failed", outcomes)
    text = report_text(report)
    assert re.findall(r"(?:value|shape) of \d+", text) == ["value of 0", "shape of 18", "value of 1"]
    assert "✗ 16 more failed: n=2; n=3; " in text
    assert "✓ 2 passed: n=0 (a device apart from the CPU); n=50" in text
    assert "no GPU" in text
    shown = report_html(report)
    assert "19 failed" in shown.split("<table")[0]
    assert "The others: 2 passed, 16 failed" in shown
    assert shown.index("no GPU") < shown.index("The others") < shown.index("value of 2")
