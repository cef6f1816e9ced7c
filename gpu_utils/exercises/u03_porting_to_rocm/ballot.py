"""03.ballot: votes of a wave in 64 bits, to pack the elements that are kept."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.grading.cpp import Framed, launching
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception
from gpu_utils.virtual.asm import LoadedModule

EMPTY = -1.0
"""What the result holds where no element was packed."""

_KEPT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "about half": lambda lane, chance: chance < 0.5,
    "all": lambda lane, chance: lane >= 0,
    "none": lambda lane, chance: lane < 0,
    "lanes 32 to 63 only": lambda lane, chance: lane >= 32,
    "one in ten": lambda lane, chance: chance < 0.1,
}


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    n, threads = case["n"], case["threads"]
    sizes = torch.rand(n, generator=generator) + 0.5
    lane = torch.arange(n) % threads % 64
    keep = _KEPT[case["kept"]](lane, torch.rand(n, generator=generator))
    return {"x": torch.where(keep, sizes, -sizes), "threads": threads}


def compact_reference(x: Tensor, threads: int) -> dict[str, Tensor]:
    """The positive elements of each piece of `threads` elements moved to its front, and their number."""
    pieces = x.split(threads)
    kept = [piece[piece > 0] for piece in pieces]
    rests = [torch.full((len(piece) - len(mine),), EMPTY) for piece, mine in zip(pieces, kept, strict=True)]
    out = torch.cat([part for pair in zip(kept, rests, strict=True) for part in pair])
    return {"count": torch.tensor([len(mine) for mine in kept], dtype=torch.int32), "out": out}


def _launch(module: LoadedModule, inputs: Inputs) -> dict[str, Tensor]:
    x, threads = inputs["x"], inputs["threads"]
    blocks = -(-len(x) // threads)
    out, count = torch.full((len(x),), EMPTY), torch.full((blocks,), -1, dtype=torch.int32)
    module.launch("compact", blocks, threads, [x, out, count, len(x)])
    return {"count": count, "out": out}


ANSWER = Framed.read(Path(__file__).with_suffix(".cu"))

_ATOMICS = """
  __shared__ int so_far[32];
  int wave = threadIdx.x / warpSize, place = 0;
  if (threadIdx.x % warpSize == 0) so_far[wave] = 0;
  __syncthreads();
  if (keep) place = atomicAdd(&so_far[wave], 1);
  __syncthreads();
  *kept = so_far[wave];
  return place;
""".strip("\n")


def _writes(value: str, total: str) -> Callable[[], str]:
    kernel = """__global__ void compact(const float *x, float *out, int *count, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) out[i] = %s;
      count[blockIdx.x] = %s;
    }"""
    return lambda: kernel % (value, total)


def _fresh(rng: random.Random) -> Case:
    threads = rng.choice([64, 96, 100, 160, 256, 500, 1024])
    return Case("sizes nobody chose", n=rng.randrange(2 * threads, 4 * threads), threads=threads, kept="about half")


EXERCISE = Exercise(
    id="03.ballot",
    title="Votes of 32 and of 64 lanes",
    parameters=(),
    kind="cpp",
    targets=("sm_80", "gfx942", "gfx1100"),
    inputs=_inputs,
    reference=compact_reference,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: torch.float32,
    call=launching(_launch),
    cases=(
        Case("a tail, and blocks of several waves", n=1000, threads=256, kept="about half"),
        Case("only the upper half of each wavefront votes yes", n=256, threads=128, kept="lanes 32 to 63 only"),
        Case("every bit of the mask is set, also the sign bits", n=384, threads=128, kept="all"),
        Case("no bit is set", n=64, threads=64, kept="none"),
        Case("the last wave of a block is only partly there", n=300, threads=100, kept="about half"),
        Case("one warp, or half a wavefront", n=75, threads=32, kept="about half"),
        Case("few are kept, in the largest block", n=2000, threads=1024, kept="one in ten"),
    ),
    fresh=_fresh,
    trivial={
        "zeros": _writes("0.0f", "0"),
        "ones": _writes("1.0f", "1"),
        "nan": _writes("NAN", "-1"),
        "the input": _writes("x[i]", "blockDim.x"),
    },
    misconceptions=(
        Misconception(
            "votes_in_32_bits",
            ANSWER.changed(("unsigned long long votes", "unsigned votes"), ("__popcll", "__popc"), ("1ull", "1u")),
            "Right where a wave has 32 lanes. On gfx942 the votes of lanes 32 to 63 are bits 32 to 63, and they are "
            "cut off without a warning when the result goes into 32 bits. Which type holds every bit on both vendors?",
        ),
        Misconception(
            "counts_32_of_64_bits",
            ANSWER.changed(("__popcll", "__popc")),
            "Lanes 32 to 63 are not counted, because between the ballot and the count 64 bits pass through 32, without "
            "a warning: in a variable of type unsigned, or in __popc, which takes an unsigned int. Look at the type of "
            "each step.",
        ),
        Misconception(
            "votes_in_int",
            ANSWER.changed(("unsigned long long votes", "int votes")),
            "Even sm_80 is wrong here, as soon as lane 31 votes yes: bit 31 is the sign of an int, and when an int is "
            "widened to 64 bits its sign fills the upper half with ones.",
        ),
        Misconception(
            "lane_below_32",
            ANSWER.changed(("threadIdx.x % warpSize", "threadIdx.x & 31")),
            "The counts are right, the places of lanes 32 to 63 on gfx942 are not: lane 40 counts the votes below lane "
            "8. Where are 32 subtracted? In the lane, when it is cut to 5 bits (& 31, % 32), or in the shift, when the "
            "1 that is shifted has only 32 bits.",
        ),
        Misconception(
            "lane_of_64",
            ANSWER.changed(("threadIdx.x % warpSize", "threadIdx.x & 63")),
            "Right on gfx942 only. Where a wave has 32 lanes, no lane has a number of 32 or more: every second wave "
            "counts all of its votes for each lane. AMD's gfx1100 is such a chip too: ask warpSize.",
        ),
        Misconception(
            "mask_of_32_bits",
            ANSWER.changed(("__activemask()", "0xffffffff")),
            "AMD's __ballot_sync wants a mask of 64 bits on every chip, also where a wave has 32 lanes; 0xffffffff is "
            "an unsigned int. Which mask has the type that each vendor wants?",
        ),
        Misconception(
            "mask_of_all_lanes",
            ANSWER.changed(("__activemask()", "~0ull")),
            "The mask must name the lanes that are there, no more: in a block of 100 threads the last wave is not "
            "full, and ROCm stops a kernel whose mask names lanes that never come. Which lanes are active here?",
        ),
        Misconception(
            "counts_itself",
            ANSWER.changed(("(1ull << lane) - 1", "(2ull << lane) - 1")),
            "Every place is one too large: a lane that is kept has counted its own vote. Only the lanes below it come "
            "before it.",
        ),
        Misconception(
            "counts_above",
            ANSWER.changed(("votes & ((1ull << lane) - 1)", "votes & ~((2ull << lane) - 1)")),
            "The right elements, in the wrong order inside each wave: you count the lanes above instead of those "
            "below.",
        ),
        Misconception(
            "shifts_by_64",
            ANSWER.changed(("votes & ((1ull << lane) - 1)", "votes << (64 - lane)")),
            "Lane 0 shifts by 64, and such a shift has no defined value in C++: sm_80 makes it 0, which looks right; "
            "on AMD it is a shift by 64 modulo 64, and all votes stay. Which number has exactly the bits below a lane?",
        ),
        Misconception(
            "order_of_atomics",
            ANSWER.filled(_ATOMICS),
            "The right elements, in no order: an atomic tells a lane how many came before it in time, and lanes come "
            "in any order. The votes tell which lanes stand before it.",
        ),
        Misconception(
            "each_lane_its_own_count",
            ANSWER.changed(("*kept = __popcll(votes)", "*kept = __popcll(votes & ((1ull << lane) - 1))")),
            "*kept is the same number for all lanes of a wave: all of its votes. This counts what the place counts, "
            "the lanes below.",
        ),
        Misconception(
            "kept_from_here_on",
            ANSWER.changed(("*kept = __popcll(votes)", "*kept = __popcll(votes >> lane)")),
            "*kept is the same number for all lanes of a wave. This counts a lane and those above it: right in lane 0 "
            "only, and it is the last lane that passes it on.",
        ),
        Misconception(
            "kept_up_to_here",
            ANSWER.changed(("*kept = __popcll(votes)", "*kept = __popcll(votes & ((2ull << lane) - 1))")),
            "*kept is the same number for all lanes of a wave. This counts a lane and those below it: right in the "
            "last lane only, and thread 0 uses its own.",
        ),
    ),
    hints=(
        "__ballot_sync gives one bit for each lane of the wave: bit 5 is what lane 5 said. How many bits is that on "
        "gfx942, and which type can hold them?",
        "The lanes that come before a lane are the bits below its own: mask the votes with a number that has exactly "
        "those bits set, and count. Each step has a 64-bit form: the type, the 1 that is shifted, the count, the mask.",
        "unsigned long long votes = __ballot_sync(__activemask(), keep); *kept = __popcll(votes); and the place is "
        "__popcll(votes & ((1ull << lane) - 1)) with lane = threadIdx.x % warpSize.",
    ),
    explanation=(
        "One bit a lane: 64 bits on every AMD chip, 32 on NVIDIA, where they fit into the lower half of a 64-bit "
        "number without harm. The chain is only as wide as its narrowest link: the type of the votes, the 1 that is "
        "shifted, the count (__popcll), the mask and the lane (% warpSize, not & 31). None of the narrow forms but the "
        "mask is refused by a compiler. The mask names the lanes that call: __activemask(), of 64 bits on AMD, because "
        "the last wave of a block of 100 threads is not full, and ROCm stops a kernel whose mask names absent lanes."
    ),
    seconds=60.0,
)
