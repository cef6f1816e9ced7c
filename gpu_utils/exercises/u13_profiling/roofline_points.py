"""13.roofline_points: from raw counters of either vendor to points on a roofline, and to the kernel to work on."""

from __future__ import annotations

import random
from typing import Any

import torch

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u13_profiling import roofline_points_slips as slips
from gpu_utils.exercises.u13_profiling.drawn_counters import drawn_rows, of_amd, of_nvidia
from gpu_utils.exercises.u13_profiling.judging import rows_problem, short
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

ROOFS = {"amd": (163.4e12, 5.3e12), "nvidia": (66.9e12, 3.35e12)}
"""FLOP/s in float32 and bytes/s of MI300X and H100, as in `gpu_utils.chips`."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    rng = random.Random(int(torch.randint(2**31, (1,), generator=generator)))
    peak, bandwidth = ROOFS[case["vendor"]]
    peak, bandwidth = peak * rng.uniform(0.5, 1.0), bandwidth * rng.uniform(0.5, 1.0)
    rows = drawn_rows(rng, case["vendor"], case["kernels"], peak, bandwidth, case.get("unknown", 0))
    return {"kernels": rows, "peak": peak, "bandwidth": bandwidth}


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # a gain is the difference of two numbers that may be 20 times as large: a kernel at 95 % of its roof
    return tolerance(torch.float64, magnitude=0.0, roundings=20 * (4 * len(inputs["kernels"]) + 16))


_right = slips.answer()


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    expected = _right(**inputs)
    if not isinstance(value, dict) or set(value) != set(expected):
        return compare(expected, value, _tolerance(case, inputs))
    if wrong := rows_problem(expected["points"], value["points"], _tolerance(case, inputs), "'points'"):
        return wrong
    said, right = value["first"], expected["first"]
    if said == right:
        return None
    if not isinstance(said, str):
        return Difference("value", f"'first' is {short(said)}, expected {right!r}; the points are right")
    gains = {point["name"]: point["gain"] for point in expected["points"]}
    if said not in gains:
        return Difference("value", f"'first' is {short(said)!r}, expected {right!r}; the points are right")
    of = "unknown" if gains[said] is None else f"{gains[said]:.3g} s"
    return Difference("value", f"'first' is {said!r}, whose gain is {of}, expected {right!r}; the points are right")


def _fresh(rng: random.Random) -> Case:
    vendor = rng.choice(["amd", "nvidia"])
    kernels, unknown = rng.randrange(5, 9), rng.randrange(3)
    return Case("a run nobody chose", vendor=vendor, kernels=kernels, unknown=unknown)


_WRONG = (
    (
        "microseconds",
        slips.answer(second=1e6),
        "Times are off by 1,000. Both vendors' times are in ns: a second has 1e9 of them.",
    ),
    ("nanoseconds_as_they_are", slips.answer(second=1.0), "'seconds' holds ns. A second has 1e9 of them."),
    (
        "fma_counted_once",
        slips.answer(flop={**slips.FLOP, **slips.FMA_ONCE}),
        "A fused multiply-add is one instruction and two FLOP.",
    ),
    (
        "waves_for_lanes",
        slips.answer(flop={**slips.FLOP, **slips.OF_WAVES}),
        "AMD's counters of vector instructions count waves. An instruction of a wave works in 64 lanes.",
    ),
    (
        "waves_of_32",
        slips.answer(flop={**slips.FLOP, **slips.OF_32}),
        "Each vector instruction counts for 32 lanes. A wave of CDNA has 64.",
    ),
    (
        "threads_for_warps",
        slips.answer(flop={**slips.FLOP, **{name: 32 * each for name, each in slips.THREADS.items()}}),
        "NVIDIA's counts are 32 times too large: smsp__sass_thread_inst_... counts threads already, and only those "
        "that were on.",
    ),
    (
        "mops_as_flop",
        slips.answer(flop={**slips.FLOP, **dict.fromkeys(slips.MATRIX, 1)}),
        "MOPS counts in units of 512 operations, multiplications and additions together.",
    ),
    (
        "matrix_units_forgotten",
        slips.answer(flop={**slips.VECTOR, **slips.THREADS}),
        "The matrix units work too: SQ_INSTS_VALU_MFMA_MOPS_F32, in units of 512 FLOP.",
    ),
    (
        "kilobytes_of_1000",
        slips.answer(moved={**slips.BYTES, "FETCH_SIZE": 1000, "WRITE_SIZE": 1000}),
        "FETCH_SIZE and WRITE_SIZE are called kilobytes, and are bytes / 1024.",
    ),
    (
        "kilobytes_as_bytes",
        slips.answer(moved=dict.fromkeys(slips.BYTES, 1)),
        "FETCH_SIZE and WRITE_SIZE are in units of 1024 bytes.",
    ),
    (
        "writes_forgotten",
        slips.answer(moved={name: each for name, each in slips.BYTES.items() if "write" not in name.lower()}),
        "Only reads were counted. What is written crosses the same memory bus: add it.",
    ),
    (
        "unknown_as_zero",
        slips.answer(add=slips.known_only, tensor=False),
        "A counter that is None was taken for 0. It was not collected, so what needs it is unknown: None. So is FLOP "
        "where tensor cores worked.",
    ),
    (
        "none_as_zero",
        slips.answer(add=slips.known_only),
        "A counter that is None was taken for 0. It was not collected: the sum that needs it is None, and so is what "
        "follows from it.",
    ),
    (
        "launches_left_out",
        slips.answer(add=slips.without_unknown_launches),
        "Launches with an unknown counter were left out of the sum, which is then too small. The sum is unknown: None.",
    ),
    (
        "kernels_left_out",
        slips.answer(unknown=False),
        "Kernels with an unknown figure are missing. Their time is known, and that something is not is worth knowing: "
        "give them None.",
    ),
    (
        "tensor_cores_unseen",
        slips.answer(tensor=False),
        "A kernel with instructions on the tensor cores got the FLOP of its other instructions alone. What those did, "
        "no counter here says: its FLOP are None.",
    ),
    (
        "last_launch_only",
        slips.answer(add=slips.last),
        "A kernel that was launched several times has the figures of its last launch. Add those of all.",
    ),
    (
        "mean_of_launches",
        slips.answer(add=slips.mean),
        "A kernel that was launched several times has the mean of its launches. Add them: the question is what the "
        "whole run would gain.",
    ),
    (
        "mean_of_ratios",
        slips.answer(intensity=slips.mean_of_intensities),
        "Intensities of launches were averaged. A launch with few bytes then weighs as much as one with many: divide "
        "the sums.",
    ),
    (
        "bytes_for_a_flop",
        slips.answer(intensity=slips.bytes_for_a_flop),
        "Intensity is FLOP for a byte; yours is bytes for a FLOP.",
    ),
    (
        "ridge_turned",
        slips.answer(bound=slips.turned),
        "memory and compute are the wrong way round. Few FLOP for a byte: memory is what it waits for.",
    ),
    (
        "ridge_upside_down",
        slips.answer(bound=slips.upside_down),
        "The ridge was taken as bandwidth / peak. FLOP/s over bytes/s are FLOP for a byte.",
    ),
    (
        "ridge_at_one",
        slips.answer(bound=slips.above_one),
        "The border of memory and compute was taken as 1 FLOP for a byte. It is where both ceilings meet: peak / "
        "bandwidth.",
    ),
    (
        "over_the_peak",
        slips.answer(roof=slips.against_the_peak),
        "The share is of the peak. Left of the ridge the roof is lower: a kernel that only copies would have a share "
        "of 0, however fast.",
    ),
    (
        "over_the_bandwidth",
        slips.answer(roof=slips.against_the_bandwidth),
        "The share is of the bandwidth alone. Right of the ridge the peak is what limits.",
    ),
    (
        "times_added",
        slips.answer(roof=slips.both_in_turn),
        "The least time is the sum of arithmetic and traffic. They run side by side on many waves: the longer one "
        "decides.",
    ),
    (
        "the_shorter_time",
        slips.answer(roof=slips.the_smaller),
        "The least time is the shorter of arithmetic and traffic. Both must be done: the longer one decides.",
    ),
    (
        "never_neither",
        slips.answer(bound=slips.never_neither),
        "Every kernel was given a ceiling. One that reaches less than half of its roof is held by neither.",
    ),
    (
        "the_longest_first",
        slips.answer(first=slips.first_by(lambda point: point["seconds"])),
        "'first' is the kernel that takes longest. It may be at its roof already: what could it gain?",
    ),
    (
        "the_lowest_share_first",
        slips.answer(first=slips.first_by(lambda point: -point["share"])),
        "'first' is the kernel with the lowest share. If it takes little time, the run gains little.",
    ),
    (
        "the_smallest_gain",
        slips.answer(first=slips.first_by(lambda point: -point["gain"])),
        "'first' has the smallest gain. Take the largest.",
    ),
    (
        "the_unknown_first",
        slips.answer(first=slips.even_unknown),
        "'first' is a kernel whose roof is unknown. Nobody can say that it would gain: choose among the known.",
    ),
)

EXERCISE = Exercise(
    id="13.roofline_points",
    title="Raw counters to roofline points",
    parameters=("kernels", "peak", "bandwidth"),
    kind="host",
    inputs=_inputs,
    reference=_right,
    judge=_judge,
    tolerance=_tolerance,
    dtype=lambda inputs: None,
    cases=(
        Example(
            "the small example of the statement: two launches of one kernel, on CDNA",
            kernels=[
                of_amd("gemv", 1000, 2000, add=10, mul=5, fma=1000, mops=0, fetch=1024.0, write=1.0),
                of_amd("gemv", 4000, 4500, add=0, mul=5, fma=1000, mops=0, fetch=511.0, write=0.0),
            ],
            peak=1e12,
            bandwidth=2e12,
        ),
        Case("AMD: matrix units, a copy, several launches", vendor="amd", kernels=6),
        Case("NVIDIA: the same kinds", vendor="nvidia", kernels=6),
        Case("AMD: some counters were not collected", vendor="amd", kernels=7, unknown=2),
        Case("NVIDIA: some counters were not collected", vendor="nvidia", kernels=7, unknown=2),
        Example(
            "one launch used tensor cores, one may have, one lacks a counter: no kernel is first",
            kernels=[
                of_nvidia("norm", 5000, fadd=10, fmul=10, ffma=10, tensor=None, read=4096, write=4096),
                of_nvidia("gelu", 5000, fadd=10, fmul=10, ffma=10, tensor=0, read=None, write=4096),
                of_nvidia("gemm", 5000, fadd=10, fmul=10, ffma=10, tensor=64, read=4096, write=4096),
                of_nvidia("gemm", 6000, fadd=10, fmul=10, ffma=10, tensor=0, read=4096, write=4096),
            ],
            peak=1e12,
            bandwidth=2e12,
        ),
        Example(
            "exactly at the ridge; above its roof, since a cache helped; a little right of the ridge",
            kernels=[
                of_nvidia(
                    "at_the_ridge",
                    3000,
                    fadd=0,
                    fmul=1_000_000,
                    ffma=500_000,
                    tensor=0,
                    read=1_500_000,
                    write=2_500_000,
                ),
                of_nvidia("cached", 1000, fadd=0, fmul=0, ffma=0, tensor=0, read=1_500_000, write=1_500_000),
                of_nvidia(
                    "right_of_it", 2000, fadd=0, fmul=500_000, ffma=500_000, tensor=0, read=900_000, write=100_000
                ),
            ],
            peak=1e12,
            bandwidth=2e12,
        ),
        Example(
            "all are above their roofs, since caches helped, and one is unknown: first is the nearest to its roof",
            kernels=[
                of_amd("far", 1000, 2000, add=0, mul=0, fma=0, mops=0, fetch=4096.0, write=1024.0),
                of_amd("near", 3000, 4000, add=100, mul=0, fma=100, mops=0, fetch=2048.0, write=16.0),
                of_amd("unknown", 5000, 6000, add=100, mul=0, fma=100, mops=0, fetch=None, write=16.0),
                of_amd("further", 7000, 8000, add=0, mul=0, fma=0, mops=0, fetch=3072.0, write=1024.0),
            ],
            peak=1e12,
            bandwidth=2e12,
        ),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "Three tables first: what one count of each counter stands for, in FLOP, in bytes, in ns. Then a kernel's "
        "figures are three weighted sums over all of its launches. When is such a sum None?",
        "The least time is max(flop / peak, bytes / bandwidth): it holds for a kernel without FLOP too, where FLOP/s "
        "over FLOP/s would be 0 / 0. share is the least time over the time, gain the difference of the two.",
        "weights = {'SQ_INSTS_VALU_FMA_F32': 128, ...}; terms = [(row[c], w) for row in rows for c, w in "
        "weights.items() if c in row]; None if any count is None else sum(count * w). Then one function serves FLOP, "
        "bytes and ns, of both vendors. FLOP are None as well where the tensor counter is not 0 in some launch.",
    ),
    explanation=(
        "Counters are counts of events, and each tool has its own event: a wave's instruction, a thread's, 512 "
        "operations, 1024 bytes. One table of weights for each figure holds all of it, and a missing counter makes a "
        "missing figure, never a small one. The least time of a kernel is the longer of what arithmetic and traffic "
        "take alone; what lies above it is what better code could gain, in seconds of the run. That orders the work: "
        "the longest kernel may be at its roof, and the one farthest below may take no time at all."
    ),
)
