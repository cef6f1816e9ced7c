"""13.diagnose: which of six faults, and in which kernel, from what a profiler wrote."""

from __future__ import annotations

import random
from typing import Any

import torch

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u13_profiling import diagnose_slips as slips
from gpu_utils.exercises.u13_profiling.diagnose_rows import diagnosis_rows, kept_run
from gpu_utils.exercises.u13_profiling.small_training import FAULTS, SMALL_TARGETS, WHERE, SmallRun
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

WORDS = (*FAULTS, "none")


def _run(case: Case) -> SmallRun:
    return kept_run(case["target"], case.get("fault"), case.get("kernel"), case.get("steps", 2), case["seed"])


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    events, kernels = diagnosis_rows(_run(case))
    began = 1_000_000 * (1 + case["seed"])  # the profiler began before the first launch
    for event in events:
        event["start"], event["end"] = event["start"] + began, event["end"] + began
    return {"events": events, "kernels": kernels}


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    """By what was planted, whatever the reference makes of it."""
    if not isinstance(value, (tuple, list)) or len(value) != 2 or not isinstance(value[0], str):
        return Difference("form", "expected (fault, kernel), for example ('spills', 'update') or ('none', None)")
    fault, kernel = value
    if fault not in WORDS:
        return Difference("form", f"{fault[:60]!r} is no fault; expected one of {', '.join(WORDS)}")
    run = _run(case)
    expected = run.fault or "none"
    if fault != expected:
        return Difference(f"said {fault} for {expected}", f"the answer is {fault!r}, and the run does not show that")
    if kernel != run.kernel:
        named = repr(kernel)[:60]
        asked = "None: no kernel is at fault" if run.kernel is None else "the kernel that has it"
        return Difference(f"named {named}", f"{fault!r} is right, {named} is not; expected {asked}")
    return None


def _fresh(rng: random.Random) -> Case:
    fault = rng.choice([*FAULTS, None])
    more: dict[str, Any] = {} if fault is None else {"fault": fault}
    if fault and WHERE[fault]:
        more["kernel"] = rng.choice(WHERE[fault])
    return Case(
        "a run nobody chose",
        target=rng.choice(SMALL_TARGETS),
        steps=rng.randrange(2, 5),
        seed=rng.randrange(20),
        **more,
    )


def _case(why: str, target: str, fault: str | None = None, kernel: str | None = None, **more: Any) -> Case:
    named = {name: value for name, value in (("fault", fault), ("kernel", kernel)) if value is not None}
    return Case(why, target=target, seed=more.pop("seed", 1), **named, **more)


EXERCISE = Exercise(
    id="13.diagnose",
    title="Which fault, and where?",
    parameters=("events", "kernels"),
    kind="host",
    inputs=_inputs,
    reference=slips.right,
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    cases=(
        _case("nothing is planted, on an AMD target: a kernel that is not quite full", "gfx942"),
        _case("nothing is planted, and it ran for longer", "sm_80", steps=15),
        _case("a kernel that is not the longest walks down columns", "sm_80", "uncoalesced", "update"),
        _case("only the stores of a kernel are scattered", "sm_80", "uncoalesced", "transpose"),
        _case("lines in place of sectors", "gfx942", "uncoalesced", "loss_gradient"),
        _case(
            "the kernel with the most conflicts is another than the one where most passes are",
            "sm_80",
            "bank_conflicts",
            "transpose",
            seed=5,
        ),
        _case("conflicts in cycles", "gfx942", "bank_conflicts", "weight_gradient"),
        _case("values that leave the registers", "sm_80", "spills", "forward"),
        _case("the same on AMD", "gfx942", "spills", "activation"),
        _case("few waves fit", "gfx942", "low_occupancy", "update"),
        _case("the host launches too much, in a single step", "gfx942", "launch_bound", steps=1),
        _case("the host waits too often", "sm_80", "host_sync"),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "longest_kernel",
            slips.longest_kernel,
            "The kernel that takes longest need not be the one with the fault: "
            "name the one whose own counters show it.",
        ),
        Misconception(
            "sectors_not_per_request",
            slips.sectors_not_per_request,
            "A kernel that loads more touches more sectors. Ask how many one load or store of a wave touches.",
        ),
        Misconception("loads_only", slips.loads_only, "Stores can be scattered while loads are not: count both."),
        Misconception(
            "nvidia_only",
            slips.nvidia_only,
            "On AMD the columns of sectors and passes are None: lines and cycles stand in others.",
        ),
        Misconception(
            "any_conflict",
            slips.any_conflict,
            "A few conflicts are no fault: which share of all passes, or cycles, of shared memory do they make?",
        ),
        Misconception(
            "most_conflicts",
            slips.most_conflicts,
            "The kernel with the most conflicts may just use shared memory most: compare shares.",
        ),
        Misconception(
            "full_or_low",
            slips.full_or_low,
            "A kernel that fills seven eighths of the unit hides its waiting. Low is where few waves fit.",
        ),
        Misconception(
            "idle_is_launch_bound",
            slips.idle_is_launch_bound,
            "A GPU that idles waits for the host, and a host can be slow or wait itself. What does it do in the gaps?",
        ),
        Misconception(
            "any_wait_is_a_sync",
            slips.any_wait_is_a_sync,
            "One wait at the end of a run costs nothing. How many are there for each kernel, and is the GPU idle?",
        ),
        Misconception(
            "many_launches",
            slips.many_launches,
            "A longer run has more launches. Launch-bound is a GPU that idles between kernels shorter than a launch.",
        ),
        Misconception(
            "kernel_for_the_host",
            slips.kernel_for_the_host,
            "Where the host is at fault, no kernel is: the second part of the answer is then None.",
        ),
        Misconception(
            "shared_memory_is_low_occupancy",
            slips.shared_memory_is_low_occupancy,
            "Using shared memory is no fault as long as many blocks fit: look at the limit of the occupancy.",
        ),
        Misconception("always_something", slips.always_something, "A program may be as it should be: ('none', None)."),
    ),
    hints=(
        "Make a table by hand first: for each fault, the figure that shows it, on NVIDIA and on AMD.",
        "Each figure is a ratio: sectors or lines for a load or store, conflicts of all passes, the busy share, "
        "waits for a kernel. Kernels first: the host's two faults show only in `events`.",
        "Print your figures for planted(1), planted(2), ... Sound kernels lie close together, a faulty one far away: "
        "put each threshold between.",
    ),
    explanation=(
        "Ratios carry over from size to size and, with two sets of columns, from vendor to vendor; totals do not. A "
        "fault of a kernel shows in its own row, whatever its share of the time. A fault of the host shows in the "
        "timeline: the GPU is idle, and the host either launches all the time or waits."
    ),
)
