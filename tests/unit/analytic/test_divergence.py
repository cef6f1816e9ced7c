"""Divergence: by hand, and against the instructions and lanes that the virtual GPU counts for a compiled branch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_utils.analytic.divergence import divergence
from gpu_utils.chips import TARGETS
from gpu_utils.compiler.clang import compile_cpp
from gpu_utils.errors import BadArgument
from gpu_utils.virtual import virtual_gpu

# Volatile stores cannot be merged or left out: each is one instruction of its path, counted with its lanes. The other
# path stores bytes, so that the compiler finds nothing to share.
BRANCH = """
__global__ void branch(const int *path, volatile int *out) {
  int p = path[threadIdx.x];
  volatile int *own = out + threadIdx.x;
  if (p == 1) { *own = 1; *own = 2; *own = 3; }
  else if (p == 2) { *(volatile unsigned char *)own = 4; }
}
"""


@pytest.mark.usefixtures("clang")
@pytest.mark.parametrize("target", ["sm_80", "gfx942", "gfx1100"])
@pytest.mark.parametrize(
    "path",
    [
        lambda t: 1 + t % 2,
        lambda t: 1 if t < 96 else 2,
        lambda t: 1 if t < 32 else 2,
        lambda t: t * 7 % 5 % 3,
        lambda t: int(t == 100),
    ],
)
def test_slots_and_lanes_are_those_that_the_virtual_gpu_counts(target, path):
    labels = [path(t) for t in range(256)]
    with virtual_gpu(target) as gpu:
        out = torch.zeros(256, dtype=torch.int32)
        gpu.load(compile_cpp(BRANCH, target)).launch("branch", 1, 256, [torch.tensor(labels, dtype=torch.int32), out])
    stores = [access for access in gpu.counters.globals.values() if access.kind == "store"]
    ours = divergence(labels, TARGETS[target].lanes, {0: 0, 1: 3, 2: 1})
    assert ours.issued == sum(access.waves for access in stores)
    assert ours.useful == sum(access.lanes for access in stores)


def test_an_if_and_its_else_by_hand():
    found = divergence([t % 2 == 0 for t in range(64)], 32, {True: 10, False: 4})
    assert (found.issued, found.slots, found.useful, found.lost) == (28, 896, 448, 448)
    assert (found.utilisation, found.diverged) == (0.5, (0, 1))
    assert [(part.wave, part.path, part.lanes) for part in found.parts] == [
        (0, True, 16),
        (0, False, 16),
        (1, True, 16),
        (1, False, 16),
    ]


def test_a_branch_that_follows_warps_of_32_diverges_in_waves_of_64():
    labels = [t // 32 % 2 for t in range(256)]
    assert divergence(labels, 32).lost == 0
    assert divergence(labels, 64).utilisation == 0.5


def test_threads_that_are_gone_and_a_last_wave_that_is_not_full_are_lost_lanes():
    found = divergence([None] * 8 + [True] * 40, 32)
    assert (found.slots, found.useful) == (64, 40)
    assert divergence([None] * 64, 64).utilisation == 1.0


@given(st.lists(st.integers(0, 3), min_size=1, max_size=300), st.dictionaries(st.integers(0, 3), st.integers(0, 9)))
def test_the_useful_work_does_not_depend_on_the_width_and_wide_waves_never_lose_less(labels, costs):
    thread, narrow, wide = (divergence(labels, width, costs) for width in (1, 32, 64))
    assert thread.useful == narrow.useful == wide.useful
    assert thread.lost == 0
    assert narrow.lost <= wide.lost
    assert narrow.lost == narrow.slots - narrow.useful


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "there are no threads"),
        (([True], 0), "a wave of 0 lanes"),
        (([True], 32, {True: -1}), "path True has -1 instructions"),
    ],
)
def test_what_cannot_be_is_one_sentence(arguments, message):
    with pytest.raises(BadArgument, match=message):
        divergence(*arguments)
