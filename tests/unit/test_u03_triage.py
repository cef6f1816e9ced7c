"""03.triage: the logs, their variants, and what a wrong guess is told."""

from __future__ import annotations

import re

import pytest

from gpu_utils.course.paths import course
from gpu_utils.exercises.u03_porting_to_rocm.triage import EXERCISE, line_with, triage_reference
from gpu_utils.exercises.u03_porting_to_rocm.triage_logs import NOISE, SWAPS, TAILS, public_logs, variant
from gpu_utils.exercises.u03_porting_to_rocm.triage_tables import CAUSES, FIXES, TRUTHS
from gpu_utils.grading.check import check
from gpu_utils.grading.exercise import Case

SEEDS = range(60)
each_log = pytest.mark.parametrize("name", TRUTHS)


def told(name: str, cause: str, fix: str, seed: int = 0) -> str:
    case = Case("", log=name, seed=seed)
    found = EXERCISE.judge(case, {"log": variant(name, seed)}, {"cause": cause, "fix": fix})
    return "" if found is None else found.detail


def test_there_are_twelve_logs_twelve_causes_and_twelve_fixes_and_more_names_than_that() -> None:
    assert list(public_logs()) == list(TRUTHS) == list(SWAPS)
    assert len(TRUTHS) == 12
    assert len({truth.cause for truth in TRUTHS.values()}) == len({truth.fix for truth in TRUTHS.values()}) == 12
    assert len(CAUSES) >= 16
    assert len(FIXES) >= 16


@each_log
def test_a_log_is_ten_to_thirty_lines_long_and_has_plausible_wrong_readings(name: str) -> None:
    assert 10 <= len(public_logs()[name].splitlines()) <= 30
    truth = TRUTHS[name]
    assert len(truth.causes) >= 3
    assert len(truth.fixes) >= 2
    assert truth.cause not in truth.causes
    assert truth.fix not in truth.fixes
    assert set(truth.causes) | {truth.cause} <= set(CAUSES)
    assert set(truth.fixes) | {truth.fix} <= set(FIXES)


@each_log
def test_the_verdict_is_the_same_in_every_variant(name: str) -> None:
    truth = TRUTHS[name]
    for seed in SEEDS:
        assert triage_reference(variant(name, seed)) == {"cause": truth.cause, "fix": truth.fix}


@each_log
def test_variants_differ_from_the_log_and_from_each_other(name: str) -> None:
    texts = [variant(name, seed) for seed in SEEDS]
    assert len(set(texts)) == len(texts)
    assert texts[0] == public_logs()[name]


@each_log
def test_every_word_that_a_variant_swaps_stands_in_the_log(name: str) -> None:
    for group in SWAPS[name]:
        assert len({len(words) for words in group}) == 1
        assert all(word in public_logs()[name] for word in group[0])


@each_log
def test_a_plausible_wrong_guess_is_told_the_line_that_speaks_against_it(name: str) -> None:
    truth = TRUTHS[name]
    for seed in SEEDS:
        lines = variant(name, seed).splitlines()
        said = [told(name, cause, truth.fix, seed) for cause in truth.causes]
        said += [told(name, truth.cause, fix, seed) for fix in truth.fixes]
        for text in said:
            number, line = re.search(r"line (\d+) says `(.+?)`: ", text).groups()
            assert lines[int(number) - 1].strip() == line


@each_log
def test_the_line_that_speaks_against_a_reading_is_no_noise(name: str) -> None:
    truth = TRUTHS[name]
    for against in (*truth.causes.values(), *truth.fixes.values()):
        for seed in SEEDS:
            _, line = line_with(against.line, variant(name, seed))
            assert line not in (*NOISE, *TAILS)


def test_any_other_wrong_guess_is_told_that_no_line_points_to_it() -> None:
    said = told("12_slow", "ptx_constraint", "stop_tuning")
    assert "no line of this log points to it" in said
    assert "the cause is tuning_left_on, but not mask_of_64_bits" in told(
        "12_slow", "tuning_left_on", "mask_of_64_bits"
    )


def test_a_name_that_is_not_in_the_tables_is_met_with_the_nearest() -> None:
    assert "did you mean 'masks_compose'" in told("01_batch_job", "mask_compose", "number_within_mask")
    assert "did you mean 'stop_tuning'" in told("12_slow", "tuning_left_on", "stop_tunning")


def test_the_right_verdict_is_told_nothing() -> None:
    assert all(told(name, truth.cause, truth.fix) == "" for name, truth in TRUTHS.items())


def test_a_table_of_the_twelve_texts_fails_on_fresh_logs() -> None:
    table = {text: triage_reference(text) for text in public_logs().values()}
    report = check(EXERCISE, lambda log: table.get(log, {"cause": "driver", "fix": "reinstall_driver"}), seed=3)
    failed = [outcome for outcome in report.outcomes if outcome.status == "failed"]
    assert report.status == "failed"
    assert all(outcome.fresh or "seed" in outcome.case for outcome in failed)


def test_the_lab_prints_both_tables() -> None:
    text = (course().content / "03_porting_to_rocm" / "lab.py").read_text()
    for table in (CAUSES, FIXES):
        for name, meaning in table.items():
            assert f"# | `{name}` | {meaning} |" in text


def test_no_log_holds_a_real_place_or_name() -> None:
    for text in public_logs().values():
        assert not re.search(r"/work/|/tmp/|/root/|https?://|@", text)
