"""13.occupancy_from_counters: what could be resident, what was, and which of the two to work on."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.chips import TARGETS
from gpu_utils.exercises.u13_profiling import occupancy_from_counters_slips as slips
from gpu_utils.exercises.u13_profiling.drawn_launches import drawn_launches, limits_of, of_amd, of_nvidia, placed
from gpu_utils.exercises.u13_profiling.judging import rows_problem
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    rng = random.Random(int(torch.randint(2**31, (1,), generator=generator)))
    return {"kernels": drawn_launches(rng, case["target"]), "limits": limits_of(case["target"])}


def reference(kernels: Sequence[slips.Row], limits: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The theoretical side by `gpu_utils.analytic.occupancy`, the achieved one by the tools' formulas."""
    found = []
    for row in kernels:
        fit, limited = placed(limits["target"], slips.registers_of(row), slips.shared_of(row), slips.threads_of(row))
        nvidia = TARGETS[limits["target"]].vendor == "nvidia"
        achieved = row[slips.ACHIEVED] if nvidia else slips.amd_achieved(row, limits)
        theoretical = 100 * fit.waves / fit.most
        filled = slips.full_rounds(slips.blocks_of(row), fit.blocks * limits["units"])
        found.append(
            {
                "name": row["name"],
                "blocks": fit.blocks,
                "limited_by": list(limited),
                "theoretical": theoretical,
                "achieved": achieved,
                "verdict": slips.verdict(achieved, theoretical, filled),
            }
        )
    return found


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    return tolerance(torch.float64, magnitude=0.0, roundings=8)


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    return rows_problem(reference(**inputs), value, _tolerance(case, inputs))


def _fresh(rng: random.Random) -> Case:
    target = rng.choice(["gfx90a", "gfx942", "gfx950", "sm_80", "sm_90", "sm_120"])
    return Case("launches nobody chose", target=target, draw=rng.randrange(10**6))


_WRONG = (
    (
        "quad_cycles_forgotten",
        slips.answer(achieved=slips.cycles_as_they_are),
        "'achieved' is a quarter of it. SQ_WAVE_CYCLES counts once in four cycles on gfx9, GRBM_GUI_ACTIVE in each. "
        "And SIMDs are no divisor of their own: a CU holds simds * waves_per_simd waves.",
    ),
    (
        "over_the_slots_of_a_simd",
        slips.answer(achieved=slips.over_slots_of_a_simd),
        "'achieved' was divided by the waves of one SIMD. A CU has four of them: 32 waves.",
    ),
    (
        "units_forgotten",
        slips.answer(achieved=slips.of_the_whole_gpu),
        "'achieved' is that of one CU that holds the waves of all. The counter sums over the CUs: divide by their "
        "number.",
    ),
    (
        "waves_for_percent",
        slips.answer(achieved=slips.as_waves),
        "'achieved' is in waves of a CU. Asked is the share of those that it can hold, in percent.",
    ),
    (
        "zero_cycles_as_zero",
        slips.answer(achieved=slips.zero_where_unknown),
        "GRBM_GUI_ACTIVE of 0 means that the counter did not run: 'achieved' is unknown, None, and not 0.",
    ),
    (
        "granule_ignored",
        slips.answer(fit=slips.without_granule),
        "Registers were taken as the compiler asks for them. The hardware hands them out in multiples of 'granule': "
        "round up first.",
    ),
    (
        "accumulators_ignored",
        slips.answer(registers=slips.vgprs_only),
        "Only VGPR_Count was counted. From gfx90a on, Accum_VGPR_Count comes from the same file of 512: add both.",
    ),
    (
        "a_file_for_each_kind",
        slips.answer(registers=slips.larger_of_both),
        "The larger of VGPR_Count and Accum_VGPR_Count was taken, as if each had a file. From gfx90a on they share "
        "one: add both.",
    ),
    (
        "one_large_file",
        slips.answer(fit=slips.of_the_whole_file),
        "Registers of a whole unit were shared out. A wave lives on one part: count whole waves of a part, times the "
        "parts, over the waves of a block.",
    ),
    (
        "one_part_only",
        slips.answer(fit=slips.of_one_part),
        "Only one part's registers were counted. A unit has 'simds' of them.",
    ),
    (
        "waves_rounded_down",
        slips.answer(waves=lambda threads, lanes: max(1, threads // lanes)),
        "Threads of a block were divided down. A wave that is part full takes a whole slot: round up.",
    ),
    (
        "waves_of_32",
        slips.answer(lanes=32),
        "Waves of 32 lanes were counted. A wave of CDNA has 64: 'lanes' says it.",
    ),
    (
        "shared_granule_ignored",
        slips.answer(fit_shared=slips.by_bytes),
        "Bytes of shared memory were taken as asked for. They are handed out in multiples of 'shared_granule'.",
    ),
    (
        "reserved_forgotten",
        slips.answer(reserved=False),
        "NVIDIA's system takes 'shared_reserved' bytes from each block's share. Add them before rounding.",
    ),
    (
        "dynamic_forgotten",
        slips.answer(shared=slips.static_only),
        "Only static shared memory was counted. What the launch asks for, the dynamic part, comes on top.",
    ),
    (
        "shared_forgotten",
        slips.answer(without=("shared memory",)),
        "Shared memory (LDS) was not looked at. It limits blocks too.",
    ),
    (
        "registers_forgotten",
        slips.answer(without=("registers",)),
        "Registers were not looked at. They limit waves, and so blocks.",
    ),
    (
        "block_slots_forgotten",
        slips.answer(without=("blocks",)),
        "Block slots were forgotten: an NVIDIA SM takes 'blocks_per_unit' blocks, however small they are.",
    ),
    (
        "wave_slots_forgotten",
        slips.answer(without=("waves",)),
        "Wave slots were forgotten: a unit has simds * waves_per_simd of them.",
    ),
    (
        "the_most_generous",
        slips.answer(fewest=max),
        "The resource that allows most blocks was taken. All must be there at once: the smallest number decides.",
    ),
    (
        "one_limit_only",
        slips.answer(all_limits=False),
        "'limited_by' names one resource where several allow the same number of blocks. To raise the number, all of "
        "them must give way.",
    ),
    (
        "items_for_blocks",
        slips.answer(grid=slips.grid_as_blocks),
        "Verdicts take the grid as blocks. AMD's Grid_Size counts work-items: divide by Workgroup_Size, and round up.",
    ),
    (
        "whole_blocks_only",
        slips.answer(grid=slips.grid_rounded_down),
        "A part of a block at the end of the grid is a block too, and may begin a round of its own: round up.",
    ),
    (
        "the_tail_unseen",
        slips.answer(filled=slips.less_than_a_round),
        "A grid of little more than one round fills the GPU once, and then a small part of it. Compare the rounds "
        "with the whole rounds that they take: 1.1 rounds take the time of 2.",
    ),
    (
        "the_limit_first",
        slips.answer(say=slips.limit_first),
        "A low theoretical occupancy was called the cause where the achieved one is far below even that. Raising a "
        "limit that is not reached gains nothing.",
    ),
    (
        "by_achieved_alone",
        slips.answer(say=slips.by_achieved_alone),
        "The achieved occupancy alone was judged. Compare it with the theoretical one: far is below 0.8 of it.",
    ),
    (
        "far_in_points",
        slips.answer(say=slips.in_points),
        "Far was taken as 20 points of percent. It is 0.8 times the theoretical one: of 40 % that is 32 %.",
    ),
    (
        "the_grid_never",
        slips.answer(say=slips.grid_never),
        "Every kernel that is far below its limit was called imbalanced. Look at its grid first: too few blocks, or a "
        "last round that is nearly empty, explain it.",
    ),
    (
        "the_grid_always",
        slips.answer(say=slips.grid_always),
        "Every kernel that is far below its limit got the verdict 'grid'. A grid of many rounds fills the GPU: then "
        "some waves or blocks live longer than others.",
    ),
)

EXERCISE = Exercise(
    id="13.occupancy_from_counters",
    title="Achieved and theoretical occupancy, and what to do",
    parameters=("kernels", "limits"),
    kind="host",
    inputs=_inputs,
    reference=reference,
    judge=_judge,
    tolerance=_tolerance,
    dtype=lambda inputs: None,
    cases=(
        Example(
            "the small example of the statement, on MI300X",
            kernels=[of_amd("scores", 64, 36, 20_480, 320, 2_918_400, 109_440_000, 100_000)],
            limits=limits_of("gfx942"),
        ),
        Example(
            "H100: three resources at once; few lanes; bytes and registers that round up to one block less",
            kernels=[
                of_nvidia("fill", 32, 0, 0, 64, 42_240, 97.5),
                of_nvidia("tiny", 20, 100, 0, 33, 42_240, 90.0),
                of_nvidia("narrow", 40, 0, 0, 32, 42_240, 49.0),
                of_nvidia("pieces", 32, 666, 45_000, 256, 42_240, 49.0),
                of_nvidia("wide", 100, 0, 0, 96, 42_240, 20.0),
            ],
            limits=limits_of("sm_90"),
        ),
        Example(
            "near the borders: 50 % is not low, 42 is not far from it and 35 is; one round is a full one",
            kernels=[
                of_nvidia("not_far", 64, 0, 0, 256, 132 * 40, 42.0),
                of_nvidia("not_low", 64, 0, 0, 256, 132 * 40, 45.0),
                of_nvidia("far", 64, 0, 0, 256, 132 * 40, 35.0),
                of_nvidia("nearly_full", 32, 45_000, 0, 256, 540, 45.0),
                of_nvidia("one_round", 32, 0, 0, 1024, 264, 50.0),
            ],
            limits=limits_of("sm_90"),
        ),
        Example(
            "MI300X: one block more than a full round, of a hundred work-items",
            kernels=[of_amd("one_more", 32, 0, 0, 256, 304 * 8 * 256 + 100, 121_600_000, 100_000)],
            limits=limits_of("gfx942"),
        ),
        Case("MI300X: accumulation registers share the file", target="gfx942"),
        Case("H100: what the system reserves", target="sm_90"),
        Case("MI250X", target="gfx90a"),
        Case("MI355X: more LDS, handed out in larger pieces", target="gfx950"),
        Case("an SM with 48 slots for warps and 24 for blocks", target="sm_120"),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "Two numbers for each kernel, from two sources: what could be resident follows from the launch and the limits, "
        "what was resident from counters. Work out both before you judge. Which rounding belongs to which step?",
        "blocks is the smallest of: slots // waves; registers // (lane's registers, rounded up) * simds // waves; "
        "shared_per_unit // (bytes + reserved, rounded up); blocks_per_unit where there is one. For the verdict: "
        "rounds = blocks of the grid / (blocks * units), filled = rounds / ceil(rounds).",
        "if achieved is None: 'unknown'; if achieved < 0.8 * theoretical: 'grid' if filled < 0.8 else 'imbalance'; if "
        "theoretical < 50: 'raise'; else 'leave'. AMD: achieved = 400 * SQ_WAVE_CYCLES / GRBM_GUI_ACTIVE / units / "
        "(simds * waves_per_simd), None where GRBM_GUI_ACTIVE is 0.",
    ),
    explanation=(
        "Theoretical occupancy is a property of the launch, achieved occupancy of the run. They part for reasons that "
        "no change of registers mends: a grid that fills the GPU once and a bit, or waves that end early while others "
        "work on. So the distance is judged first, the limit second. NVIDIA divides by cycles in which an SM has a "
        "warp, AMD by all cycles in which the GPU works: with a grid that leaves units empty, AMD's is the "
        "lower one. And every rounding (granule, waves, whole blocks) makes steps: near a step one register decides, "
        "between two of them none does."
    ),
)
