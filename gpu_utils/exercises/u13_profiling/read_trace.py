"""13.read_trace: one row for each kernel, from a trace of torch.profiler of either vendor."""

from __future__ import annotations

import random
from typing import Any

import torch

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u13_profiling import read_trace_slips as slips
from gpu_utils.exercises.u13_profiling.rows import wrong_row
from gpu_utils.exercises.u13_profiling.tiny import FILES
from gpu_utils.exercises.u13_profiling.written import VENDORS, trace
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    if isinstance(case, Example):
        return case.inputs
    rng = random.Random(int(torch.randint(2**31, (), generator=generator)))
    return {"text": trace(rng, case["vendor"], case["ops"], case["devices"])}


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    """Times are float64 as in the file, of up to ten seconds here; a delay is the difference of two."""
    return tolerance(torch.float64, k=2, magnitude=1e7)


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    return wrong_row(slips.right(inputs["text"]), value, _tolerance(case, inputs), "name")


def _fresh(rng: random.Random) -> Case:
    vendor, devices = rng.choice(VENDORS), rng.choice((1, 2, 3))
    return Case("a trace that nobody has seen", vendor=vendor, ops=rng.randrange(5, 13), devices=devices)


EXERCISE = Exercise(
    id="13.read_trace",
    title="Kernels of a trace",
    parameters=("text",),
    kind="host",
    inputs=_inputs,
    reference=slips.right,
    judge=_judge,
    tolerance=_tolerance,
    dtype=lambda inputs: None,
    cases=(
        Example(
            "the example of the docstring: two kernels of ROCm, one launched before the window",
            text=FILES["trace.json"],
        ),
        Case("CUDA: launches of the runtime and of the driver, copies, a graph", vendor="CUDA", ops=6, devices=1),
        Case("ROCm as it was: grids stand with the launches", vendor="ROCm, old", ops=6, devices=1),
        Case("ROCm of today, two GPUs: streams have the same numbers on both", vendor="ROCm", ops=7, devices=2),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "milliseconds",
            slips.milliseconds,
            "Times are 1,000 times too large. displayTimeUnit says how a viewer shows them; ts and dur are "
            "microseconds whatever it says.",
        ),
        Misconception(
            "nanoseconds",
            slips.nanoseconds,
            "Times are 1,000 times too small: ts and dur are microseconds already. Their three decimals are the "
            "nanoseconds.",
        ),
        Misconception(
            "ends_for_durations",
            slips.ends_for_durations,
            "dur was taken for the end of the kernel, and its start subtracted. It is how long the kernel took.",
        ),
        Misconception(
            "copies_too",
            slips.copies_too,
            "Copies and fills came back as kernels. They run on the GPU and have a cat of their own: gpu_memcpy, "
            "gpu_memset.",
        ),
        Misconception(
            "calls_too",
            slips.calls_too,
            "Calls of the runtime came back as kernels. cudaLaunchKernel is work of the host, and ends before its "
            "kernel does, often before it begins. Only cat kernel is a kernel.",
        ),
        Misconception(
            "ranges_too",
            slips.ranges_too,
            "Ranges that a program named lie on the GPU's lanes too (gpu_user_annotation). They hold kernels and are "
            "none.",
        ),
        Misconception(
            "in_order_of_launches",
            slips.in_order_of_launches,
            "The first launch was given to the first kernel, and so on. Two streams overtake each other, and a kernel "
            "of before the window has no launch here. Join by correlation.",
        ),
        Misconception(
            "nearest_launch",
            slips.nearest_launch,
            "Each kernel got the last launch before its start. A queue of ten kernels was launched long before the "
            "tenth begins. Join by correlation.",
        ),
        Misconception(
            "one_kernel_a_launch",
            slips.one_kernel_a_launch,
            "A launch was used up by its first kernel. The launch of a graph starts several, all with its correlation.",
        ),
        Misconception(
            "joined_with_itself",
            slips.joined_with_itself,
            "Delays are 0: by its correlation each kernel found its own event. Look among the calls of the host "
            "alone (cuda_runtime, cuda_driver).",
        ),
        Misconception(
            "runtime_only",
            slips.runtime_only,
            "Launches through the driver (cuLaunchKernel, which Triton uses on NVIDIA) are missing: their cat is "
            "cuda_driver.",
        ),
        Misconception(
            "copies_are_calls",
            slips.copies_are_calls,
            "A copy on the GPU was taken for the call that launched a kernel. A graph holds both, and all of them have "
            "its number: only cuda_runtime and cuda_driver are calls.",
        ),
        Misconception(
            "ones_at_once",
            slips.ones_at_once,
            "A grid that does not stand with the kernel became (1, 1, 1): a grid of one block, which is wrong. Older "
            "ROCm traces have it in the event of the launching call.",
        ),
        Misconception(
            "own_fields_only",
            slips.own_fields_only,
            "Grids and blocks of ROCm are missing, and they are in the file: in args of the launching call, found "
            "by correlation.",
        ),
        Misconception(
            "grid_of_the_launch",
            slips.grid_of_the_launch,
            "The grid was taken from the call although the kernel has one. hipExtModuleLaunchKernel is given "
            "work-items, the kernel's own field counts blocks.",
        ),
        Misconception(
            "ones_for_unknown",
            slips.ones_for_unknown,
            "Where neither kernel nor launch has a grid, it became (1, 1, 1). That claims one block. What nobody "
            "recorded is None.",
        ),
        Misconception(
            "delay_from_its_end",
            slips.delay_from_its_end,
            "The delay was counted from the end of the call. It counts from its start: the call itself is part of "
            "what a launch costs.",
        ),
        Misconception(
            "no_launch_no_delay",
            slips.no_launch_no_delay,
            "A kernel whose launch is not in the file got the delay 0, as if it had begun at once. It is unknown: "
            "None.",
        ),
        Misconception(
            "launched_only",
            slips.launched_only,
            "Kernels without a launch in the file were left out. They ran: their rows have None for launched and "
            "delay.",
        ),
        Misconception(
            "order_of_the_file",
            slips.order_of_the_file,
            "The rows are in the order of the file, which is that of buffers that filled up. Sort them by start.",
        ),
        Misconception(
            "by_op_of_correlation",
            slips.by_op_of_correlation,
            "The operator was looked up by correlation. That number ties a call to a kernel; an operator has another "
            "one, External id, which the kernel carries too.",
        ),
        Misconception(
            "outermost_op",
            slips.outermost_op,
            "Operators hold each other, and time alone found the outermost. External id names the one that launched.",
        ),
    ),
    hints=(
        "Three passes over the events: the calls by correlation, the operators by External id, then the kernels in "
        "order of start. Which events have neither of these numbers?",
        "calls = {event['args']['correlation']: event ...} for cat cuda_runtime and cuda_driver where args has one; "
        "ops = {event['args']['External id']: event['name'] ...} for cpu_op. Then dict.get for each kernel: what is "
        "not there gives None.",
        "args = kernel['args']; call = calls.get(args.get('correlation')); there = call['args'] if call else {}; "
        "grid = args.get('grid') or there.get('grid'); delay = kernel['ts'] - call['ts'] if call else None.",
    ),
    explanation=(
        "A trace has two clocks made one, and two numbers that tie its layers: correlation ties a call of the runtime "
        "to what it started on the GPU, External id ties both to the operator of torch. Names and order tie nothing: "
        "streams overtake each other. What a vendor does not write beside the kernel (ROCm before 2024: grid and "
        "block) may stand beside the call, and what stands nowhere is unknown. The delay is the first figure of a "
        "slow program: some microseconds mean a GPU that waits for launches, milliseconds mean a queue that is full."
    ),
)
