"""13.read_ncu: one row for each kernel, from what `ncu --csv` prints, in its long and in its wide form."""

from __future__ import annotations

import random
from typing import Any

import torch

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u13_profiling import read_ncu_slips as slips
from gpu_utils.exercises.u13_profiling.rows import wrong_row
from gpu_utils.exercises.u13_profiling.tiny import FILES
from gpu_utils.exercises.u13_profiling.written_tables import FORMS, ncu
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

_LINES = FILES["ncu.csv"].splitlines()


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    if isinstance(case, Example):
        return case.inputs
    rng = random.Random(int(torch.randint(2**31, (), generator=generator)))
    return {"text": ncu(rng, case["form"], case["kernels"], case["processes"])}


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    """A number of the file in float64, times a factor."""
    return Tolerance(tolerance(torch.float64).rtol, 0.0, "a number of the file times a factor, in float64")


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    return wrong_row(slips.right(inputs["text"]), value, _tolerance(case, inputs), "kernel")


def _fresh(rng: random.Random) -> Case:
    form, processes = rng.choice(FORMS), rng.choice((1, 2))
    return Case("a table that nobody has seen", form=form, kernels=rng.randrange(3, 8), processes=processes)


EXERCISE = Exercise(
    id="13.read_ncu",
    title="Tables of Nsight Compute",
    parameters=("text",),
    kind="host",
    inputs=_inputs,
    reference=slips.right,
    judge=_judge,
    tolerance=_tolerance,
    dtype=lambda inputs: None,
    cases=(
        Example("the example of the docstring: one kernel, long", text=FILES["ncu.csv"]),
        Example("the same kernel in the wide form", text=FILES["ncu_wide.csv"]),
        Case("long: units change from row to row, the program prints in between", form="long", kernels=5, processes=1),
        Case(
            "long, with rows of rules and columns of ranges", form="long, with rules and ranges", kernels=4, processes=1
        ),
        Case("long, of two processes, each of which counts from 0", form="long", kernels=4, processes=2),
        Case("long, as in 2020: no sizes, and another column in between", form="long, old", kernels=4, processes=1),
        Case("wide, with columns of ranges, of two processes", form="wide, with ranges", kernels=4, processes=2),
        Example("one metric of one kernel", text="\n".join([*_LINES[:5], _LINES[-1]])),
        Example("nothing was profiled", text=f"{_LINES[0]}\n==WARNING== No kernels were profiled.\n"),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "header_is_the_fourth_line",
            slips.header_is_the_fourth_line,
            "The header was looked for in a fixed line. How much is printed before it differs from run to run. It is "
            'the first line that begins with "ID" in quotes.',
        ),
        Misconception(
            "from_the_first_line",
            slips.from_the_first_line,
            "The table was read from the first line of the text on. ==PROF== lines stand before it: begin at the "
            "header.",
        ),
        Misconception(
            "prof_lines_only",
            slips.prof_lines_only,
            "Lines with == were skipped, and what the program itself prints was read as rows. Rows of ncu begin with a "
            "quote, all others go.",
        ),
        Misconception(
            "split_at_commas",
            slips.split_at_commas,
            "Lines were split at each comma. Names of kernels, sizes and large numbers hold commas between quotes: the "
            "csv module knows quotes.",
        ),
        Misconception(
            "number_until_the_comma",
            slips.number_until_the_comma,
            "Numbers were cut at their first comma: 12,582,912 became 12. These commas separate thousands: take them "
            "out.",
        ),
        Misconception(
            "no_units",
            slips.no_units,
            "Values came back as they stand. 11.6 us are 11,600 ns, 12.5 Mbyte are 12,500,000 bytes: the unit is "
            "part of the value.",
        ),
        Misconception(
            "bytes_only",
            slips.bytes_only,
            "Bytes were converted, times were not: us, ms and second are no ns.",
        ),
        Misconception(
            "times_only",
            slips.times_only,
            "Times were converted, bytes were not: Kbyte, Mbyte, Gbyte.",
        ),
        Misconception(
            "long_words_only",
            slips.long_words_only,
            "usecond and msecond were converted, us and ms were not. Versions of ncu write either.",
        ),
        Misconception(
            "two_to_the_ten",
            slips.two_to_the_ten,
            "A Kbyte of ncu is 1,000 bytes, not 1,024: its units scale by thousands.",
        ),
        Misconception(
            "missing_is_zero",
            slips.missing_is_zero,
            "n/a and an empty cell became 0. A counter that could not be read is not a counter that read 0: None.",
        ),
        Misconception(
            "missing_is_left_out",
            slips.missing_is_left_out,
            "A metric without a value was left out. It was asked for: its name stays, with None.",
        ),
        Misconception(
            "by_name",
            slips.by_name,
            "Launches of one kernel were put together by its name, so the last one has overwritten the others. Each "
            "launch has an ID.",
        ),
        Misconception(
            "by_id_alone",
            slips.by_id_alone,
            "Kernels of two processes were put together: each process counts its IDs from 0. Process ID and ID "
            "together name a launch.",
        ),
        Misconception(
            "unit_of_the_first",
            slips.unit_of_the_first,
            "The unit of a metric was taken from its first row. In the long form each row has its own: us here, ms "
            "there.",
        ),
        Misconception(
            "wide_without_units",
            slips.wide_without_units,
            "In the wide form the units stand in the first row below the header. It was skipped, and nothing "
            "converted.",
        ),
        Misconception(
            "units_are_a_kernel",
            slips.units_are_a_kernel,
            "The row of units came back as a kernel. In the wide form the first row below the header holds units.",
        ),
        Misconception(
            "rules_are_metrics",
            slips.rules_are_metrics,
            "There is a metric without a name. Rows of rules have no metric; their advice stands in other columns: "
            "skip them.",
        ),
        Misconception(
            "grid_and_block_turned",
            slips.grid_and_block_turned,
            "grid and block have changed places. Block Size comes first in the file: read columns by name.",
        ),
    ),
    hints=(
        "Four steps: the lines of the table, its rows as dicts by the names of the header, the form (is there a column "
        "Metric Name?), then kernels by (Process ID, ID) with their metrics.",
        "csv.DictReader takes a list of lines, and gives each row as a dict. One table for units, FACTORS = {'us': "
        "1e3, 'usecond': 1e3, ..., 'Mbyte': 1e6}, and FACTORS.get(unit, 1) for all others. In the wide form the "
        "first dict holds the units by metric.",
        "rows = list(csv.DictReader(line for line in text.splitlines() if line.startswith('\"'))); units = rows.pop(0) "
        "where it is wide; value = None if text in ('', 'n/a') else float(text.replace(',', '')) * FACTORS.get(unit, "
        "1); found.setdefault((row['Process ID'], row['ID']), {...})['metrics'][name] = value.",
    ),
    explanation=(
        "The table is csv, and the text around it is not: program and profiler share one stream. Reading by the "
        "names of the header survives versions, ranges and rules; a position does not. The key of a launch is "
        "process and ID, because names repeat. Values have units of their own, row by row, in thousands; dropping "
        "them makes a kernel 1,000 times as fast as it is. And what was not measured stays None, so that no later "
        "sum takes it for 0. pandas reads the same lines with read_csv(io.StringIO(...), thousands=','), where the "
        "column is one of numbers."
    ),
)
