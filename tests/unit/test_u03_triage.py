"""03.triage: the logs, their variants, and what a wrong guess is told."""

from __future__ import annotations

import re

import pytest

from gpu_utils.course.paths import course
from gpu_utils.exercises.u03_porting_to_rocm.triage import EXERCISE, line_with
from gpu_utils.exercises.u03_porting_to_rocm.triage_collect import collect, matches, public_logs
from gpu_utils.exercises.u03_porting_to_rocm.triage_logs import SWAPS, raw_logs
from gpu_utils.exercises.u03_porting_to_rocm.triage_read import SIGNS, triage_reference
from gpu_utils.exercises.u03_porting_to_rocm.triage_tables import CAUSES, FIXES, TRUTHS
from gpu_utils.grading.check import check
from gpu_utils.grading.exercise import Case

SEEDS = range(60)
each_log = pytest.mark.parametrize("name", TRUTHS)


def told(name: str, cause: str, fix: str, line: object = None, seed: int = 0) -> str:
    case = Case("", log=name, seed=seed)
    text = collect(name, seed).text
    line = triage_reference(text)["line"] if line is None else line
    found = EXERCISE.judge(case, {"log": text}, {"cause": cause, "fix": fix, "line": line})
    return "" if found is None else found.detail


def test_there_are_sixteen_logs_each_with_its_cause_and_its_fix_and_more_fixes_than_that() -> None:
    assert list(raw_logs()) == list(public_logs()) == list(TRUTHS) == list(SWAPS)
    assert len(TRUTHS) == len({truth.fix for truth in TRUTHS.values()}) == 16
    assert {truth.cause for truth in TRUTHS.values()} == set(CAUSES)
    assert len(FIXES) >= 20


@each_log
def test_a_log_is_ten_to_thirty_lines_long_and_has_plausible_wrong_readings(name: str) -> None:
    assert 10 <= len(raw_logs()[name].splitlines()) <= 30
    truth = TRUTHS[name]
    assert len(truth.causes) >= 3
    assert len(truth.fixes) >= 2
    assert truth.cause not in truth.causes
    assert truth.fix not in truth.fixes
    assert set(truth.causes) | {truth.cause} <= set(CAUSES)
    assert set(truth.fixes) | {truth.fix} <= set(FIXES)
    assert all(any(matches(marker, line) for line in raw_logs()[name].splitlines()) for marker in truth.evidence)


@each_log
def test_the_verdict_and_its_evidence_are_right_in_every_variant(name: str) -> None:
    for seed in SEEDS:
        verdict = triage_reference(collect(name, seed).text)
        assert told(name, verdict["cause"], verdict["fix"], verdict["line"], seed) == ""


@each_log
def test_variants_differ_from_the_log_and_from_each_other(name: str) -> None:
    texts = [collect(name, seed).text for seed in SEEDS]
    assert len(set(texts)) == len(texts)
    assert texts[0] == public_logs()[name]


def test_a_log_by_itself_holds_its_job_alone_in_the_order_of_time() -> None:
    for name in TRUTHS:
        lines = collect(name).lines
        assert {line.kind for line in lines} == {"log"}
        assert [line.at for line in lines] == sorted(line.at for line in lines)
        assert len(lines) == len(raw_logs()[name].splitlines())


def test_in_a_variant_every_line_has_a_time_of_its_own_and_the_order_is_another() -> None:
    for name in TRUTHS:
        text = collect(name, 5).text
        times = [line.split(" ")[0] for line in text.splitlines()[1:]]
        assert len(set(times)) == len(times)
        assert times != sorted(times)
        assert all(re.fullmatch(r"[\d:]{8}\.\d{3} \d+ .*", line) for line in text.splitlines()[1:])


def test_most_variants_hold_the_signs_of_other_failures_in_lines_of_other_jobs_and_of_later_attempts() -> None:
    for kind in ("other", "later"):
        for words, cause in SIGNS:
            logs = [name for name in TRUTHS if TRUTHS[name].cause != cause]
            there = [any(one.kind == kind and words in one.text for one in collect(n, 6).lines) for n in logs]
            assert any(there), (kind, words)


@each_log
def test_every_word_that_a_variant_swaps_stands_in_the_log(name: str) -> None:
    for group in SWAPS[name]:
        assert len({len(words) for words in group}) == 1
        assert all(word in raw_logs()[name] for word in group[0])


@each_log
def test_a_plausible_wrong_guess_is_told_the_line_that_speaks_against_it(name: str) -> None:
    truth = TRUTHS[name]
    for seed in SEEDS:
        own = {line.number: line for line in collect(name, seed).lines}
        said = [told(name, cause, truth.fix, 2, seed) for cause in truth.causes]
        said += [told(name, truth.cause, fix, 2, seed) for fix in truth.fixes]
        for text in said:
            number, line = re.search(r"line (\d+) says `(.+?)`: ", text).groups()
            assert own[int(number)].text.strip() == line
            assert own[int(number)].kind == "log"


def test_any_other_wrong_guess_is_told_that_no_line_points_to_it() -> None:
    said = told("12_slow", "ptx_constraint", "stop_tuning")
    assert "nothing in the lines of this job up to its failure points to it" in said
    assert "the cause is tuning_left_on, but not mask_of_64_bits" in told(
        "12_slow", "tuning_left_on", "mask_of_64_bits"
    )


@pytest.mark.parametrize(
    ("kind", "advice"), [("other", "belongs to another job: keep the lines"), ("later", "had failed: sort by time")]
)
def test_a_guess_from_a_line_of_another_job_or_attempt_is_told_that_line(kind: str, advice: str) -> None:
    name, seed, found = "06_first_step", 5, 0
    truth, lines = TRUTHS[name], collect(name, seed).lines
    for other in TRUTHS.values():
        shown = [one for one in lines if any(matches(m, one.text) for m in other.evidence) and one.kind != "log"]
        if other.cause in truth.causes or not shown or shown[0].kind != kind:
            continue
        found += 1
        said = told(name, other.cause, other.fix, 2, seed)
        assert advice in said
        assert f"line {shown[0].number} says `{shown[0].text.strip()}`" in said
    assert found


def test_a_name_that_is_not_in_the_tables_is_met_with_the_nearest() -> None:
    assert "did you mean 'masks_compose'" in told("01_batch_job", "mask_compose", "number_within_mask")
    assert "did you mean 'stop_tuning'" in told("12_slow", "tuning_left_on", "stop_tunning")


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("other", "it belongs to another job"),
        ("later", "it was written after the job had failed"),
        ("noise", "it is harmless"),
        ("log", "does not show the cause"),
    ],
)
def test_a_line_that_is_no_evidence_is_told_what_it_is(kind: str, why: str) -> None:
    truth, lines = TRUTHS["04_new_node"], collect("04_new_node", 4).lines
    shown = next(line for line in lines if line.kind == kind and not any(matches(m, line.text) for m in truth.evidence))
    assert why in told("04_new_node", truth.cause, truth.fix, shown.number, 4)


@pytest.mark.parametrize("seed", [0, 28])
def test_a_line_that_seems_to_show_the_cause_is_told_why_it_does_not(seed: int) -> None:
    truth = TRUTHS["11_fresh_env"]
    number, _ = line_with("Found no NVIDIA driver", collect("11_fresh_env", seed).lines)
    assert "which line tells the build of torch?" in told("11_fresh_env", truth.cause, truth.fix, number, seed)


def test_a_line_must_be_a_number_that_the_log_has() -> None:
    truth = TRUTHS["12_slow"]
    assert "expected a number" in told("12_slow", truth.cause, truth.fix, "finding fastest")
    assert "the log has no line 900" in told("12_slow", truth.cause, truth.fix, 900)
    _, text = line_with("finding fastest", collect("12_slow").lines)
    assert text.startswith("finding fastest")


def test_a_table_of_the_texts_fails_on_fresh_logs() -> None:
    table = {text: triage_reference(text) for text in public_logs().values()}
    unknown = {"cause": "driver", "fix": "reinstall_driver", "line": 2}
    report = check(EXERCISE, lambda log: table.get(log, unknown), seed=3)
    failed = [outcome for outcome in report.outcomes if outcome.status == "failed"]
    assert report.status == "failed"
    assert all(outcome.fresh or "seed" in outcome.case or "job 7" in outcome.case for outcome in failed)


def test_the_lab_prints_both_tables() -> None:
    text = (course().content / "03_porting_to_rocm" / "lab.py").read_text()
    for table in (CAUSES, FIXES):
        for name, meaning in table.items():
            assert f"# | `{name}` | {meaning} |" in text


def test_no_log_holds_a_real_place_or_name() -> None:
    for text in raw_logs().values():
        assert not re.search(r"/work/|/tmp/|/root/|https?://|@", text)


def test_a_wrong_answer_names_a_cause_and_a_fix_that_the_tables_have():
    found = [(one.name, one.answer(log)) for one in EXERCISE.misconceptions for log in public_logs().values()]
    assert [name for name, said in found if said["cause"] not in CAUSES] == []
    assert [name for name, said in found if said["fix"] not in FIXES] == []
