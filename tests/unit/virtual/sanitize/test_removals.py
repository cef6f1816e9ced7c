"""Barriers and waits of compiled kernels, removed one at a time: noticed, or shown not to be needed.

docs/removals.md has all of them (tools/removals.py); here are some of a few kernels.
"""

import random

import pytest

from gpu_utils.errors import VirtualGpuError
from gpu_utils.kernelset import TARGETS
from gpu_utils.kernelset.removals import STEP_LIMIT, TOOLS, ordering, recorded, removals, why_unnecessary, without
from gpu_utils.virtual import VirtualGpu

KERNELS = ("column_sums", "exchange_and_compare_and_swap", "softmax_online")
EVERY = [pytest.param(case, target, id=f"{case}-{target}") for case in KERNELS for target in TARGETS]


SOME = 8


def some(ops):
    return random.Random(0).sample(ops, min(SOME, len(ops)))


@pytest.mark.drawn("kernel", 1)
@pytest.mark.parametrize(("case", "target"), EVERY)
def test_a_removed_barrier_or_wait_is_noticed_or_shown_to_be_unnecessary(case, target):
    launches = recorded(case, target, sanitize=True)[:1]
    found = list(removals(case, target, some, launches))
    assert len(found) == min(SOME, len(ordering(launches[0].program)))
    assert [removal for removal in found if removal.outcome == "missed"] == []
    if len(found) > 4:
        assert any(removal.outcome == "caught" for removal in found)


@pytest.mark.drawn("kernel", 1)
@pytest.mark.parametrize("target", TARGETS)
def test_no_argument_holds_for_an_op_without_which_a_sanitizer_raises(target):
    (launch,) = recorded("column_sums", target)
    sanitized, plain = VirtualGpu(target, step_limit=STEP_LIMIT, sanitize=TOOLS), VirtualGpu(target)
    caught = 0
    for op in ordering(launch.program):
        try:
            launch.again(sanitized, without(launch.program, op))
        except VirtualGpuError:
            caught += 1
            assert why_unnecessary(launch, op, plain) is None, op.text
    assert caught


def test_the_launch_is_repeated_on_what_the_first_one_found():
    (launch,) = recorded("column_sums", "gfx942")
    for storage in launch.storages:
        storage.fill_(7)
    launch.again(VirtualGpu("gfx942"), launch.program)
    assert launch.same()
    launch.storages[0][0] += 1
    assert not launch.same()
