"""What was worked out for earlier accesses may be forgotten at any time: results, counters and races stay the same."""

from weakref import WeakKeyDictionary

import pytest
import torch

from gpu_utils.errors import Race
from gpu_utils.kernelset import CASES, Run
from gpu_utils.virtual import counters, global_patterns, races, virtual_gpu
from gpu_utils.virtual.amdgcn import buffer, state
from gpu_utils.virtual.kept import Kept
from gpu_utils.virtual.shared_patterns import Patterns

from .test_races import update_kernel

TARGETS = ("sm_80", "gfx942", "gfx1100")
NAMES = ("transpose", "softmax_forward_and_backward", "integer_atomics", "sort_both_ways", "matmul_fp16")


@pytest.fixture
def forgetful(monkeypatch):
    """Every such memory has room for one entry."""
    kept = ((global_patterns, "_known"), (counters, "_sectors_seen"), (counters, "_banks_seen"), (state, "_exec_masks"))
    for module, name in kept:
        monkeypatch.setattr(module, name, Kept(0))
    monkeypatch.setattr(Patterns, "MOST", 0)
    monkeypatch.setattr(buffer, "_MOST_BYTES", 0)
    monkeypatch.setattr(buffer, "_known", WeakKeyDictionary())
    for name in ("MOST_PENDING", "MOST_LANES", "_SPARE_BYTES"):
        monkeypatch.setattr(races, name, 0)


def outcome(name: str, target: str) -> tuple[list[torch.Tensor], list[dict[str, float]]]:
    """Results and counters of a case of the kernel set."""
    run = Run(target)
    with virtual_gpu(target) as gpu:
        CASES[name].body(run)
    return [result.got.clone() for result in run.results], [launch.counters.totals() for launch in gpu.launches]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_results_and_counters_do_not_depend_on_what_is_kept(name, target, request):
    results, counted = outcome(name, target)
    request.getfixturevalue("forgetful")
    again, counted_again = outcome(name, target)
    assert all(torch.equal(one, other) for one, other in zip(results, again, strict=True))
    assert counted == counted_again
    assert max(len(global_patterns._known), len(counters._sectors_seen)) == 1


@pytest.mark.parametrize("target", TARGETS)
def test_a_race_is_found_also_when_no_load_stays_pending(forgetful, target):
    x = torch.zeros(64, dtype=torch.int32)
    with virtual_gpu(target), pytest.raises(Race, match=r"has read 0 at byte offset 0 of x, and program \d writes 1"):
        update_kernel[(8,)](x, ATOMIC=False)
