"""Tables as ncu and rocprofv3 write them, made up: valid files in several forms, with what is around them.

There is no GPU behind them. Headers as in the tools' own files; see the unit's lesson for the sources.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import random
from collections.abc import Iterable
from typing import Any

from gpu_utils.exercises.u13_profiling.written import names, shape

FORMS = ("long", "long, with rules and ranges", "long, old", "wide", "wide, with ranges")
_WHO = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream")
_SHAPES = ("Block Size", "Grid Size", "Device", "CC")
_RANGES = ("thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg", "Id:Domain:Start/Stop_Range")
_METRIC = ("Section Name", "Metric Name", "Metric Unit", "Metric Value")
_RULE = ("Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup")

METRICS = {
    "gpu__time_duration.sum": "time",
    "dram__bytes_read.sum": "bytes",
    "dram__bytes_write.sum": "bytes",
    "dram__bytes.sum.per_second": "Gbyte/second",
    "dram__cycles_elapsed.avg.per_second": "cycle/nsecond",
    "launch__shared_mem_per_block_dynamic": "Kbyte/block",
    "lts__t_sectors.sum": "sector",
    "smsp__inst_executed.sum": "inst",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "%",
    "sm__cycles_elapsed.max": "cycle",
    "launch__registers_per_thread": "register/thread",
    "lts__t_sector_hit_rate.pct": "",
}
"""Full names of ncu's metrics -> what they are in."""

SCALES = {
    "time": {"ns": 1, "nsecond": 1, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9},
    "bytes": {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9},
}
_NOISE = (
    'step 3, loss 2.914, "best so far"',
    "",
    "Saved model.pt, 12,582,912 bytes",
    '==WARNING== a, "b", c',
    "0,4242,done",
)
_QUOTED = ('wrote "a","b","c" to out.csv', '  "1","4242","indented"')
"""The program prints commas between quotes too, on lines that do not begin with a quote."""


def _table(rows: Iterable[Iterable[Any]], quoting: Any = csv.QUOTE_ALL) -> list[str]:
    """Lines of csv; QUOTE_NONNUMERIC leaves numbers without quotes, as rocprofv3 does."""
    out = io.StringIO()
    csv.writer(out, quoting=quoting, lineterminator="\n").writerows(rows)
    return out.getvalue().splitlines()


def ncu(rng: random.Random, form: str, kernels: int = 5, processes: int = 1) -> str:
    """What `ncu --csv` prints. form: of FORMS; kernels: of each process, whose IDs all begin at 0."""
    leading = [*_WHO, *_SHAPES]
    if "ranges" in form:
        leading[4:4] = _RANGES
    if "old" in form:
        leading = [*_WHO[:5], "Kernel Time", *_WHO[5:]]
    launched = []
    for process in rng.sample(range(2_000, 9_000), processes):
        for number, name in enumerate(names(rng, kernels)):
            grid, block = shape(rng)
            known = {"ID": number, "Process ID": process, "Process Name": "app, v2", "Host Name": "127.0.0.1"}
            known |= {"Kernel Name": name, "Kernel Time": "2020-Apr-07 17:01:05", "Context": 1, "Stream": 7}
            known |= {"Block Size": str(tuple(block)), "Grid Size": str(tuple(grid)), "Device": 0, "CC": "9.0"}
            launched.append([known.get(column, "") for column in leading])
    rng.shuffle(launched)  # processes print when they end
    table = _wide if form.startswith("wide") else _long
    lines = _table(table(rng, leading, launched, rules="rules" in form))
    for _ in range(4):  # what the program prints comes between, never before the units
        lines.insert(rng.randrange(3, len(lines)), rng.choice(_NOISE))
    for line in (*_QUOTED, _NOISE[0]):
        lines.insert(4, line)
    before = ["==PROF== Connected to process 4242 (/tmp/app)", *_NOISE[: rng.randrange(1, 4)]]
    return "\n".join([*before, *lines, "==PROF== Disconnected from process 4242", ""])


def _value(rng: random.Random, kind: str, unit: str) -> str:
    """A number as ncu writes it in this unit."""
    if kind == "time":
        return f"{rng.randrange(2_000_000, 90_000_000) / SCALES[kind][unit]:,.{0 if unit[0] == 'n' else 6}f}"
    if kind == "bytes":
        return f"{rng.randrange(1_000_000, 2_000_000_000) / SCALES[kind][unit]:,.{0 if unit == 'byte' else 6}f}"
    if kind in ("Gbyte/second", "cycle/nsecond", "Kbyte/block"):
        return f"{rng.uniform(1, 3000):,.6f}"
    if kind in ("%", ""):
        return f"{rng.uniform(1, 99):.2f}"
    return f"{rng.randrange(16, 256)}" if kind == "register/thread" else f"{rng.randrange(1_000_000, 2_000_000_000):,}"


def _long(rng: random.Random, leading: list[str], launched: list[list[Any]], rules: bool) -> Iterable[list[Any]]:
    """A row for each metric of each kernel; units differ from row to row, one value in each kernel is not there."""
    yield [*leading, *_METRIC, *(_RULE if rules else ())]
    for at, row in enumerate(launched):
        missing = rng.choice(list(METRICS)[1:])
        for number, (metric, kind) in enumerate(METRICS.items()):
            unit = _unit(kind, at + 4 * rules)
            value = ("n/a", "")[at % 2] if metric == missing else _value(rng, kind, unit)
            yield [*row, "Command line profiler metrics", metric, unit, value, *([""] * len(_RULE) if rules else ())]
            if rules and number % 4 == 1:
                rule = ["DRAM", "OPT", "Memory is used more than compute, so look there.", "global", "12.5"]
                yield [*row, "SpeedOfLight", "", "", "", *(rule if at % 2 else rule[:-1])]


def _unit(kind: str, at: int) -> str:
    """Units take turns: two kernels in a row never have the same one."""
    turns = {
        "time": ("us", "msecond", "s", "nsecond", "usecond", "ms", "second", "ns"),
        "bytes": ("Kbyte", "Mbyte", "Gbyte", "byte"),
    }
    return turns[kind][at % len(turns[kind])] if kind in turns else kind


def _wide(rng: random.Random, leading: list[str], launched: list[list[Any]], rules: bool) -> Iterable[list[Any]]:
    """A row for each kernel, a column for each metric, units in the row below the header."""
    units = {metric: _unit(kind, rng.randrange(2)) for metric, kind in METRICS.items()}
    yield [*leading, *METRICS]
    yield [*[""] * len(leading), *units.values()]
    for at, row in enumerate(launched):
        missing = rng.choice(list(METRICS)[1:])
        values = [_value(rng, kind, units[metric]) for metric, kind in METRICS.items()]
        yield [*row, *(("n/a", "")[at % 2] if m == missing else v for m, v in zip(METRICS, values, strict=True))]


# --- rocprofv3 ------------------------------------------------------------------------------------------------------

GENERATIONS = ("now", "2024", "2024, without Dispatch_Id")
_NOW = (
    *("Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id", "Kernel_Name"),
    *("Correlation_Id", "Start_Timestamp", "End_Timestamp", "LDS_Block_Size", "Scratch_Size", "VGPR_Count"),
    *("Accum_VGPR_Count", "SGPR_Count"),
)
_2024 = (
    *("Kind", "Agent_Id", "Queue_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id", "Kernel_Name", "Correlation_Id"),
    *("Start_Timestamp", "End_Timestamp", "Private_Segment_Size", "Group_Segment_Size"),
)
_AXES = [f"{what}_Size_{axis}" for what in ("Workgroup", "Grid") for axis in "XYZ"]
_COUNTED = (
    *("Correlation_Id", "Dispatch_Id", "Agent_Id", "Queue_Id", "Process_Id", "Thread_Id", "Grid_Size", "Kernel_Id"),
    *("Kernel_Name", "Workgroup_Size", "LDS_Block_Size", "Scratch_Size", "VGPR_Count", "Accum_VGPR_Count"),
    *("SGPR_Count", "Counter_Name", "Counter_Value"),
)
_TIMES = ("Start_Timestamp", "End_Timestamp")
COUNTERS = ("SQ_WAVES", "FETCH_SIZE", "SQ_INSTS_VALU", "WRITE_SIZE", "GRBM_GUI_ACTIVE")


def rocprof(rng: random.Random, generation: str, dispatches: int = 7) -> tuple[str, str]:
    """A kernel trace and a counter collection of rocprofv3. generation: of GENERATIONS; dispatches: 7 to 15.

    The first one ends 5 ns before its start, the third one never ended, the fourth and the fifth come from one call,
    the fifth has no counters, the last but one is not in the trace, and the counters of the second stand there twice.
    """
    columns = [*(_NOW if generation == "now" else _2024), *_AXES]
    if "without" in generation:
        columns = [column for column in columns if column not in ("Dispatch_Id", "Thread_Id")]
    launched = [_dispatch(rng, number, name, generation) for number, name in enumerate(names(rng, dispatches), 1)]
    if "without" not in generation:  # a graph: one call of the host, two dispatches
        launched[4]["Correlation_Id"] = launched[3]["Correlation_Id"]
    launched[2] |= {"End_Timestamp": 0}
    launched[0] |= {"End_Timestamp": launched[0]["Start_Timestamp"] - 5}
    traced = [one for one in launched if one is not launched[-2]]
    rng.shuffle(traced)
    collected = list(_COUNTED) if generation != "now" else [*_COUNTED, *_TIMES]
    if generation != "now":
        collected.remove("Accum_VGPR_Count")
    rows = [row for one in rng.sample(launched, len(launched)) for row in _counted(rng, one)]
    rows += [row for row in rows if row["Dispatch_Id"] == 2]  # the output of one process, put in twice
    tables = ((columns, traced), (collected, rows))
    texts = [_table([c, *([row[name] for name in c] for row in r)], csv.QUOTE_NONNUMERIC) for c, r in tables]
    return "\n".join([*texts[0], ""]), "\n".join([*texts[1], ""])


def _dispatch(rng: random.Random, number: int, name: str, generation: str) -> dict[str, Any]:
    blocks, block = shape(rng)
    if number % 3 == 1:
        block = [rng.choice((16, 24, 40)), rng.choice((3, 5)), 1]
    short = [rng.randrange(0, one) if number % 2 else 0 for one in block]
    grid = [count * one - less for count, one, less in zip(blocks, block, short, strict=True)]
    start = 9_850_000 + number * 40_000 + rng.randrange(1_800) * 16 - 96_000 * (number % 4 == 0) + number % 16
    known = {"Kind": "KERNEL_DISPATCH", "Agent_Id": "Agent 4" if generation == "now" else 4, "Queue_Id": number % 2 + 1}
    known |= {"Stream_Id": 0, "Thread_Id": 100, "Process_Id": 100, "Dispatch_Id": number, "Kernel_Id": 12 + len(name)}
    known |= {"Kernel_Name": name, "Correlation_Id": 3 * number + 4, "Start_Timestamp": start}
    known |= {"End_Timestamp": start + rng.randrange(3_000, 60_000), "VGPR_Count": 32, "SGPR_Count": 16}
    known |= dict.fromkeys(("LDS_Block_Size", "Scratch_Size", "Accum_VGPR_Count"), 0)
    known |= dict.fromkeys(("Private_Segment_Size", "Group_Segment_Size"), 0)
    known |= {"Grid_Size": grid[0] * grid[1] * grid[2], "Workgroup_Size": block[0] * block[1] * block[2]}
    return known | dict(zip(_AXES, [*block, *grid], strict=True))


def _counted(rng: random.Random, dispatch: dict[str, Any]) -> list[dict[str, Any]]:
    """Its rows, a counter each. Counters take turns, so no dispatch has all of them, and the last one has none."""
    number = dispatch["Dispatch_Id"]
    chosen = [name for at, name in enumerate(COUNTERS) if (at + number) % 3] if number % 5 else []
    values = {name: f"{rng.randrange(1, 4_000_000) / (8 if 'SIZE' in name else 1):.6f}" for name in chosen}
    values |= {name: f"{rng.randrange(1, 4_000_000):.8e}" for name in chosen if name.startswith("SQ_INSTS")}
    values |= {name: "0.000000" for name in chosen if name.startswith("GRBM") and number == 1}
    values |= {name: f"{_waves(dispatch)}.000000" for name in chosen if name == "SQ_WAVES"}
    return [dispatch | {"Counter_Name": name, "Counter_Value": _Bare(value)} for name, value in values.items()]


def _waves(dispatch: dict[str, Any]) -> int:
    """Those that a GPU starts: a block that is part full along an axis has fewer threads."""
    axes = []
    for axis in "XYZ":
        whole, rest = divmod(dispatch[f"Grid_Size_{axis}"], dispatch[f"Workgroup_Size_{axis}"])
        axes.append([(whole, dispatch[f"Workgroup_Size_{axis}"]), (1, rest)])
    return sum(
        math.prod(count for count, _ in blocks) * -(-math.prod(size for _, size in blocks) // 64)
        for blocks in itertools.product(*axes)
    )


class _Bare(float):
    """A number that csv writes as it was given."""

    def __new__(cls, text: str) -> _Bare:
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__
