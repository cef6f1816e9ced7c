"""Counters of launches as a table and as the CSV files of the vendors' profilers.

    print(table(gpu.last))                       # vendor's name, value, and how ours differs from the device's
    rocprof_counters_csv(gpu.launches)           # as `rocprofv3 --pmc ... --output-format csv`, AMD targets
    rocprof_trace_csv(gpu.launches)              # as `rocprofv3 --kernel-trace`
    ncu_csv(gpu.launches)                        # as `ncu --csv`, NVIDIA targets

Only counters that a device has under the same name are written. AMD targets run the machine code itself, so their
instruction counts are the device's. NVIDIA targets run PTX, which ptxas turns into other instructions: what differs is
said in `Counter.differs`, in the table, and in the ==PROF== lines that a reader of ncu's CSV skips. There is no clock:
timestamps are 0, and nothing that needs time is written. Traffic of memory is there for launches under
`virtual_gpu(target, l2=True)` (gpu_utils.virtual.cache).

Columns: ROCm rocprofiler-sdk docs and Nsight Compute CLI docs. Names: ROCm MI200 performance counters; Nsight Compute's
comparison with nvprof.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

from gpu_utils.errors import BadArgument
from gpu_utils.virtual.amdgcn.info import AmdInfo
from gpu_utils.virtual.cache import l2_traffic

ROCPROF_COUNTER_COLUMNS = (
    "Correlation_Id",
    "Dispatch_Id",
    "Agent_Id",
    "Queue_Id",
    "Process_Id",
    "Thread_Id",
    "Grid_Size",
    "Kernel_Id",
    "Kernel_Name",
    "Workgroup_Size",
    "LDS_Block_Size",
    "Scratch_Size",
    "VGPR_Count",
    "Accum_VGPR_Count",
    "SGPR_Count",
    "Counter_Name",
    "Counter_Value",
    "Start_Timestamp",
    "End_Timestamp",
)
ROCPROF_TRACE_COLUMNS = (
    "Kind",
    "Agent_Id",
    "Queue_Id",
    "Stream_Id",
    "Thread_Id",
    "Dispatch_Id",
    "Kernel_Id",
    "Kernel_Name",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
    "LDS_Block_Size",
    "Scratch_Size",
    "VGPR_Count",
    "Accum_VGPR_Count",
    "SGPR_Count",
    "Workgroup_Size_X",
    "Workgroup_Size_Y",
    "Workgroup_Size_Z",
    "Grid_Size_X",
    "Grid_Size_Y",
    "Grid_Size_Z",
)
NCU_COLUMNS = (
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
    "Section Name",
    "Metric Name",
    "Metric Unit",
    "Metric Value",
)


@dataclass(frozen=True)
class Counter:
    """One value under the vendor's name. differs: "" where it is what a device counts, else one sentence."""

    name: str
    unit: str
    value: float
    differs: str = ""


_PTX = "counts PTX instructions; ptxas turns them into others"
_REQUEST = "distinct sectors of the whole warp; the device may split a wide access into several passes"
_MODEL = "from the L2 model: cold cache, no first-level cache, dirty lines written back at the end"
_BANKS = (
    "bank cycles beyond one per group of lanes, with lanes grouped in order; the device groups some widths otherwise"
)
_MIXED = "all f8f6f4 instructions, also on 8-bit inputs: no source says where a device files those"
_LINES = "distinct cache lines of each wavefront instruction"

_MOPS = (  # what a matrix instruction's name says of its inputs -> suffix of SQ_INSTS_VALU_MFMA_MOPS_
    ("_xf32", "XF32"),
    ("fp8_", "F8"),
    ("bf8_", "BF8"),
    ("f8f6f4", "F6F4"),
    ("bf16", "BF16"),
    ("f16", "F16"),
    ("i8", "I8"),
    ("f64", "F64"),
    ("f32", "F32"),
)
_MOPS_OF = {"fp8": ("F8", "BF8"), "f8f6f4": ("F6F4",)}  # inputs of a target's row; others bear their own name


def vendor_counters(launch: Any) -> list[Counter]:
    """The counters of a launch under the names that its vendor's profiler uses."""
    return _nvidia(launch) if launch.chip.isa == "ptx" else _amd(launch)


def table(launch: Any) -> str:
    """Name, value, unit of each counter, with a line below where ours differs from the device's."""
    rows = vendor_counters(launch)
    wide = max(len(row.name) for row in rows)
    lines = []
    for row in rows:
        lines.append(f"{row.name:<{wide}}  {_number(row.value):>16} {row.unit}".rstrip())
        if row.differs:
            lines.append(f"    {row.differs}")
    return "\n".join(lines)


def rocprof_counters_csv(launches: Iterable[Any]) -> str:
    """One row for each dispatch and counter, in the columns of rocprofv3's counter collection."""
    rows = []
    for number, launch in enumerate(_only(launches, "amdgcn", "rocprofv3"), 1):
        shared = _dispatch(number, launch)
        for counter in vendor_counters(launch):
            rows.append({**shared, "Counter_Name": counter.name, "Counter_Value": f"{counter.value:.6f}"})
    return _csv(ROCPROF_COUNTER_COLUMNS, rows, csv.QUOTE_NONNUMERIC)


def rocprof_trace_csv(launches: Iterable[Any]) -> str:
    """One row for each dispatch, in the columns of rocprofv3's kernel trace."""
    rows = [_dispatch(number, launch) for number, launch in enumerate(_only(launches, "amdgcn", "rocprofv3"), 1)]
    return _csv(ROCPROF_TRACE_COLUMNS, rows, csv.QUOTE_NONNUMERIC)


def ncu_csv(launches: Iterable[Any]) -> str:
    """One row for each launch and metric, in the long form of `ncu --csv`; ==PROF== lines first say what differs."""
    rows, notes = [], {}
    for number, launch in enumerate(_only(launches, "ptx", "Nsight Compute")):
        for counter in vendor_counters(launch):
            if counter.differs:
                notes[counter.name] = counter.differs
            rows.append(
                {
                    "ID": number,
                    "Process ID": 0,
                    "Process Name": "virtual",
                    "Host Name": "virtual",
                    "Kernel Name": launch.name,
                    "Context": 1,
                    "Stream": 7,
                    "Block Size": _triple(launch.block),
                    "Grid Size": _triple(launch.grid),
                    "Device": 0,
                    "CC": f"{launch.target[3:-1]}.{launch.target[-1]}",
                    "Section Name": "Command line profiler metrics",
                    "Metric Name": counter.name,
                    "Metric Unit": counter.unit,
                    "Metric Value": _number(counter.value),
                }
            )
    said = [f"==PROF== virtual GPU, not a device: {name}: {why}\n" for name, why in notes.items()]
    return "".join(said) + _csv(NCU_COLUMNS, rows, csv.QUOTE_ALL)


def _only(launches: Iterable[Any], isa: str, tool: str) -> list[Any]:
    chosen = list(launches)
    for launch in chosen:
        if isa != launch.chip.isa:
            raise BadArgument(
                f"{launch.name} ran on {launch.target}, and {tool} does not profile that; take its launches out"
            )
    return chosen


def _csv(columns: tuple[str, ...], rows: list[dict[str, Any]], quoting: Any) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, quoting=quoting, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _number(value: float) -> str:
    """With thousands separators, as ncu writes.

    >>> _number(1234567), _number(12.5)
    ('1,234,567', '12.50')
    """
    return f"{int(value):,}" if value == int(value) else f"{value:,.2f}"


def _triple(sizes: tuple[int, ...]) -> str:
    return f"({sizes[0]}, {sizes[1]}, {sizes[2]})"


def _dispatch(number: int, launch: Any) -> dict[str, Any]:
    """What both of rocprofv3's files say of a dispatch; Grid_Size counts work-items."""
    items = [grid * block for grid, block in zip(launch.grid, launch.block, strict=True)]
    notes = cast(AmdInfo, launch.program.info).notes
    known = {
        "Kind": "KERNEL_DISPATCH",
        "Agent_Id": "Agent 0",
        "Queue_Id": 1,
        "Stream_Id": 0,
        "Process_Id": 0,
        "Thread_Id": 0,
        "Dispatch_Id": number,
        "Correlation_Id": number,
        "Kernel_Id": number,
        "Kernel_Name": launch.name,
        "Start_Timestamp": 0,
        "End_Timestamp": 0,
        "LDS_Block_Size": launch.shared_bytes,
        "Scratch_Size": notes.get("private_segment_fixed_size", 0),
        "VGPR_Count": notes.get("vgpr_count", 0),
        "Accum_VGPR_Count": notes.get("agpr_count", 0),
        "SGPR_Count": notes.get("sgpr_count", 0),
        "Grid_Size": items[0] * items[1] * items[2],
        "Workgroup_Size": launch.block[0] * launch.block[1] * launch.block[2],
    }
    for axis, item, block in zip("XYZ", items, launch.block, strict=True):
        known[f"Grid_Size_{axis}"], known[f"Workgroup_Size_{axis}"] = item, block
    return known


class _Tally:
    """Sums over the instructions of a launch that a pattern of mnemonics chooses."""

    def __init__(self, launch: Any) -> None:
        self.counters, self.ops = launch.counters, launch.program.ops
        self.per_op = self.counters.per_op()

    def waves(self, pattern: str, kinds: tuple[str, ...] = ()) -> int:
        """Wave instructions."""
        match = re.compile(pattern).match
        return sum(
            self.per_op[op.index][0] for op in self.ops if match(op.mnemonic) and (not kinds or op.kind in kinds)
        )

    def access(self, table: dict[int, Any], pattern: str, value: Callable[[Any], int]) -> int:
        """A sum over memory accesses."""
        match = re.compile(pattern).match
        return sum(value(access) for at, access in table.items() if match(self.ops[at].mnemonic))


def _conflicts(access: Any) -> int:
    return access.transactions - access.ideal


def _transactions(access: Any) -> int:
    return access.transactions


def _amd(launch: Any) -> list[Counter]:
    tally, counters = _Tally(launch), launch.counters
    loads, stores = r"(global|flat|buffer|scratch)_load", r"(global|flat|buffer|scratch)_(store|atomic)"
    found = [
        Counter("SQ_WAVES", "waves", counters.launched_waves),
        Counter("SQ_INSTS_VALU", "instructions", tally.waves(r"v_")),
        Counter("SQ_INSTS_SALU", "instructions", tally.waves(r"s_", ("scalar", "move"))),
        Counter("SQ_INSTS_SMEM", "instructions", tally.waves(r"s_(buffer_)?load")),
        Counter("SQ_INSTS_LDS", "instructions", tally.waves(r"ds_")),
        Counter("SQ_INSTS_BRANCH", "instructions", tally.waves(r"s_c?branch")),
    ]
    if "mfma" in launch.chip.matrix:
        found += [
            Counter("SQ_INSTS_VMEM_RD", "instructions", tally.waves(loads)),
            Counter("SQ_INSTS_VMEM_WR", "instructions", tally.waves(stores)),
            Counter("SQ_INSTS_MFMA", "instructions", tally.waves(r"v_s?mfma")),
        ]
        flops = dict.fromkeys((name for kind in launch.chip.inputs for name in _MOPS_OF.get(kind, (kind.upper(),))), 0)
        for op in tally.ops:
            if op.flops:
                flops[_input_format(op.mnemonic)] += op.flops * tally.per_op[op.index][0]
        found += [
            Counter(f"SQ_INSTS_VALU_MFMA_MOPS_{kind}", "512 operations", n / 512, _MIXED if kind == "F6F4" else "")
            for kind, n in flops.items()
        ]
        lines = tally.access(counters.globals, r"", _transactions)
        found.append(Counter("TCP_TOTAL_CACHE_ACCESSES_sum", "lines", lines, _LINES))
    conflicts = tally.access(counters.shareds, r"", _conflicts)
    found.append(Counter("SQ_LDS_BANK_CONFLICT", "cycles", conflicts, _BANKS))
    if counters.record is not None:
        traffic = l2_traffic(launch)
        found += [
            Counter("FETCH_SIZE", "KB", traffic.read_bytes / 1024, _MODEL),
            Counter("WRITE_SIZE", "KB", traffic.written_bytes / 1024, _MODEL),
        ]
    return found


def _input_format(mnemonic: str) -> str:
    """The suffix of the MOPS counter for a matrix instruction.

    >>> [_input_format(f"v_mfma_f32_{shape}") for shape in ("32x32x8_bf16_1k", "32x32x2_f32", "16x16x32_fp8_bf8")]
    ['BF16', 'F32', 'F8']
    """
    inputs = re.sub(r"^v_(s?mfma)(_scale)?_[a-z]+\d+_", "", mnemonic)
    return next(suffix for part, suffix in _MOPS if part in inputs or inputs.endswith(part))


def _nvidia(launch: Any) -> list[Counter]:
    tally, counters = _Tally(launch), launch.counters
    load, store = r"(ld|ldu)(?!.*(shared|local|param))", r"st(?!.*(shared|local|param|async|matrix))"
    requests = [
        ("ld", load),
        ("st", store),
        ("atom", r"atom(?!.*shared)"),
        ("red", r"red(?!ux)(?!.*(shared|async))"),
        ("ldgsts", r"cp\.async\.c[ag]"),
    ]
    found = [
        Counter("smsp__warps_launched.sum", "warp", counters.launched_waves),
        Counter("smsp__inst_executed.sum", "inst", sum(counters.instructions().values()), _PTX),
        Counter("smsp__thread_inst_executed_per_inst_executed.ratio", "", counters.lane_utilisation() * 32, _PTX),
        Counter("sm__inst_executed_pipe_tensor.sum", "inst", tally.waves(r"(wg)?mma", ("matrix",)), _PTX),
    ]
    for name, pattern in requests:
        waves = tally.access(counters.globals, pattern, lambda access: access.waves)
        sectors = tally.access(counters.globals, pattern, _transactions)
        if name != "ldgsts":  # an H100 leaves out an instruction whose lanes are all off
            found.append(Counter(f"smsp__inst_executed_op_global_{name}.sum", "inst", waves))
        found.append(Counter(f"l1tex__t_requests_pipe_lsu_mem_global_op_{name}.sum", "request", waves))
        found.append(Counter(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{name}.sum", "sector", sectors, _REQUEST))
    for name, pattern in (("ld", r"ld"), ("st", r"st")):
        conflicts = tally.access(counters.shareds, pattern, _conflicts)
        found.append(Counter(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{name}.sum", "", conflicts, _BANKS))
    if counters.record is not None:
        traffic = l2_traffic(launch)
        found += [
            Counter("dram__bytes_read.sum", "byte", traffic.read_bytes, _MODEL),
            Counter("dram__bytes_write.sum", "byte", traffic.written_bytes, _MODEL),
            Counter("dram__bytes.sum", "byte", traffic.bytes, _MODEL),
        ]
    return found
