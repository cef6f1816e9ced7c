"""What sitting 4 of lesson 09 trains and draws: runs in pairs, a small Llama with one fault each, rates of alarms."""

from __future__ import annotations

import pytest
import torch

from gpu_utils.analytic.alarms import alarm_rates
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.model import seed_pairs as module
from gpu_utils.model.port_faults import FAULTS
from gpu_utils.model.seed_pairs import seed_pairs
from gpu_utils.model.small_llama import broken_ports, logits_of, trained_llama


@pytest.fixture(scope="module")
def llama():
    return trained_llama(steps=2)


def test_both_tests_keep_the_error_rate_that_they_state():
    for error in (0.05, 0.01):
        rates = alarm_rates([0.0], seeds=0.03, within=0.001, runs=4, error=error)
        assert all(abs(row[0] - error) < 0.006 for row in rates.values()), rates


def test_only_pairs_see_a_shift_that_is_small_beside_the_spread_over_seeds():
    rates = alarm_rates([0.0, 0.004, 0.2], seeds=0.03, within=0.001)
    assert rates["the same seeds, in pairs"][1] > 0.95
    assert rates["other seeds"][1] < 0.07
    assert rates["other seeds"][2] > 0.95


def test_one_run_a_set_is_refused():
    with pytest.raises(BadArgument, match="two or more"):
        alarm_rates([0.0], seeds=0.03, within=0.001, runs=1)


def test_runs_of_a_pair_begin_alike_and_a_run_repeats_to_the_bit(monkeypatch):
    monkeypatch.setattr(module, "TINY", module.replace(module.TINY, steps=4))
    names = ["reference", "scores in memory", "AdamW's own betas"]
    runs = seed_pairs(names, seeds=[3])
    first = [runs[name][0].losses[0] for name in names]
    assert first == pytest.approx([first[0]] * 3, rel=1e-6)
    assert seed_pairs(["reference"], seeds=[3])["reference"] == runs["reference"]
    assert runs["AdamW's own betas"][0].val_loss != runs["reference"][0].val_loss


def test_an_unknown_port_is_named():
    with pytest.raises(UnknownName, match="no port"):
        seed_pairs(["no port"])


def test_the_small_llama_has_a_place_for_each_fault_and_stays_as_it_is(llama):
    model, (tokens, _) = llama
    before = logits_of(model, tokens[:2])
    ports = broken_ports(model, seed=25)
    assert set(ports) == set(FAULTS)
    for fault, (port, planted) in ports.items():
        assert planted.fault == fault
        assert not torch.equal(logits_of(port, tokens[:2]), before), fault
    assert torch.equal(logits_of(model, tokens[:2]), before)


def test_the_same_seed_gives_the_same_llama(llama):
    again, (tokens, targets) = trained_llama(steps=2)
    assert torch.equal(logits_of(again, tokens[:1]), logits_of(llama[0], tokens[:1]))
    assert tokens.shape == targets.shape == (32, 64)
