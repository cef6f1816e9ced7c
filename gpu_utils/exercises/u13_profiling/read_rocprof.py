"""13.read_rocprof: one row for each dispatch, from two tables of rocprofv3: when it ran, and what it counted."""

from __future__ import annotations

import random
from typing import Any

import torch

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u13_profiling import read_rocprof_slips as slips
from gpu_utils.exercises.u13_profiling.rows import wrong_row
from gpu_utils.exercises.u13_profiling.tiny import FILES
from gpu_utils.exercises.u13_profiling.written_tables import GENERATIONS, rocprof
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

_FIRST = FILES["kernel_trace.csv"].splitlines()
ONE = f"{_FIRST[0]}\n{_FIRST[2].replace('1000000,1012000', '1000000,1000000').replace('256,1,1', '65,1,1')}\n"


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    if isinstance(case, Example):
        return case.inputs
    rng = random.Random(int(torch.randint(2**31, (), generator=generator)))
    trace, counters = rocprof(rng, case["generation"], case["dispatches"])
    return {"trace": trace, "counters": counters}


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    """A number of the file in float64, times a factor."""
    return Tolerance(tolerance(torch.float64).rtol, 0.0, "a number of the file times a factor, in float64")


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    return wrong_row(slips.right(inputs["trace"], inputs["counters"]), value, _tolerance(case, inputs), "kernel")


def _fresh(rng: random.Random) -> Case:
    return Case("dispatches nobody chose", generation=rng.choice(GENERATIONS), dispatches=rng.randrange(7, 14))


EXERCISE = Exercise(
    id="13.read_rocprof",
    title="Tables of rocprofv3",
    parameters=("trace", "counters"),
    kind="host",
    inputs=_inputs,
    reference=slips.right,
    judge=_judge,
    tolerance=_tolerance,
    dtype=lambda inputs: None,
    cases=(
        Example(
            "the example of the docstring: two dispatches, one of them counted",
            trace=FILES["kernel_trace.csv"],
            counters=FILES["counters.csv"],
        ),
        Case(
            "headers of today: a graph, a dispatch that never ended, rows that stand twice",
            generation="now",
            dispatches=7,
        ),
        Example(
            "one dispatch, of no length, with 65 threads in a block",
            trace=ONE,
            counters=FILES["counters.csv"],
        ),
        Example("nothing ran: a header and no row", trace=ONE.splitlines()[0], counters=FILES["counters.csv"]),
        Case("headers of 2024: other columns", generation="2024", dispatches=8),
        Case(
            "headers of early 2024: no Dispatch_Id in the trace", generation="2024, without Dispatch_Id", dispatches=9
        ),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "grid_in_work_items",
            slips.grid_in_work_items,
            "Grid_Size was taken for blocks. It counts work-items: divide by the workgroup, axis by axis.",
        ),
        Misconception(
            "whole_blocks_only",
            slips.whole_blocks_only,
            "1000 work-items in blocks of 96 are 11 blocks, the last one part full: rounding down loses it.",
        ),
        Misconception(
            "always_one_more",
            slips.always_one_more,
            "Where the grid is a multiple of the workgroup there is a block too many.",
        ),
        Misconception(
            "one_axis",
            slips.one_axis,
            "The work-items of all axes were divided at once. A block is part full along each axis for itself, and "
            "grid has three numbers.",
        ),
        Misconception(
            "waves_of_32",
            slips.waves_of_32,
            "Waves of 32 were counted. These GPUs are CDNA, whose waves have 64 lanes.",
        ),
        Misconception(
            "waves_of_the_grid",
            slips.waves_of_the_grid,
            "Work-items were divided by 64. Waves belong to blocks: one of 96 threads takes two, and leaves 32 lanes "
            "without work.",
        ),
        Misconception(
            "waves_across_blocks",
            slips.waves_across_blocks,
            "The threads of all blocks were put together and divided by 64. Two blocks never share a wave: round up "
            "for each block.",
        ),
        Misconception(
            "whole_waves_only",
            slips.whole_waves_only,
            "A block of 96 threads was given one wave. The threads that are left over take a wave of their own.",
        ),
        Misconception(
            "traffic_as_it_is",
            slips.traffic_as_it_is,
            "FETCH_SIZE and WRITE_SIZE came back as they stand. They count KiB; read and written are bytes.",
        ),
        Misconception(
            "traffic_in_thousands",
            slips.traffic_in_thousands,
            "FETCH_SIZE was multiplied by 1,000. It counts KiB, of 1,024 bytes each, while ncu's Kbyte is 1,000.",
        ),
        Misconception(
            "fetch_alone",
            slips.fetch_alone,
            "FETCH_SIZE became bytes, WRITE_SIZE did not. Both count KiB.",
        ),
        Misconception(
            "traffic_twice",
            slips.traffic_twice,
            "FETCH_SIZE and WRITE_SIZE stand among the counters too, in another unit than read and written. One "
            "figure, one place.",
        ),
        Misconception(
            "unknown_is_zero",
            slips.unknown_is_zero,
            "Where FETCH_SIZE or WRITE_SIZE was not collected, 0 bytes came back. Nobody counted: None.",
        ),
        Misconception(
            "joined_by_name",
            slips.joined_by_name,
            "Counters were joined by the name of the kernel, so all launches of one kernel have the same. Join by "
            "dispatch.",
        ),
        Misconception(
            "joined_by_correlation",
            slips.joined_by_correlation,
            "Counters were joined by Correlation_Id. That is the call of the host, and a graph starts several "
            "dispatches with one. Where the trace has Dispatch_Id, take that.",
        ),
        Misconception(
            "in_order",
            slips.in_order,
            "The first dispatch of one file was given to the first row of the other. Neither file is in the order of "
            "the other, and each may lack dispatches.",
        ),
        Misconception(
            "last_counter_only",
            slips.last_counter_only,
            "Each dispatch has kept one counter, its last. The file has a row for each counter: gather them.",
        ),
        Misconception(
            "doubles_added",
            slips.doubles_added,
            "Rows that stand in the file twice were added up. rocprofv3 has summed over the GPU already; a second "
            "row of one dispatch and counter is the same figure again.",
        ),
        Misconception(
            "counted_dispatches_only",
            slips.counted_dispatches_only,
            "Dispatches without counters were left out. They ran: their counters are an empty dict.",
        ),
        Misconception(
            "impossible_kept",
            slips.impossible_kept,
            "A dispatch took less than no time. Its end was not recorded (0), so its duration is not known: None.",
        ),
        Misconception(
            "impossible_left_out",
            slips.impossible_left_out,
            "A dispatch whose end was not recorded was left out. It ran, and its counters are good: only its "
            "duration is None.",
        ),
        Misconception(
            "by_position",
            slips.by_position,
            "Columns were counted. Those of 2024 are others than today's: read them by the names of the header.",
        ),
        Misconception(
            "order_of_dispatch",
            slips.order_of_dispatch,
            "The rows are in the order of their numbers, which is that of submission. Two queues overtake each other: "
            "sort by start.",
        ),
        Misconception(
            "order_of_the_file",
            slips.order_of_the_file,
            "The rows are in the order of the file, which nobody promises. Sort them by start.",
        ),
    ),
    hints=(
        "First the counters: a dict of dicts, dispatch -> counter -> value. Then the trace, row by row. What do you do "
        "where a dispatch is in one file and not in the other?",
        "csv.DictReader for both. key = 'Dispatch_Id' if the trace has that column, else 'Correlation_Id': the "
        "counters have both. Blocks are -(-work_items // workgroup) on each axis. A block of t threads has -(-t // "
        "64) waves.",
        "found.setdefault(row[key], {})[row['Counter_Name']] = float(row['Counter_Value']); mine = found.get(row[key], "
        "{}); read = mine['FETCH_SIZE'] * 1024 if 'FETCH_SIZE' in mine else None; duration = end - start if end >= "
        "start else None.",
    ),
    explanation=(
        "rocprofv3 splits what ncu puts into one table: times in the trace, counters in the collection, and a number "
        "for each dispatch to join them. Its units differ from ncu's as well: grids in work-items, traffic in KiB. "
        "Dividing axis by axis and rounding up gives what both vendors call a grid. Waves times 64 against threads is "
        "the first figure of waste: a block of 96 threads occupies 128 lanes. And where all blocks are full, SQ_WAVES "
        "must be this count of waves: more of them come from another program on the GPU while you measured, or from "
        "passes that somebody added up."
    ),
)
