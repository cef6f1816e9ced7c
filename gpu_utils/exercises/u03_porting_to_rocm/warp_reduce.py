"""03.warp_reduce: a block's sum by shuffles, right for warps of 32 and wavefronts of 64."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.grading.cpp import Framed, launching
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception
from gpu_utils.virtual.asm import LoadedModule


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    # all above 0.5: a lane that is lost, or counted twice, is never lost in the tolerance
    x = torch.rand(case["rows"], case["columns"], generator=generator) + 0.5
    return {"x": x, "threads": case["threads"]}


def row_sum_reference(x: Tensor, threads: int) -> Tensor:
    """The sum of each row, in float64; the number of threads of a block does not matter."""
    return x.double().sum(dim=1)


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # terms of one sign: the partial sums grow with their number
    return tolerance(torch.float32, k=case["columns"], magnitude=math.sqrt(case["columns"]))


def _launch(module: LoadedModule, inputs: Inputs) -> Tensor:
    rows, columns = inputs["x"].shape
    out = torch.empty(rows)
    module.launch("row_sum", rows, inputs["threads"], [inputs["x"], out, columns])
    return out


ANSWER = Framed.read(Path(__file__).with_suffix(".cu"))

_FIRST_WARP_ONLY = """
  for (int offset = warpSize / 2; offset > 0; offset /= 2) value += __shfl_down_sync(__activemask(), value, offset);
  return value;
""".strip("\n")

_THREAD_0_ALONE = """
  __shared__ float all[1024];
  all[threadIdx.x] = value;
  __syncthreads();
  float sum = 0.0f;
  if (threadIdx.x == 0) for (int t = 0; t < blockDim.x; ++t) sum += all[t];
  return sum;
""".strip("\n")


def _writes(value: str) -> Callable[[], str]:
    kernel = f"__global__ void row_sum(const float *x, float *out, int columns) {{ out[blockIdx.x] = {value}; }}"
    return lambda: kernel


def _fresh(rng: random.Random) -> Case:
    return Case(
        "sizes nobody chose",
        rows=rng.randrange(2, 5),
        columns=rng.randrange(100, 3000),
        threads=32 * rng.randrange(3, 32),
    )


EXERCISE = Exercise(
    id="03.warp_reduce",
    title="A sum over a block, whatever the width of a wave",
    parameters=(),
    kind="cpp",
    targets=("sm_80", "gfx942", "gfx1100"),
    inputs=_inputs,
    reference=row_sum_reference,
    tolerance=_tolerance,
    dtype=lambda inputs: torch.float32,
    call=launching(_launch),
    cases=(
        Case("eight warps of 32, four wavefronts of 64, and a tail", rows=3, columns=1000, threads=256),
        Case("one warp, or half a wavefront", rows=2, columns=45, threads=32),
        Case("three warps, or one wavefront and a half", rows=3, columns=500, threads=96),
        Case("fewer columns than threads", rows=4, columns=37, threads=64),
        Case("the largest block: 32 warps, or 16 wavefronts", rows=2, columns=2500, threads=1024),
    ),
    fresh=_fresh,
    trivial={
        "zeros": _writes("0.0f"),
        "ones": _writes("1.0f"),
        "nan": _writes("NAN"),
        "the input": _writes("x[blockIdx.x * columns]"),
    },
    limits=(
        Limit(
            "lane_utilisation",
            "Most lanes wait while few add, one value after the other. Let all lanes of a wave add at the same time: "
            "in pairs, then pairs of pairs.",
            at_least=lambda case: 0.6 if case["threads"] == 1024 else 0.0,
        ),
    ),
    misconceptions=(
        Misconception(
            "starts_at_16",
            ANSWER.changed(("offset = warpSize / 2", "offset = 16")),
            "Right on sm_80 and gfx1100, too small on gfx942. The steps 16, 8, 4, 2, 1 reach 32 lanes; a wavefront of "
            "gfx942 has 64, and lanes 32 to 63 never arrive in lane 0. Which step is missing, and what is it in terms "
            "of warpSize?",
        ),
        Misconception(
            "assumes_64",
            ANSWER.changed(
                ("offset = warpSize / 2", "offset = 32"),
                ("% warpSize", "% 64"),
                ("/ warpSize;", "/ 64;"),
                ("+ warpSize - 1", "+ 63"),
            ),
            "Right on gfx942 only. A step of 32 leaves a warp of 32: there the shuffle hands a lane its own value, "
            "which is then counted twice. RDNA GPUs (gfx1100) run waves of 32 as well: ask warpSize, not the vendor.",
        ),
        Misconception(
            "mask_of_32_bits",
            ANSWER.changed(("__activemask()", "0xffffffff")),
            "A wavefront has 64 lanes, so on AMD the mask of __shfl_down_sync has 64 bits, also on chips with waves of "
            "32. 0xffffffff is an unsigned int. Which mask has the type that each vendor wants?",
        ),
        Misconception(
            "mask_of_all_lanes",
            ANSWER.changed(("__activemask()", "~0ull")),
            "Right while every wave is full. The mask must name the lanes that are there: 96 threads are a wavefront "
            "and a half, and ROCm stops a kernel whose mask names lanes that never come. Which lanes are active?",
        ),
        Misconception(
            "drops_the_last_wave",
            ANSWER.changed(("(blockDim.x + warpSize - 1) / warpSize", "blockDim.x / warpSize")),
            "It fails where the block is no multiple of the wave. How many waves do 96 threads make on gfx942, and "
            "what does your division say?",
        ),
        Misconception(
            "counts_warps_of_32",
            ANSWER.changed(("(blockDim.x + warpSize - 1) / warpSize", "blockDim.x / 32")),
            "With wavefronts of 64 only half as many waves write a partial sum as you read: the rest of the shared "
            "array holds whatever was there before. Work out the number of waves from warpSize.",
        ),
        Misconception(
            "one_wave_only",
            ANSWER.filled(_FIRST_WARP_ONLY),
            "Blocks of one wave are right, larger ones too small: a shuffle moves values inside one wave only. "
            "The sums of the other waves have to reach thread 0 through shared memory.",
        ),
        Misconception(
            "room_for_16_waves",
            ANSWER.changed(("partial[32]", "partial[16]")),
            "1024 threads are 16 wavefronts of 64, but 32 warps of 32. The shared array needs room for the most waves "
            "that any target can have.",
        ),
        Misconception(
            "array_of_warp_size",
            ANSWER.changed(("partial[32]", "partial[warpSize]")),
            "warpSize is no constant expression (in ROCm since version 7), so it cannot size a shared array. Use a "
            "constant that is enough for every target.",
        ),
        Misconception(
            "array_of_the_waves",
            ANSWER.changed(("partial[32]", "partial[1024 / warpSize]")),
            "The size of a shared array must be known when this is compiled, and 1024 / warpSize is not: the width of "
            "a wave is asked when the kernel runs. Make room for the narrowest wave.",
        ),
        Misconception(
            "adds_every_place",
            ANSWER.changed(("threadIdx.x < warps ? partial", "threadIdx.x < 32 ? partial")),
            "All 32 places are read, and a smaller block, or one of wide waves, has written only the first of them. "
            "How many waves have left a sum?",
        ),
        Misconception(
            "no_barrier",
            ANSWER.changed(("  __syncthreads();\n", "")),
            "A wave reads what another one wrote to shared memory, and nothing makes it wait: on a GPU the value may "
            "not be there yet. Put __syncthreads() between the write and the read.",
        ),
        Misconception(
            "thread_0_alone",
            ANSWER.filled(_THREAD_0_ALONE),
            "The sum is right, and one lane makes all of it while up to 1023 wait. Add in every wave at the same time, "
            "by shuffles, and leave only one value a wave for the end.",
        ),
    ),
    hints=(
        "Add up inside each wave first: in each step a lane adds the value of the lane `offset` further on, and offset "
        "is halved until it is 1. With which offset must this begin when a wave has warpSize lanes?",
        "Lane 0 of each wave then writes its sum to a __shared__ array, one element a wave; __syncthreads(); and the "
        "first wave adds up the array in the same way. At most 1024 threads make at most 32 waves. How many waves are "
        "there in a block of 96 threads, when warpSize is 64?",
        "lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize, warps = (blockDim.x + warpSize - 1) / warpSize; "
        "for (int offset = warpSize / 2; offset > 0; offset /= 2) "
        "value += __shfl_down_sync(__activemask(), value, offset); then partial[warp] from lane 0, the barrier, "
        "partial[threadIdx.x] where threadIdx.x < warps and 0 elsewhere, and the loop once more.",
    ),
    explanation=(
        "Everything that depends on the width asks warpSize: the first step of the shuffles, the lane, the wave, and "
        "the number of waves, rounded up, because 96 threads are one wavefront and a half. What must be constant in "
        "the source, the size of the shared array, is a bound that holds everywhere: 1024 / 32. The mask names the "
        "lanes that call: __activemask(), of the type that each vendor wants. ~0ull would stop the half-filled "
        "wavefront: ROCm asserts that all lanes of the mask are there. In that wavefront, lane 0 asks a lane that is "
        "not there for its value: ds_bpermute_b32 gives 0 for it (AMD's ISA manual), which a sum can "
        "bear; a maximum could not, and needs a test of the lane. Another right answer treats a wavefront as "
        "two groups of 32 throughout (width 32 in every shuffle, threadIdx.x / 32 everywhere): right, with twice as "
        "many partial sums. What goes wrong is a mixture of the two."
    ),
    seconds=60.0,
)
