"""02.attainable: the roofline of one chip, at one kernel."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.chips import CHIPS
from gpu_utils.exercises.u02_gpu_machine.occupancy_nvidia import float_tolerance
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

TERA, MICROSECONDS = 1e12, 1e6


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return {name: case[name] for name in ("flops", "bytes_moved", "peak_tflops", "bandwidth_tb")}


def attainable_reference(flops: float, bytes_moved: float, peak_tflops: float, bandwidth_tb: float) -> dict[str, Any]:
    """The slower of arithmetic and traffic decides the time; the rate follows from it.

    >>> attainable_reference(8e9, 2e9, peak_tflops=16.0, bandwidth_tb=2.0)
    {'intensity': 4.0, 'tflops': 8.0, 'bound': 'memory', 'us': 1000.0}
    """
    arithmetic, traffic = flops / (peak_tflops * TERA), bytes_moved / (bandwidth_tb * TERA)
    seconds = max(arithmetic, traffic)
    return {
        "intensity": flops / bytes_moved,
        "tflops": flops / seconds / TERA,
        "bound": "memory" if traffic > arithmetic else "compute",
        "us": seconds * MICROSECONDS,
    }


def _changed(
    change: Callable[[dict[str, Any], dict[str, float]], dict[str, Any]],
) -> Callable[..., dict[str, Any]]:
    """The reference with some entries replaced by what `change(result, inputs)` returns."""

    def answer(flops: float, bytes_moved: float, peak_tflops: float, bandwidth_tb: float) -> dict[str, Any]:
        found = attainable_reference(flops, bytes_moved, peak_tflops, bandwidth_tb)
        inputs = {"flops": flops, "bytes": bytes_moved, "peak": peak_tflops, "bandwidth": bandwidth_tb}
        return {**found, **change(found, inputs)}

    return answer


def _always_the_slope(found: dict[str, Any], given: dict[str, float]) -> dict[str, Any]:
    return {"tflops": found["intensity"] * given["bandwidth"]}


def _always_the_peak(found: dict[str, Any], given: dict[str, float]) -> dict[str, Any]:
    return {"tflops": given["peak"], "us": given["flops"] / given["peak"] / TERA * MICROSECONDS}


def _bytes_per_flop(found: dict[str, Any], given: dict[str, float]) -> dict[str, Any]:
    inverse = given["bytes"] / given["flops"]
    return {"intensity": inverse, "tflops": min(given["peak"], inverse * given["bandwidth"])}


def _bound_swapped(found: dict[str, Any], given: dict[str, float]) -> dict[str, Any]:
    return {"bound": {"memory": "compute", "compute": "memory"}[found["bound"]]}


def _times_added(found: dict[str, Any], given: dict[str, float]) -> dict[str, Any]:
    seconds = given["flops"] / given["peak"] / TERA + given["bytes"] / given["bandwidth"] / TERA
    return {"us": seconds * MICROSECONDS}


def _bound_above_one(found: dict[str, Any], given: dict[str, float]) -> dict[str, Any]:
    return {"bound": "memory" if found["intensity"] < 1 else "compute"}


def _time_at_the_peak(found: dict[str, Any], given: dict[str, float]) -> dict[str, Any]:
    return {"us": given["flops"] / given["peak"] / TERA * MICROSECONDS}


def _time_of_the_bytes(found: dict[str, Any], given: dict[str, float]) -> dict[str, Any]:
    return {"us": given["bytes"] / given["bandwidth"] / TERA * MICROSECONDS}


def _ridge_is_memory(found: dict[str, Any], given: dict[str, float]) -> dict[str, Any]:
    return {"bound": "memory" if found["intensity"] <= given["peak"] / given["bandwidth"] else "compute"}


def _in_flops(found: dict[str, Any], given: dict[str, float]) -> dict[str, Any]:
    return {"tflops": found["tflops"] * TERA}


def _milliseconds(found: dict[str, Any], given: dict[str, float]) -> dict[str, Any]:
    return {"us": found["us"] / 1000}


def _seconds(found: dict[str, Any], given: dict[str, float]) -> dict[str, Any]:
    return {"us": found["us"] / MICROSECONDS}


def _powers_of_two(found: dict[str, Any], given: dict[str, float]) -> dict[str, Any]:
    return {"us": found["us"] * TERA / 2**40}


def _fresh(rng: random.Random) -> Case:
    chip = CHIPS[rng.choice(["A100", "H100", "MI250X", "MI300X"])]
    return Case(
        f"a fresh kernel on {chip.name}",
        flops=rng.uniform(1e9, 1e12),
        bytes_moved=rng.uniform(1e8, 1e10) if rng.random() < 0.5 else rng.uniform(1e5, 1e6),
        peak_tflops=chip.peak("bf16"),
        bandwidth_tb=chip.bandwidth,
    )


def _on(chip: str, dtype: str, why: str, flops: float, bytes_moved: float) -> Case:
    """A case with figures of the registry."""
    row = CHIPS[chip]
    return Case(why, flops=flops, bytes_moved=bytes_moved, peak_tflops=row.peak(dtype), bandwidth_tb=row.bandwidth)


_WRONG: tuple[tuple[str, Callable[..., dict[str, Any]], str], ...] = (
    (
        "always_the_slope",
        _changed(_always_the_slope),
        "intensity times bandwidth goes above the peak for dense kernels. No kernel is faster than either roof: take "
        "the lower one.",
    ),
    (
        "always_the_peak",
        _changed(_always_the_peak),
        "This is the peak whatever the kernel moves. Left of the ridge the memory cannot bring operands fast enough: "
        "what rate do bandwidth and intensity allow?",
    ),
    (
        "bytes_per_flop",
        _changed(_bytes_per_flop),
        "The intensity is upside down: FLOP per byte, so that more work on each byte is a larger number.",
    ),
    (
        "bound_swapped",
        _changed(_bound_swapped),
        "The numbers are right and the bounds are swapped: a kernel is memory-bound when the memory is what it waits "
        "for, left of the ridge.",
    ),
    (
        "times_added",
        _changed(_times_added),
        "The two times are added. A GPU computes while it loads, so the least time is the longer of the two.",
    ),
    (
        "bound_above_one",
        _changed(_bound_above_one),
        "The bound changes at the ridge of the chip, peak over bandwidth (hundreds of FLOP per byte on these chips), "
        "not at an intensity of 1.",
    ),
    (
        "ridge_is_memory",
        _changed(_ridge_is_memory),
        "Only a kernel exactly at the ridge is wrong: there both limits are equal, and the statement counts it as "
        "`compute`.",
    ),
    (
        "time_at_the_peak",
        _changed(_time_at_the_peak),
        "The time is that of the arithmetic at the peak. A memory-bound kernel never gets there: divide by the rate "
        "that you found attainable.",
    ),
    (
        "time_of_the_bytes",
        _changed(_time_of_the_bytes),
        "The time is that of the bytes alone. Right of the ridge the arithmetic takes longer, and decides.",
    ),
    (
        "in_flops",
        _changed(_in_flops),
        "The rate is in FLOP/s. `tflops` asks for TFLOP/s: TB/s times FLOP per byte is TFLOP/s already.",
    ),
    (
        "milliseconds",
        _changed(_milliseconds),
        "The time is in milliseconds. `us` asks for microseconds, a thousand times as many.",
    ),
    (
        "seconds",
        _changed(_seconds),
        "The time is in seconds. `us` asks for microseconds, a million of which are a second.",
    ),
    (
        "powers_of_two",
        _changed(_powers_of_two),
        "Only the time is off, by a tenth: T in TB/s and TFLOP/s is 10**12 in data sheets, not 2**40.",
    ),
)

EXERCISE = Exercise(
    id="02.attainable",
    title="The roofline",
    parameters=("flops", "bytes_moved", "peak_tflops", "bandwidth_tb"),
    kind="host",
    inputs=_inputs,
    reference=attainable_reference,
    tolerance=float_tolerance,
    cases=(
        _on("H100", "bf16", "adding two vectors on H100", 2.0**24, 3 * 2.0**25),
        _on("MI300X", "bf16", "the same on MI300X", 2.0**24, 3 * 2.0**25),
        _on("H100", "bf16", "a large matmul on H100: the peak", 2.0 * 8192**3, 3 * 2.0 * 8192**2),
        _on("MI300X", "fp8", "the same in FP8 on MI300X", 2.0 * 8192**3, 8192.0**2 * (1 + 1 + 2)),
        _on("MI300X", "bf16", "200 FLOP per byte: left of the ridge, near it", 2e11, 1e9),
        _on("A100", "bf16", "200 FLOP per byte: right of the ridge of an A100", 2e11, 1e9),
        Case("exactly at the ridge of round numbers", flops=8e9, bytes_moved=1e9, peak_tflops=16.0, bandwidth_tb=2.0),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "Work out two times: how long the arithmetic takes at the peak, and how long the bytes take at the full "
        "bandwidth. A GPU does both at once.",
        "intensity = flops / bytes_moved. TFLOP/s = FLOP per byte times TB/s, and never above the peak. The ridge is "
        "at peak_tflops / bandwidth_tb FLOP per byte.",
        'tflops = min(peak_tflops, intensity * bandwidth_tb), bound = "memory" if intensity < peak_tflops / '
        'bandwidth_tb else "compute", us = flops / (tflops * 1e12) * 1e6.',
    ),
    explanation=(
        "A kernel needs flops / peak for its arithmetic and bytes / bandwidth for its traffic, and at best the shorter "
        "hides behind the longer. Written as a rate this is min(peak, intensity * bandwidth): a slope and a roof that "
        "meet at the ridge. Left of it only fewer bytes help, right of it only fewer FLOP or a faster number format."
    ),
)
