"""What orders something in the machine code of lowered tile programs, removed one op at a time, for both vendors."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from gpu_utils.backends.tiling import launch_lowered
from gpu_utils.compiler.tilelang import lower
from gpu_utils.kernelset import tile_matmuls, tile_rows  # noqa: F401  they enter their cases
from gpu_utils.kernelset.removals import Recorded, removals
from gpu_utils.kernelset.tile_case import TILE_CASES
from gpu_utils.virtual import VirtualGpu

pytestmark = pytest.mark.usefixtures("tilelang")
GEMM, SOFTMAX = "gemm, fp16", "softmax, fp32"
ORDERS = {
    ("sm_80", GEMM): {"bar.sync", "cp.async.commit_group", "cp.async.wait_group", "cp.async.wait_all"},
    ("sm_80", SOFTMAX): {"bar.sync"},
    ("gfx942", GEMM): {"s_barrier", "s_waitcnt"},
    ("gfx942", SOFTMAX): {"s_waitcnt"},
}
"""Target and case -> the kinds of op of which at least one must be caught."""


def _recorded(name: str, target: str) -> Recorded:
    """One launch under the sanitizers, so that it can be repeated without one of its instructions."""
    case, calls = TILE_CASES[name], []
    tensors = case.tensors(seed=0)
    storages = [torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()) for tensor in tensors]
    before = [storage.clone() for storage in storages]
    gpu = VirtualGpu(target, sanitize=True)
    plain = gpu.execute
    gpu.execute = lambda *given: calls.append(given) or plain(*given)  # type: ignore[method-assign, func-returns-value]
    launch_lowered(lower(case.program, target, **case.sizes), gpu, tensors)
    assert not case.wrong(tensors)
    program, *arguments = calls[0]
    return Recorded(program, tuple(arguments), storages, before, [storage.clone() for storage in storages])


@pytest.mark.drawn("all", 1)
@pytest.mark.parametrize(("target", "name"), list(ORDERS))
def test_each_barrier_and_wait_that_is_removed_is_caught_or_not_needed(target: str, name: str) -> None:
    found = list(removals(name, target, launches=[_recorded(name, target)]))
    outcomes = Counter(each.outcome for each in found)
    assert set(outcomes) <= {"caught", "on another path", "unnecessary"}, outcomes
    assert ORDERS[target, name] <= {each.kind for each in found if each.outcome == "caught"}
