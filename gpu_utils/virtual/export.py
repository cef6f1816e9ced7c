"""Launches as the CSV files of the vendors' profilers.

    rocprof_counters_csv(gpu.launches)           # as `rocprofv3 --pmc ... --output-format csv`, AMD targets
    rocprof_trace_csv(gpu.launches)              # as `rocprofv3 --kernel-trace`
    ncu_csv(gpu.launches)                        # as `ncu --csv`, NVIDIA targets
    ncu_csv(gpu.launches, wide=True)             # as `ncu --csv --page raw`

Each file says that a virtual GPU made it: rocprofv3's as the name of the agent, ncu's as the names of process and host,
with ==PROF== lines, which readers skip, for what differs from a device (`gpu_utils.virtual.vendor_counters`). There is
no clock: timestamps are 0 and no duration is written, unless `times` gives modelled ones, which the files then say.

Columns: ROCm rocprofiler-sdk docs and Nsight Compute CLI docs.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any, cast

from gpu_utils.errors import BadArgument
from gpu_utils.virtual.amdgcn.info import AmdInfo
from gpu_utils.virtual.vendor_counters import Counter, number, vendor_counters

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


Times = Sequence[tuple[int, int]]
"""Start and end of each launch, modelled, in ns."""


def rocprof_counters_csv(launches: Iterable[Any], times: Times = ()) -> str:
    """One row for each dispatch and counter, in the columns of rocprofv3's counter collection."""
    rows = []
    for row in _dispatches(launches, times):
        for counter in vendor_counters(row["launch"]):
            rows.append({**row, "Counter_Name": counter.name, "Counter_Value": f"{counter.value:.6f}"})
    return _csv(ROCPROF_COUNTER_COLUMNS, rows, csv.QUOTE_NONNUMERIC)


def rocprof_trace_csv(launches: Iterable[Any], times: Times = ()) -> str:
    """One row for each dispatch, in the columns of rocprofv3's kernel trace."""
    return _csv(ROCPROF_TRACE_COLUMNS, _dispatches(launches, times), csv.QUOTE_NONNUMERIC)


def ncu_csv(launches: Iterable[Any], times: Times = (), *, wide: bool = False) -> str:
    """`ncu --csv`: one row for each launch and metric; wide: `--page raw`, one for each launch, and one with units.

    ==PROF== lines first say what differs from a device.
    """
    chosen = _only(launches, "ptx", "Nsight Compute")
    measured = [[*_duration(times, at), *vendor_counters(launch)] for at, launch in enumerate(chosen)]
    units = {counter.name: counter.unit for counters in measured for counter in counters}
    notes = {counter.name: counter.differs for counters in measured for counter in counters if counter.differs}
    heads = [_ncu_head(at, launch) for at, launch in enumerate(chosen)]
    if wide:
        columns = (*NCU_COLUMNS[:-4], *units)
        rows: list[dict[str, Any]] = [units]
        rows += [
            {**head, **{counter.name: number(counter.value) for counter in counters}}
            for head, counters in zip(heads, measured, strict=True)
        ]
    else:
        columns = NCU_COLUMNS
        rows = [
            {
                **head,
                "Section Name": "Command line profiler metrics",
                "Metric Name": counter.name,
                "Metric Unit": counter.unit,
                "Metric Value": number(counter.value),
            }
            for head, counters in zip(heads, measured, strict=True)
            for counter in counters
        ]
    said = [f"==PROF== virtual GPU, not a device: {name}: {why}\n" for name, why in notes.items()]
    return "".join(said) + _csv(columns, rows, csv.QUOTE_ALL)


def _duration(times: Times, at: int) -> list[Counter]:
    modelled = "modelled from counters, not measured"
    return [Counter("gpu__time_duration.sum", "ns", times[at][1] - times[at][0], modelled)] if times else []


def _ncu_head(at: int, launch: Any) -> dict[str, Any]:
    return {
        "ID": at,
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
    }


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


def _triple(sizes: tuple[int, ...]) -> str:
    return f"({sizes[0]}, {sizes[1]}, {sizes[2]})"


def _dispatches(launches: Iterable[Any], times: Times) -> list[dict[str, Any]]:
    """What both of rocprofv3's files say of each dispatch, and its launch; Grid_Size counts work-items."""
    chosen = _only(launches, "amdgcn", "rocprofv3")
    return [_dispatch(at, launch, times[at] if times else (0, 0)) for at, launch in enumerate(chosen)]


def _dispatch(at: int, launch: Any, time: tuple[int, int]) -> dict[str, Any]:
    items = [grid * block for grid, block in zip(launch.grid, launch.block, strict=True)]
    notes = cast(AmdInfo, launch.program.info).notes
    known = {
        "Kind": "KERNEL_DISPATCH",
        "Agent_Id": f"virtual {launch.target}",
        "Queue_Id": 1,
        "Stream_Id": 0,
        "Process_Id": 0,
        "Thread_Id": 0,
        "launch": launch,
        "Dispatch_Id": at + 1,
        "Correlation_Id": at + 1,
        "Kernel_Id": at + 1,
        "Kernel_Name": launch.name,
        "Start_Timestamp": time[0],
        "End_Timestamp": time[1],
        "LDS_Block_Size": launch.shared_bytes,
        "Scratch_Size": notes.get("private_segment_fixed_size", 0),
        "VGPR_Count": notes.get("vgpr_count", 0) - notes.get("agpr_count", 0),  # LLVM's count holds both
        "Accum_VGPR_Count": notes.get("agpr_count", 0),
        "SGPR_Count": notes.get("sgpr_count", 0),
        "Grid_Size": items[0] * items[1] * items[2],
        "Workgroup_Size": launch.block[0] * launch.block[1] * launch.block[2],
    }
    for axis, item, block in zip("XYZ", items, launch.block, strict=True):
        known[f"Grid_Size_{axis}"], known[f"Workgroup_Size_{axis}"] = item, block
    return known
