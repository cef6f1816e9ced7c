"""02.converge: a tree of sums in shared memory, repaired so that waves agree and retire early."""

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
    # all above 0.5: a value that is lost, or counted twice, is never lost in the tolerance
    return {"x": torch.rand(case["blocks"], case["threads"], generator=generator) + 0.5}


def block_sum_reference(x: Tensor) -> Tensor:
    """The sum of each row, in float64."""
    return x.double().sum(dim=1)


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # terms of one sign: the partial sums grow with their number
    return tolerance(torch.float32, k=case["threads"], magnitude=math.sqrt(case["threads"]))


def _launch(module: LoadedModule, inputs: Inputs) -> Tensor:
    blocks, threads = inputs["x"].shape
    out = torch.empty(blocks)
    module.launch("block_sum", blocks, threads, [inputs["x"], out])
    return out


ANSWER = Framed.read(Path(__file__).with_suffix(".cu"))

AS_GIVEN = """
  for (int step = 1; step < blockDim.x; step *= 2) {
    if (threadIdx.x % (2 * step) == 0) sums[threadIdx.x] += sums[threadIdx.x + step];
    __syncthreads();
  }
""".strip("\n")
"""What the lab shows: the active threads lie `2 * step` apart, so nearly every wave has one."""

_STRIDED = """
  for (int step = 1; step < blockDim.x; step *= 2) {
    int at = 2 * step * threadIdx.x;
    if (at < blockDim.x) sums[at] += sums[at + step];
    __syncthreads();
  }
""".strip("\n")

_ONE_THREAD = """
  if (threadIdx.x == 0)
    for (int i = 1; i < blockDim.x; i++) sums[0] += sums[i];
""".strip("\n")

_BARRIER_IN_THE_BRANCH = """
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) {
      sums[threadIdx.x] += sums[threadIdx.x + step];
      __syncthreads();
    }
  }
""".strip("\n")

_LAST_WARP_IN_STEP = """
  int t = threadIdx.x;
  for (int step = blockDim.x / 2; step > 32; step /= 2) {
    if (t < step) sums[t] += sums[t + step];
    __syncthreads();
  }
  volatile float *own = sums;
  if (t < 32)
    for (int step = 32; step > 0; step /= 2) own[t] += own[t + step];
""".strip("\n")

_LAST_WARP_IN_REGISTERS = _LAST_WARP_IN_STEP.replace("volatile float", "float")

_ATOMIC = """
  float own = sums[threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) sums[0] = 0;
  __syncthreads();
  atomicAdd(sums, own);
  __syncthreads();
""".strip("\n")


def _writes(value: str) -> Callable[[], str]:
    return lambda: f"__global__ void block_sum(const float *x, float *out) {{ out[blockIdx.x] = {value}; }}"


def most_accesses(threads: int) -> int:
    """Wave instructions on shared memory of one block: every wave of 32 stores its values; a step of n threads takes
    ceil(n / 32) waves two loads and a store each; one load for the result."""
    steps = [threads >> shift for shift in range(1, threads.bit_length())]
    return threads // 32 + 3 * sum(-(-step // 32) for step in steps) + 1


def _fresh(rng: random.Random) -> Case:
    return Case("blocks nobody chose", blocks=rng.randrange(2, 5), threads=rng.choice([128, 256, 512]))


EXERCISE = Exercise(
    id="02.converge",
    title="A tree of sums whose waves agree",
    parameters=(),
    kind="cpp",
    targets=("sm_80", "gfx942", "gfx1100"),
    inputs=_inputs,
    reference=block_sum_reference,
    tolerance=_tolerance,
    dtype=lambda inputs: torch.float32,
    call=launching(_launch, all_meet=True),
    cases=(
        Case("eight warps, four wavefronts", blocks=3, threads=256),
        Case("two warps, one wavefront", blocks=2, threads=64),
        Case("the largest block: 32 warps, 16 wavefronts", blocks=2, threads=1024),
    ),
    fresh=_fresh,
    trivial={
        "zeros": _writes("0.0f"),
        "ones": _writes("1.0f"),
        "nan": _writes("NAN"),
        "the input": _writes("x[blockIdx.x * blockDim.x]"),
    },
    limits=(
        Limit(
            "shared_accesses",
            "Counted are the instructions on shared memory that waves issue. A step of n additions needs the threads "
            "of n / 32 warps, no more: a wave with a single active lane issues as much as a full one.",
            at_most=lambda case: case["blocks"] * most_accesses(case["threads"]),
        ),
        Limit(
            "bank_conflicts",
            "Few waves issue, and their lanes want different words of one bank. Let neighbouring threads read "
            "neighbouring words.",
            at_most=lambda case: 0,
        ),
        Limit(
            "shared_atomics",
            "Counted are the lanes of atomic additions to shared memory: those to one word take their turns, lane by "
            "lane. Let the threads of a warp add up their values first.",
            at_most=lambda case: case["blocks"] * case["threads"] // 32,
        ),
    ),
    misconceptions=(
        Misconception(
            "as_given",
            ANSWER.filled(AS_GIVEN),
            "The active threads of a step still lie far apart, so nearly every wave has one of them and issues the "
            "whole step for it. Which 128 of 256 threads should add in the first step, so that half of the waves have "
            "nothing to do?",
        ),
        Misconception(
            "strided",
            ANSWER.filled(_STRIDED),
            "Now the first threads do the work, and whole waves retire: the branch is repaired. But neighbouring "
            "threads use words 2 * step apart, many of them of one bank. Begin with the largest step.",
        ),
        Misconception(
            "one_thread",
            ANSWER.filled(_ONE_THREAD),
            "One thread adds everything up: its wave issues an instruction for every value, with one lane on. Let half "
            "of the threads add in the first step, half of those in the next.",
        ),
        Misconception(
            "barrier_in_the_branch",
            ANSWER.filled(_BARRIER_IN_THE_BRANCH),
            "Threads that add nothing never reach the barrier: it stands inside the `if`, or they have returned before "
            "it. A GPU may wait for them forever. Close the branch first, and let all go round together.",
        ),
        Misconception(
            "no_barrier_in_a_warp",
            ANSWER.filled(_LAST_WARP_IN_STEP),
            "The last steps trust that the lanes of a warp run in step. A wavefront does; lanes of NVIDIA run in any "
            "order since Volta, and `volatile` does not change that: __syncwarp() after each step orders them.",
        ),
        Misconception(
            "last_warp_in_registers",
            ANSWER.filled(_LAST_WARP_IN_REGISTERS),
            "The last steps, inside one warp, have no barrier between them. So the compiler keeps the sum of a thread "
            "in a register until all steps are done, and the neighbours read what was there before. Keep "
            "__syncthreads() in every step.",
        ),
        Misconception(
            "all_add_atomically",
            ANSWER.filled(_ATOMIC),
            "All lanes add to one word, and a memory takes their additions one after the other: few instructions, no "
            "tree. Let half of the threads add in the first step, half of those in the next.",
        ),
        Misconception(
            "no_barrier",
            ANSWER.changed(("    __syncthreads();\n", "")),
            "The numbers are right here, and still a barrier is missing: the next step reads sums that other waves may "
            "not have written yet.",
        ),
        Misconception(
            "every_thread_adds",
            ANSWER.changed(("if (threadIdx.x < step) ", "")),
            "Too many threads add: those from `step` on read what no thread has written, behind the values. In a step "
            "only threadIdx.x < step adds.",
        ),
        Misconception(
            "one_step_short",
            ANSWER.changed(("step > 0", "step > 1")),
            "The sums are those of every second value: the last step, with one addition, is missing.",
        ),
        Misconception(
            "starts_too_low",
            ANSWER.changed(("blockDim.x / 2", "blockDim.x / 4")),
            "Only the first half of the values is added up: the first step must reach from each thread of the lower "
            "half to the upper half.",
        ),
    ),
    hints=(
        "In the given loop, which threads of a warp of 32 are active when step is 1, 8, 32? How many warps have at "
        "least one? Now let the active threads be the first ones: threadIdx.x < something.",
        "Let thread t add sums[t + step] to sums[t] for t < step, and halve step each time. Which is the first step, "
        "and which the last?",
        "for (int step = blockDim.x / 2; step > 0; step /= 2): if (threadIdx.x < step) sums[threadIdx.x] += "
        "sums[threadIdx.x + step]; and after the `if`, for all threads, __syncthreads().",
    ),
    explanation=(
        "Both trees make the same number of additions. With t % (2 * step) == 0 a step keeps a lane in every wave "
        "until the step is wider than a wave: 47 wave-steps of 8 warps where 12 would do. With t < step the active "
        "threads are neighbours, so whole waves have nothing to do and jump over the branch, and neighbouring lanes "
        "read neighbouring banks. What is left, the last steps inside one wave, is work for shuffles: 03.warp_reduce."
    ),
    seconds=60.0,
)
