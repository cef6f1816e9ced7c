"""The parity report, and the ported script that prints it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from gpu_utils.course.paths import unit_folder
from gpu_utils.model.corpus import CorpusConfig
from gpu_utils.model.gpt2 import GPT2Config
from gpu_utils.model.parity import Agreement, agreement, parity
from gpu_utils.model.records import RecordError, RunRecord, load_record, save_record
from gpu_utils.model.training import TrainConfig, train

SCRIPT = unit_folder("03") / "files" / "train.py"
TINY = TrainConfig(
    model=GPT2Config(vocab_size=300, n_positions=16, n_embd=16, n_layer=1, n_head=2),
    corpus=CorpusConfig(vocab_size=300, max_bytes=300_000),
    **{"batch": 2, "seq_len": 16, "steps": 12, "warmup": 2, "max_lr": 1e-2, "min_lr": 1e-3, "eval_batches": 2},
)
GOOD = Agreement(1e-7, 1e-7, 1e-4, "a bound", "cpu", "float32", future=0.0)


@pytest.fixture(scope="module")
def record() -> RunRecord:
    return train(TINY, progress=None, device="cpu").record


def holds(report):
    return {row.what: row.holds for row in report.rows}


def test_float32_agrees_with_float64_within_the_bound():
    found = agreement("cpu", TINY.model)
    assert 0 < found.logits < found.bound
    assert 0 < found.gradients < found.bound


def test_arithmetic_in_bfloat16_breaks_the_bound_of_float32(monkeypatch):
    exact = agreement("cpu", TINY.model)
    monkeypatch.setattr("gpu_utils.model.parity.training_dtype", lambda device: torch.bfloat16)
    coarse = agreement("cpu", TINY.model)
    assert exact.bound < coarse.logits < coarse.bound


def test_a_run_agrees_with_its_own_record_read_from_a_file(record, tmp_path):
    report = parity(load_record(save_record(record, tmp_path)), record, GOOD)
    assert report.passed
    assert report.missing == ""
    assert "final validation loss" in str(report)
    assert record.versions["torch"] in str(report)
    assert record.created in str(report)


def test_another_first_loss_breaks_parity_and_so_does_another_end(record):
    wrong_start = replace(record, train_loss=[record.train_loss[0] + 0.01, *record.train_loss[1:]])
    assert not parity(record, wrong_start, GOOD).passed
    assert holds(parity(record, wrong_start, GOOD))["loss of the first step"] is False
    wrong_end = replace(record, val_loss=[*record.val_loss[:-1], (TINY.steps, record.final_val_loss + 2.0)])
    assert holds(parity(record, wrong_end, GOOD))["final validation loss"] is False


def test_wrong_gradients_break_parity(record):
    report = parity(record, record, replace(GOOD, gradients=0.5))
    assert not report.passed
    assert "BROKEN" in str(report)


def without_mask(q, k, v, **flags):
    return fused(q, k, v)


fused = torch.nn.functional.scaled_dot_product_attention


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_token_sees_its_future_in_any_type_and_without_the_mask_each_does(monkeypatch, dtype):
    monkeypatch.setattr("gpu_utils.model.parity.training_dtype", lambda device: dtype)
    assert agreement("cpu", TINY.model).future == 0
    monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", without_mask)
    assert agreement("cpu", TINY.model).future > 1e-4


def test_a_lost_mask_agrees_with_itself_and_is_found_by_what_it_sees_of_the_future(record, monkeypatch):
    monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", without_mask)
    found = holds(parity(record, record, agreement("cpu", TINY.model)))
    assert found["logits of one batch"] is True
    assert found["gradients of one batch"] is True
    assert found["seen of the future"] is False


def seeds(record, values, shift=0.0):
    """Runs of other seeds: their losses lie `values` apart, and those of the candidate `shift` further on."""
    return [
        replace(
            record,
            config={**record.config, "seed": i},
            train_loss=[record.train_loss[0], *(loss + value + shift for loss in record.train_loss[1:])],
            val_loss=[(TINY.steps, record.final_val_loss + value + shift)],
            tokens_per_second=1000.0 + 100 * i,
        )
        for i, value in enumerate(values)
    ]


def test_the_bound_of_a_mean_is_the_spread_of_the_earlier_seeds_and_pairs_are_compared(record):
    apart = (-0.1, 0.0, 0.1)  # a standard deviation of 0.1: 4.303 standard errors of three seeds are 0.2484
    before = seeds(record, apart)
    for shift, right in ((0.24, True), (0.25, False), (-0.25, False)):
        found = holds(parity(before, seeds(record, apart, shift), GOOD))
        assert found["final validation loss"] is right
        assert found[f"mean of the last {min(TINY.steps, 10)} steps"] is right


def test_a_candidate_whose_runs_lie_far_apart_does_not_widen_its_own_bound(record):
    before, now = seeds(record, (-0.01, 0.0, 0.01)), seeds(record, (-1.0, 0.3, 1.0))
    assert holds(parity(before, now, GOOD))["final validation loss"] is False


def test_pairs_show_a_shift_that_seeds_hide_and_are_not_judged(record):
    before = seeds(record, (-0.1, 0.0, 0.1))
    now = seeds(record, (-0.098, 0.003, 0.101))
    rows = {row.what: row for row in parity(before, now, GOOD).rows}
    assert rows["final validation loss"].holds is True
    pairs = rows["validation by pairs"]
    assert (pairs.difference, pairs.limit, pairs.holds) == ("2.0e-03", "2.5e-03", None)
    assert "validation by pairs" not in holds(parity(record, record, GOOD))


def test_runs_without_their_partner_are_refused(record):
    with pytest.raises(RecordError, match="3 runs before and 2 now"):
        parity(seeds(record, (0, 1, 2)), seeds(record, (0, 1)), GOOD)
    other = seeds(record, (0, 1))[::-1]
    assert parity(seeds(record, (0, 1)), other, GOOD).missing == "Losses are not compared: the runs differ in seed."


def test_before_and_now_hold_values_of_the_runs_only_and_nothing_is_written_as_0(record):
    rows = {row.what: row for row in parity(record, record, GOOD).rows}
    assert (rows["seen of the future"].difference, rows["final validation loss"].difference) == ("0", "0")
    for what in ("logits of one batch", "gradients of one batch", "seen of the future"):
        assert (rows[what].before, rows[what].now) == ("", "")
    assert "float32 against float64" in rows["logits of one batch"].bound


def test_one_run_of_few_steps_has_no_spread_and_no_verdict_on_its_mean(record):
    short = replace(record, train_loss=record.train_loss[:2])
    assert holds(parity(short, short, GOOD))["final validation loss"] is None


def test_speeds_of_several_runs_are_shown_with_their_spread(record):
    report = parity(seeds(record, (0, 1, 2)), seeds(record, (0, 1, 2)), GOOD)
    assert "1,100 (1,000 to 1,200)" in str(report)


def test_runs_of_different_configurations_are_not_compared_by_their_losses(record):
    config = {**record.config, "model": {**record.config["model"], "n_layer": 2}}
    report = parity(record, replace(record, config=config), GOOD)
    assert report.missing == "Losses are not compared: the runs differ in model.n_layer."
    assert "final validation loss" not in holds(report)


def test_a_speed_is_a_ratio_and_no_verdict(record):
    report = parity(record, replace(record, tokens_per_second=2 * record.tokens_per_second), GOOD)
    speed = next(row for row in report.rows if row.what == "tokens/s")
    assert (speed.difference, speed.holds) == ("x 2.00", None)
    assert report.passed


def run_script(*arguments, data):
    environment = {**os.environ, "W2W_DATA": str(data), "PYTHONPATH": str(SCRIPT.parents[2])}
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, env=environment)


def test_the_script_explains_itself(tmp_path):
    done = run_script("--help", data=tmp_path)
    assert done.returncode == 0
    assert "--compare" in done.stdout


def test_the_script_says_at_once_that_there_is_no_record_to_compare_with(tmp_path):
    done = run_script("--steps", "2", data=tmp_path)
    assert done.returncode != 0
    assert "run the lesson of unit 01 first" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_script_trains_saves_its_record_and_reports(record, tmp_path):
    path = save_record(record, tmp_path)
    done = run_script("--preset", "cpu", "--steps", "2", "--device", "cpu", "--compare", str(path), data=tmp_path)
    assert "gradients of one batch" in done.stdout, done.stderr
    assert "the runs differ in" in done.stdout
    assert done.returncode == 0
    assert list((tmp_path / "runs").glob("03-*.json"))
