import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from gpu_utils.errors import UnknownName
from gpu_utils.model import device as device_module
from gpu_utils.model import training
from gpu_utils.model.corpus import CorpusConfig
from gpu_utils.model.costs import flops_per_token
from gpu_utils.model.gpt2 import GPT2, GPT2Config
from gpu_utils.model.products import products_alone
from gpu_utils.model.profiling import callers, operator_shares, product_share
from gpu_utils.model.records import RecordError, latest_record, load_record, runs_folder, save_record
from gpu_utils.model.training import (
    PROMPTS,
    Batches,
    TrainConfig,
    TrainingError,
    accumulated_step,
    learning_rate,
    parameter_groups,
    print_progress,
    train,
    trial,
    validation_loss,
)

TINY = TrainConfig(
    model=GPT2Config(vocab_size=300, n_positions=32, n_embd=32, n_layer=2, n_head=2),
    corpus=CorpusConfig(vocab_size=300, max_bytes=200_000),
    batch=4,
    accumulate=2,
    seq_len=32,
    steps=30,
    warmup=5,
    max_lr=1e-2,
    min_lr=1e-3,
    eval_every=20,
    eval_batches=2,
)


@pytest.fixture(autouse=True, scope="module")
def folders(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("W2W_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("W2W_DATA", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="module")
def result(folders):
    return train(TINY, device="cpu", progress=None)


def test_the_loss_falls_below_the_unigram_entropy(result):
    record = result.record
    assert record.val_loss[0][1] == pytest.approx(math.log(300), rel=0.02)  # at the start every token is as likely
    longer = train(replace(TINY, steps=120), device="cpu", progress=None).record
    assert longer.final_val_loss < longer.unigram_nats - 0.1
    assert [step for step, _ in longer.val_loss] == [0, 20, 40, 60, 80, 100, 120]


def test_the_same_seed_gives_the_same_losses_and_another_gives_others(result):
    assert train(TINY, device="cpu", progress=None).record.train_loss == result.record.train_loss
    assert train(replace(TINY, seed=1), device="cpu", progress=None).record.train_loss != result.record.train_loss


def test_the_record_says_what_was_measured(result):
    record = result.record
    assert record.parameters == sum(p.numel() for p in result.model.parameters())
    assert len(record.train_loss) == 30
    assert record.val_loss[-1] == (30, validation_loss(result.model, result.corpus, TINY))
    assert record.config["batch"] == 4
    assert record.config["model"]["n_embd"] == 32
    assert record.peak_source.startswith("measured")
    assert record.mfu == pytest.approx(record.tokens_per_second * record.flops_per_token / record.peak_flops)
    assert 0 < record.mfu < 1
    assert record.tokens_per_second >= 29 * TINY.tokens_per_step / record.seconds  # validation is left out
    assert record.memory_bytes > 50e6
    assert record.bits_per_byte == pytest.approx(result.corpus.bits_per_byte(record.final_val_loss))
    assert record.versions["torch"] == torch.__version__
    assert all(text.startswith(prompt) for text, prompt in zip(record.samples, PROMPTS, strict=True))


def test_accumulated_gradients_are_those_of_one_large_batch(result):
    class Given:
        def __init__(self, pairs):
            self.pairs = iter(pairs)

        def draw(self):
            return next(self.pairs)

    torch.manual_seed(0)
    model = GPT2(TINY.model).double()
    pairs = [Batches(result.corpus.train, TINY, torch.device("cpu"), seed).draw() for seed in range(4)]
    whole = [tuple(torch.cat(parts) for parts in zip(*pairs, strict=True))]
    loss = accumulated_step(model, Given(whole), 1)
    want = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    torch.testing.assert_close(accumulated_step(model, Given(pairs), 4), loss)
    for got, reference in zip((p.grad for p in model.parameters()), want, strict=True):
        torch.testing.assert_close(got, reference, rtol=1e-9, atol=1e-12)


def test_the_schedule_warms_up_peaks_falls_and_holds():
    rates = [learning_rate(s, warmup=10, total=100, max_lr=1.0, min_lr=0.1) for s in range(150)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == 1.0
    assert np.all(np.diff(rates[:10]) > 0)
    assert np.all(np.diff(rates[10:101]) < 0)
    assert rates[55] == pytest.approx(0.55)
    assert set(rates[100:]) == {0.1}
    assert learning_rate(0, warmup=0, total=10, max_lr=1.0, min_lr=0.1) == 1.0


def test_every_parameter_is_in_one_group_and_only_matrices_decay():
    model = GPT2(TINY.model)
    decayed, plain = parameter_groups(model, 0.1)
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    ids = [id(p) for group in (decayed, plain) for p in group["params"]]
    assert sorted(ids) == sorted(id(p) for p in model.parameters())
    names = {id(p): name for name, p in model.named_parameters()}
    for p in plain["params"]:
        assert "ln_" in names[id(p)] or names[id(p)].endswith("bias")


def test_progress_ends_with_the_last_step():
    seen = []
    train(replace(TINY, steps=3), device="cpu", progress=seen.append)
    assert seen[-1].step == seen[-1].steps == 3
    assert seen[-1].tokens_per_second > 0


def test_the_progress_line_overwrites_itself_and_ends_with_a_newline(capsys):
    print_progress(training.Progress(5, 10, 3.25, 1e-3, 1234.5, 2.0))
    print_progress(training.Progress(10, 10, 3.0, 1e-3, 1234.5, 4.0))
    first, last = capsys.readouterr().out.split("\r")[1:]
    assert "5/10  loss 3.250  1,23" in first
    assert "2 s left" in first
    assert "\n" not in first
    assert last.endswith("\n")


def test_a_diverging_run_stops_with_advice():
    with pytest.raises(TrainingError, match=r"the loss is (nan|inf) at step .*max_lr below"):
        train(replace(TINY, max_lr=1e30, min_lr=1e30, clip=1e30, steps=4, warmup=0), device="cpu", progress=None)


def test_configurations_that_cannot_work_are_refused():
    with pytest.raises(TrainingError, match="the tokenizer makes 400 tokens, the model knows 300"):
        replace(TINY, corpus=CorpusConfig(vocab_size=400))
    with pytest.raises(TrainingError, match="seq_len 33 is more than the model's n_positions 32"):
        replace(TINY, seq_len=33)
    with pytest.raises(TrainingError, match="must be 1 or more"):
        replace(TINY, steps=0)
    with pytest.raises(UnknownName, match="did you mean 'gpt2'"):
        TrainConfig.preset("gpt-2")


def test_the_presets_fit_their_models():
    assert TrainConfig.preset("gpt2").model.n_embd == 768
    assert TrainConfig.preset("cpu").tokens_per_step == 1024


def test_bench_gets_the_speed_of_this_machines_preset(monkeypatch):
    monkeypatch.setitem(training.PRESETS, training.default_preset(), TINY)
    found = training.speed(4)
    assert found["steps"] == 4
    assert found["tokens_per_second"] > 100


def test_a_gpu_missing_from_the_registry_has_no_peak_and_says_so(monkeypatch):
    stranger = replace(device_module.probe(), name="Strange 9000", vendor="amd", target="gfx9999", chip=None)
    monkeypatch.setattr(device_module, "probe", lambda: stranger)
    peak = device_module.device_peak(torch.device("cuda"), torch.bfloat16)
    assert peak == device_module.Peak(None, "Strange 9000 is not in the registry of chips")


def test_a_known_gpu_has_its_registry_peak(monkeypatch):
    from gpu_utils import CHIPS

    known = replace(device_module.probe(), vendor="amd", chip=CHIPS["MI300X"])
    monkeypatch.setattr(device_module, "probe", lambda: known)
    peak = device_module.device_peak(torch.device("cuda"), torch.bfloat16)
    assert peak.flops_per_second == CHIPS["MI300X"].peak("bf16") * 1e12
    assert "source" in peak.source


# --- records -----------------------------------------------------------------------------------------------------


def test_a_record_survives_saving_and_loading(result, tmp_path):
    path = save_record(result.record, tmp_path)
    assert load_record(path) == result.record
    assert path.parent == tmp_path
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_two_records_of_one_second_are_both_kept(result, tmp_path):
    assert save_record(result.record, tmp_path) != save_record(result.record, tmp_path)


def test_the_latest_record_of_a_unit_is_found_by_its_date(result, tmp_path):
    old = replace(result.record, created="2025-01-01T00:00:00+00:00")
    new = replace(result.record, created="2026-01-01T00:00:00+00:00")
    other = replace(result.record, created="2027-01-01T00:00:00+00:00", unit="15")
    for each in (new, old, other):
        save_record(each, tmp_path)
    assert latest_record("01", tmp_path) == new


def test_without_a_record_the_learner_is_told_to_run_the_lesson(monkeypatch, tmp_path):
    monkeypatch.setenv("W2W_DATA", str(tmp_path))
    with pytest.raises(RecordError, match="run the lesson of unit 01 first"):
        latest_record("01")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"kind": "other"}', '{"kind": "w2w-run-record", "version": 1}', "\x00"]
)
def test_a_corrupt_record_is_kept_aside_and_the_older_one_is_read(result, tmp_path, text):
    save_record(result.record, tmp_path)
    bad = tmp_path / "01-29990101T000000-abcdef.json"
    bad.write_text(text)
    with pytest.warns(UserWarning, match="kept as"):
        assert latest_record("01", tmp_path) == result.record
    assert not bad.exists()
    assert bad.with_suffix(".unreadable").read_text() == text


def test_a_record_of_a_newer_course_is_left_in_place(result, tmp_path):
    path = save_record(result.record, tmp_path)
    path.write_text(json.dumps({"kind": "w2w-run-record", "version": 2}))
    with pytest.warns(UserWarning, match="update the course"), pytest.raises(RecordError, match="no run record"):
        latest_record("01", tmp_path)
    assert path.exists()


def test_losses_that_are_not_numbers_are_refused(result, tmp_path):
    for wrong in ({"val_loss": []}, {"val_loss": [[3, "x"]]}, {"train_loss": ["x"]}, {"val_loss": [[3, float("nan")]]}):
        raw = {"kind": "w2w-run-record", "version": 1, **asdict(result.record), **wrong}
        path = tmp_path / "01-x.json"
        path.write_text(json.dumps(raw))
        with pytest.raises(RecordError, match="loss"):
            load_record(path)


def test_a_folder_that_cannot_be_written_is_named_with_what_to_try(result, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("a file where a folder should be")
    monkeypatch.setenv("W2W_DATA", str(tmp_path / "file"))
    with pytest.raises(RecordError, match="set W2W_DATA to a folder that you can write"):
        save_record(result.record)
    assert runs_folder() == tmp_path / "file" / "runs"


def test_a_full_disk_leaves_no_half_written_record(result, tmp_path, monkeypatch):
    from pathlib import Path

    def full(self, text, **kwargs):
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(RecordError, match="No space left on device"):
        save_record(result.record, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_trial_changes_settings_and_returns_tokens_a_second(result):
    assert trial(result.corpus, TINY, steps=3, batch=1) > 0


def test_the_norms_of_a_run_are_those_before_clipping(result):
    assert len(result.gradient_norms) == TINY.steps
    clipped = train(replace(TINY, clip=0.01, steps=2), device="cpu", progress=None)
    assert clipped.gradient_norms[0] == pytest.approx(result.gradient_norms[0])


def test_the_callers_of_an_operator_are_those_around_it_in_the_trace():
    x, mask = torch.randn(4, 4, requires_grad=True), torch.eye(4, dtype=torch.bool)
    found = callers(lambda: x.masked_fill(mask, 0.0).sum().backward(), "aten::clone")
    assert found == {"aten::masked_fill": 1, "aten::masked_fill in MaskedFillBackward0": 1}
    assert callers(lambda: x + 1, "aten::add") == {"the program": 1}
    assert callers(lambda: x + 1, "aten::mm") == {}


def test_a_profile_names_all_operators_the_longest_first_and_keeps_its_log_to_itself(capfd):
    a = torch.ones(200, 200)
    shares = operator_shares(lambda: [a @ a for _ in range(5)])
    assert shares["aten::mm"]["calls"] == 5
    times = [row["share of the time"] for row in shares.values()]
    assert times == sorted(times, reverse=True)
    assert sum(times) == pytest.approx(1)
    assert capfd.readouterr().err == ""


def test_the_share_of_products_counts_products_only_and_shows_each_of_them():
    a, many = torch.ones(64, 64), torch.ones(1_000_000)

    def call():
        for _ in range(3):
            many.exp()
        return a @ a

    found = product_share(call, times=3, longest=1)
    assert next(iter(found.rows)) == "aten::exp"
    assert found.products in ((), ("aten::mm",))  # a product under half a percent has no row
    assert 0 < found.share < 0.5
    assert product_share(lambda: a @ a, times=1).products == ("aten::mm",)


def test_the_products_that_are_timed_alone_are_all_that_the_formula_counts():
    found = products_alone(TINY.model, TINY.batch, TINY.seq_len, torch.device("cpu"))
    counted = flops_per_token(TINY.model, TINY.seq_len) * TINY.batch * TINY.seq_len
    assert sum(one.flops for one in found.values()) == counted
    assert all(one.seconds > 0 for one in found.values())
