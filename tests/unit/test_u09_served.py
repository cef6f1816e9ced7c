"""The served decoder of unit 09, and the fixed tree on every target: bits that follow the batch, and that do not."""

import pytest
import torch

from gpu_utils import virtual_gpu
from gpu_utils.exercises.u09_operator_alignment import batch_invariant_slips, fixed_tree_slips
from gpu_utils.exercises.u09_operator_alignment.fixed_tree import fixed_tree_reference
from gpu_utils.exercises.u09_operator_alignment.served import served

KEPT = "batch-invariant"
TARGETS = ("sm_80", "sm_90", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250")


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_cut_by_the_batch_the_first_token_has_other_bits(target):
    answer = served(tokens=1, target=target)
    assert answer.first_bits == 1
    assert 0 < answer.rows[1]["largest difference"] < 1e-5


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_cut_by_the_row_alone_every_token_keeps_its_bits(target):
    answer = served(KEPT, KEPT, KEPT, tokens=2, target=target)
    assert answer.same_bits
    assert answer.alone == answer.together


def test_operators_of_ones_own_are_served():
    answer = served(batch_invariant_slips.right, fixed_tree_slips.right, KEPT, tokens=1, others=3)
    assert answer.same_bits


def test_one_operator_cut_by_the_batch_is_enough():
    assert not served(product="as libraries do", norm=KEPT, attention=KEPT, tokens=1).same_bits


@pytest.mark.parametrize("target", TARGETS)
def test_a_fixed_tree_has_the_same_bits_on_every_target(target):
    torch.manual_seed(0)
    x = torch.randn(2, 300) * torch.exp(2 * torch.randn(2, 300))
    settings = [[64, 1], [128, 4]]
    with virtual_gpu(target):
        found = [fixed_tree_slips.right(x, block, warps) for block, warps in settings]
    assert all(map(torch.equal, found, fixed_tree_reference(x, settings)))
