"""03.lane_id: lane, wave and number of waves in a block of any shape, and back to the thread, for a running sum."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.grading.cpp import Framed, launching
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception
from gpu_utils.virtual.asm import LoadedModule


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    # all above 0.5: a wave whose sum is missing shows
    x = torch.rand(case["blocks"], math.prod(case["block"]), generator=generator) + 0.5
    return {"x": x, "block": list(case["block"])}


def running_sum_reference(x: Tensor, block: list[int]) -> dict[str, Tensor]:
    """Sums up to and with each element of a row in float64, the whole sum, each thread's number, its partner's place.

    partner: int32 of (blocks, threads, 3), x, y and z of the thread whose number differs in the last bit; of the
    thread itself where there is none.
    """
    threads = x.shape[1]
    number = torch.arange(threads, dtype=torch.int32)
    beside = torch.where((number ^ 1) < threads, number ^ 1, number)
    row = beside // block[0]
    y, z = (row % block[1], row // block[1]) if len(block) > 1 else (0 * row, row)
    partner = torch.stack([beside % block[0], y, z], dim=1)
    return {
        "number": number.expand(x.shape).contiguous(),
        "partner": partner.expand(len(x), threads, 3).contiguous(),
        "sums": x.double().cumsum(dim=1),
        "total": x.double().sum(dim=1),
    }


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    threads = math.prod(case["block"])
    return tolerance(torch.float32, k=threads, magnitude=math.sqrt(threads))


def _launch(module: LoadedModule, inputs: Inputs) -> dict[str, Tensor]:
    x, block = inputs["x"], inputs["block"]
    number, sums, total = torch.full(x.shape, -1, dtype=torch.int32), torch.empty(x.shape), torch.empty(len(x))
    partner = torch.full((*x.shape, 3), -1, dtype=torch.int32)
    module.launch("running_sum", len(x), block, [x, number, partner, sums, total])
    return {"number": number, "partner": partner, "sums": sums, "total": total}


ANSWER = Framed.read(Path(__file__).with_suffix(".cu"))
_MINE = "int(threadIdx.x), int(threadIdx.y), int(threadIdx.z)"
_BACKWARDS = "int(row / blockDim.y), int(row % blockDim.y), int(number % blockDim.z)"


def _writes(value: str, whole: str) -> Callable[[], str]:
    kernel = """__global__ void running_sum(const float *x, int *number, int *partner, float *sums, float *total) {
      int threads = blockDim.x * blockDim.y * blockDim.z;
      int i = blockIdx.x * threads + threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
      number[i] = partner[3 * i] = partner[3 * i + 1] = partner[3 * i + 2] = %s;
      sums[i] = total[blockIdx.x] = %s;
    }"""
    return lambda: kernel % (whole, value)


def _fresh(rng: random.Random) -> Case:
    block = rng.choice([(rng.randrange(65, 800),), (rng.randrange(5, 50), rng.randrange(5, 20)), (6, 7, 9), (64, 7)])
    return Case("a block nobody chose", blocks=rng.randrange(1, 4), block=block)


EXERCISE = Exercise(
    id="03.lane_id",
    title="Lane and wave of a thread, in a block of any shape, and back",
    parameters=(),
    kind="cpp",
    targets=("sm_80", "gfx942", "gfx1100"),
    inputs=_inputs,
    reference=running_sum_reference,
    tolerance=_tolerance,
    dtype=lambda inputs: torch.float32,
    call=launching(_launch),
    cases=(
        Case("several waves of either width", blocks=2, block=(256,)),
        Case("the usual shape with a warp of 32 in each row", blocks=1, block=(32, 8)),
        Case("rows of 16: two of them make a warp, four a wavefront", blocks=2, block=(16, 6)),
        Case("the last wave is only partly there", blocks=3, block=(100,)),
        Case("one thread more than a wavefront, or than two warps", blocks=1, block=(65,)),
        Case("three dimensions", blocks=1, block=(8, 5, 4)),
        Case("rows of odd length: the lane beside is often in another row", blocks=1, block=(5, 7, 3)),
        Case("the most threads that a block can have", blocks=1, block=(64, 16)),
        Case("fewer threads than a wave has lanes", blocks=2, block=(20,)),
    ),
    fresh=_fresh,
    trivial={
        "zeros": _writes("0.0f", "0"),
        "ones": _writes("1.0f", "1"),
        "nan": _writes("NAN", "-1"),
        "the input": _writes("x[i]", "threadIdx.x"),
    },
    misconceptions=(
        Misconception(
            "and_31_shift_5",
            ANSWER.changed(
                ("% warpSize", "& 31"), ("/ warpSize; }\n__device__ int wave_c", ">> 5; }\n__device__ int wave_c")
            ),
            "Right on sm_80 and gfx1100. `& 31` and `>> 5` are a remainder and a division by 32; a wavefront of gfx942 "
            "has 64 lanes, so its lane 40 calls itself lane 8 of the next wave.",
        ),
        Misconception(
            "lane_and_31",
            ANSWER.changed(("% warpSize", "& 31")),
            "On gfx942 two lanes of each wavefront have the same number: 40 & 31 is 8. The waves are right; what must "
            "the remainder be taken of, so that it fits every target?",
        ),
        Misconception(
            "wave_shift_5",
            ANSWER.changed(("/ warpSize; }\n__device__ int wave_c", ">> 5; }\n__device__ int wave_c")),
            "The lane is right for every width, the wave is not: `>> 5` counts 32 threads a wave, and on gfx942 both "
            "halves of a wavefront get numbers of their own. Divide by the width that this target has.",
        ),
        Misconception(
            "x_is_the_lane",
            ANSWER.changed(("thread_id() % warpSize", "threadIdx.x"), ("thread_id() / warpSize", "threadIdx.y")),
            "A block of (32, 8) puts one warp of 32 into each row, and so threadIdx.x looks like the lane and "
            "threadIdx.y like the warp. On gfx942 a wavefront takes two such rows, and other shapes break it anywhere.",
        ),
        Misconception(
            "only_x",
            ANSWER.changed(
                ("thread_id() % warpSize", "threadIdx.x % warpSize"),
                ("thread_id() / warpSize", "threadIdx.x / warpSize"),
            ),
            "Right for blocks of one dimension. With more, threads of different rows claim the same lane and wave: "
            "begin with the thread's number in the whole block.",
        ),
        Misconception(
            "lane_of_x_wave_of_the_thread",
            ANSWER.changed(("return thread_id() % warpSize", "return threadIdx.x % warpSize")),
            "Wave and lane are cut from the same number, and yours come from two: the wave from thread_id(), the lane "
            "from threadIdx.x, which starts anew at every row of the block.",
        ),
        Misconception(
            "wave_of_x_lane_of_the_thread",
            ANSWER.changed(("return thread_id() / warpSize", "return threadIdx.x / warpSize")),
            "Wave and lane are cut from the same number, and yours come from two: the lane from thread_id(), the wave "
            "from threadIdx.x, which starts anew at every row of the block.",
        ),
        Misconception(
            "place_is_my_own",
            ANSWER.changed(
                ("int(number % blockDim.x), int(row % blockDim.y), int(row / blockDim.y)", _MINE),
            ),
            "place_of is asked about any lane of any wave, and this answers with the thread that asks. Make a number "
            "of `wave` and `lane` first.",
        ),
        Misconception(
            "place_keeps_all_rows_in_y",
            ANSWER.changed(("int(row % blockDim.y)", "int(row)")),
            "x and z are right, and y is too large wherever z is not 0: it counts the rows of all layers before. What "
            "is left of a row's number when whole layers of blockDim.y rows are taken away?",
        ),
        Misconception(
            "place_of_one_dimension",
            ANSWER.changed(("int(number % blockDim.x), int(row % blockDim.y), int(row / blockDim.y)", "number, 0, 0")),
            "Right for blocks of one dimension. thread_id() adds rows up to a number; place_of has to take them out "
            "again: how many whole rows of blockDim.x lie before this thread?",
        ),
        Misconception(
            "rows_without_end",
            ANSWER.changed(("int(row % blockDim.y), int(row / blockDim.y)", "int(row), 0")),
            "Right for blocks of two dimensions. In three, a layer has blockDim.y rows, and then y starts anew and z "
            "grows by one.",
        ),
        Misconception(
            "x_and_z_exchanged",
            ANSWER.changed(
                ("row = number / blockDim.x", "row = number / blockDim.z"),
                ("int(number % blockDim.x), int(row % blockDim.y), int(row / blockDim.y)", _BACKWARDS),
            ),
            "Taken apart in the wrong order: x runs fastest, so x is the remainder by blockDim.x, and z comes last.",
        ),
        Misconception(
            "place_by_32",
            ANSWER.changed(("int number = wave * warpSize + lane", "int number = wave * 32 + lane")),
            "Right where waves have 32 lanes. On gfx942 wave 1 begins at thread 64: how wide is a wave here?",
        ),
        Misconception(
            "always_64",
            ANSWER.changed(("warpSize", "64"), ("+ 64 - 1", "+ 63")),
            "Right on gfx942, wrong where a wave has 32 lanes, and that is not only NVIDIA: gfx1100 is AMD's. "
            "The width is a property of the chip, and warpSize tells it.",
        ),
        Misconception(
            "drops_the_last_wave",
            ANSWER.changed(("(thread_count() + warpSize - 1) / warpSize", "thread_count() / warpSize")),
            "Only the total is wrong, and only where the threads do not fill their last wave: that wave has a sum too. "
            "Round up.",
        ),
        Misconception(
            "counts_waves_of_32",
            ANSWER.changed(("(thread_count() + warpSize - 1) / warpSize", "(thread_count() + 31) / 32")),
            "On gfx942 the total is NaN: there are only half as many waves as you count, so sums are read that nobody "
            "wrote. On a GPU they would be whatever the memory held before.",
        ),
        Misconception(
            "room_for_16_waves",
            ANSWER.changed(("1024 / 32", "1024 / 64")),
            "16 wavefronts of 64 are enough for gfx942; 1024 threads in waves of 32 are 32 waves, and their sums do "
            "not fit. The array needs room for the worst of all targets.",
        ),
        Misconception(
            "constant_of_warp_size",
            ANSWER.changed(("1024 / 32", "1024 / warpSize")),
            "warpSize is no constant: the same source runs on chips of either width, so no array can be sized by it "
            "when it is compiled (ROCm 7 made this an error). Which constant is enough for all of them?",
        ),
        Misconception(
            "variable_of_warp_size",
            ANSWER.changed(("constexpr int MAX_WAVES = 1024 / 32", "const int MAX_WAVES = 1024 / warpSize")),
            "warpSize is known when the kernel runs, so this MAX_WAVES is a variable, and no array can be sized by it. "
            "Which constant is enough for waves of any width?",
        ),
        Misconception(
            "only_x_and_drops_the_last_wave",
            ANSWER.changed(
                ("thread_id() % warpSize", "threadIdx.x % warpSize"),
                ("thread_id() / warpSize", "threadIdx.x / warpSize"),
                ("(thread_count() + warpSize - 1) / warpSize", "blockDim.x / warpSize"),
            ),
            "Two things. threadIdx.x is the thread's number only in a block of one dimension, blockDim.x their count: "
            "thread_id() and thread_count() know all three. And a wave that is only partly there is one more.",
        ),
    ),
    hints=(
        "thread_id() numbers the threads of the block 0, 1, 2, ... in the order in which waves are cut from it. Which "
        "two operations turn a number and the width of a wave into a wave and a place in it? place_of goes the other "
        "way: try it on paper for a block of (5, 2), wave 0, lane 7.",
        "A remainder and a division by warpSize. How many waves do 100 threads make, when a wave has 64 lanes? "
        "For the array ask which width makes the most waves out of 1024 threads. And place_of: make one number of wave "
        "and lane, then take x out of it, then y out of what is left.",
        "lane_id: thread_id() % warpSize. wave_id: thread_id() / warpSize. wave_count: (thread_count() + warpSize - "
        "1) / warpSize. MAX_WAVES: 1024 / 32. place_of: number = wave * warpSize + lane, row = number / blockDim.x; "
        "x is number % blockDim.x, y is row % blockDim.y, z is row / blockDim.y.",
    ),
    explanation=(
        "Waves are cut from the threads in the order of their number, x first, so lane and wave are the remainder and "
        "the quotient of that number by the width, which only warpSize knows. `& 31`, `>> 5`, threadIdx.y as the warp "
        "of a (32, 8) block, and an array for blockDim.x / 32 waves all write down the same wrong belief: that the "
        "width is 32. The way back takes the same number apart by the sides of the block, x first. "
        "Asking costs nothing: the compiler knows the chip it builds for, and in the listings the "
        "remainder is one `and` with 31 or 63, the division one shift. What must be constant in the source, the array, "
        "takes the bound that holds for all targets: 1024 / 32."
    ),
    seconds=60.0,
)
