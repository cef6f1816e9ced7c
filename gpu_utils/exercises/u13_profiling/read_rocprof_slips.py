"""Readings of rocprofv3's tables with one mistake each, and the right one. They run wherever an answer runs."""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Any

Row = dict[str, str]
Rows = list[dict[str, Any]]
Values = dict[str, float]
KIB = 1024
TRAFFIC = {"FETCH_SIZE": "read", "WRITE_SIZE": "written"}


def _rows(text: str) -> list[Row]:
    return list(csv.DictReader(text.splitlines()))


def _ceil(grid: list[int], block: list[int]) -> list[int]:
    return [-(-whole // part) for whole, part in zip(grid, block, strict=True)]


def floor(grid: list[int], block: list[int]) -> list[int]:
    return [whole // part for whole, part in zip(grid, block, strict=True)]


def one_more(grid: list[int], block: list[int]) -> list[int]:
    return [whole // part + 1 for whole, part in zip(grid, block, strict=True)]


def as_it_is(grid: list[int], block: list[int]) -> list[int]:
    return grid


def _product(numbers: list[int]) -> int:
    return numbers[0] * numbers[1] * numbers[2]


def flat(grid: list[int], block: list[int]) -> list[int]:
    """Blocks of the whole, as if a grid had one axis."""
    return [-(-_product(grid) // _product(block)), 1, 1]


def _of_blocks(blocks: list[int], grid: list[int], block: list[int]) -> int:
    return _product(blocks) * -(-_product(block) // 64)


def of_32(blocks: list[int], grid: list[int], block: list[int]) -> int:
    return _product(blocks) * -(-_product(block) // 32)


def of_the_grid(blocks: list[int], grid: list[int], block: list[int]) -> int:
    return -(-_product(grid) // 64)


def of_all_threads(blocks: list[int], grid: list[int], block: list[int]) -> int:
    """Blocks share waves."""
    return -(-_product(blocks) * _product(block) // 64)


def full_waves(blocks: list[int], grid: list[int], block: list[int]) -> int:
    return _product(blocks) * (_product(block) // 64)


def _key(trace: list[Row], row: Row) -> str:
    """By dispatch where the trace has one, else by correlation."""
    return row["Dispatch_Id" if trace and "Dispatch_Id" in trace[0] else "Correlation_Id"]


def by_correlation(trace: list[Row], row: Row) -> str:
    return row["Correlation_Id"]


def by_name(trace: list[Row], row: Row) -> str:
    return row["Kernel_Name"]


def _set(values: Values, name: str, value: float) -> Values:
    return values | {name: value}


def added(values: Values, name: str, value: float) -> Values:
    return values | {name: values.get(name, 0.0) + value}


def the_last_row(values: Values, name: str, value: float) -> Values:
    return {name: value}


def reading(
    blocks: Callable[[list[int], list[int]], list[int]] = _ceil,
    waves: Callable[[list[int], list[int], list[int]], int] = _of_blocks,
    key: Callable[[list[Row], Row], str] = _key,
    put: Callable[[Values, str, float], Values] = _set,
    fetch: float = KIB,
    write: float = KIB,
    unknown: Any = None,
    impossible: str = "None",
    counted_only: bool = False,
    order: str = "start",
    raw: bool = False,
) -> Callable[[str, str], Rows]:
    """An answer.

    blocks        from a grid in work-items and a block in threads; waves: from blocks, grid and block
    key           what ties a row of counters to a dispatch; put: what becomes of a counter that comes
    fetch, write  bytes of one of FETCH_SIZE and WRITE_SIZE; unknown: what stands where they are not there
    impossible    the duration of a dispatch that ends before it starts: "None", "kept", "left out"
    counted_only  dispatches without counters are left out
    order         "start", "file" or "dispatch"
    raw           FETCH_SIZE and WRITE_SIZE stay among the counters too
    """

    def read_rocprof(trace: str, counters: str) -> Rows:
        traced = _rows(trace)
        values: dict[str, Values] = {}
        for row in _rows(counters):
            of = key(traced, row)
            values[of] = put(values.get(of, {}), row["Counter_Name"], float(row["Counter_Value"]))
        rows: Rows = []
        for row in traced:
            start, end = int(row["Start_Timestamp"]), int(row["End_Timestamp"])
            grid, block = ([int(row[f"{what}_Size_{axis}"]) for axis in "XYZ"] for what in ("Grid", "Workgroup"))
            mine = values.get(key(traced, row), {})
            if (counted_only and not mine) or (impossible == "left out" and end < start):
                continue
            count = blocks(grid, block)
            rows.append(
                {
                    "kernel": row["Kernel_Name"],
                    "start": start,
                    "duration": end - start if end >= start or impossible == "kept" else None,
                    "grid": count,
                    "block": block,
                    "waves": waves(count, grid, block),
                    "read": mine["FETCH_SIZE"] * fetch if "FETCH_SIZE" in mine else unknown,
                    "written": mine["WRITE_SIZE"] * write if "WRITE_SIZE" in mine else unknown,
                    "counters": {name: value for name, value in mine.items() if raw or name not in TRAFFIC},
                }
            )
        if order == "start":
            rows.sort(key=lambda made: made["start"])
        elif order == "dispatch":
            known = {int(row["Start_Timestamp"]): int(row.get("Dispatch_Id", row["Correlation_Id"])) for row in traced}
            rows.sort(key=lambda made: known[made["start"]])
        return rows

    return read_rocprof


def in_order(trace: str, counters: str) -> Rows:
    """The first dispatch of the counters' file belongs to the first row of the trace, and so on."""
    rows = right(trace, counters)
    groups: dict[str, Values] = {}
    for row in _rows(counters):
        groups.setdefault(row["Dispatch_Id"], {})[row["Counter_Name"]] = float(row["Counter_Value"])
    starts = [int(row["Start_Timestamp"]) for row in _rows(trace)]
    own = dict(zip(starts, groups.values(), strict=False))
    for made in rows:
        values = own.get(made["start"], {})
        for name, field in TRAFFIC.items():
            made[field] = values[name] * KIB if name in values else None
        made["counters"] = {name: value for name, value in values.items() if name not in TRAFFIC}
    return rows


def by_position(trace: str, counters: str) -> Rows:
    """Columns counted in the header of today, whatever the header says."""
    header = (
        "Kind,Agent_Id,Queue_Id,Stream_Id,Thread_Id,Dispatch_Id,Kernel_Id,Kernel_Name,Correlation_Id,Start_Timestamp,"
        "End_Timestamp,LDS_Block_Size,Scratch_Size,VGPR_Count,Accum_VGPR_Count,SGPR_Count,Workgroup_Size_X,"
        "Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z"
    )
    return right("\n".join([header, *trace.splitlines()[1:]]), counters)


right = reading()
grid_in_work_items = reading(blocks=as_it_is)
whole_blocks_only = reading(blocks=floor)
always_one_more = reading(blocks=one_more)
one_axis = reading(blocks=flat)
waves_of_32 = reading(waves=of_32)
waves_of_the_grid = reading(waves=of_the_grid)
waves_across_blocks = reading(waves=of_all_threads)
whole_waves_only = reading(waves=full_waves)
traffic_as_it_is = reading(fetch=1, write=1)
traffic_in_thousands = reading(fetch=1000, write=1000)
fetch_alone = reading(write=1)
traffic_twice = reading(raw=True)
unknown_is_zero = reading(unknown=0.0)
joined_by_name = reading(key=by_name)
joined_by_correlation = reading(key=by_correlation)
last_counter_only = reading(put=the_last_row)
doubles_added = reading(put=added)
counted_dispatches_only = reading(counted_only=True)
impossible_kept = reading(impossible="kept")
impossible_left_out = reading(impossible="left out")
order_of_the_file = reading(order="file")
order_of_dispatch = reading(order="dispatch")
