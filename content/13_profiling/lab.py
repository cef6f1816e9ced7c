# %% [markdown] top
# # Lab 13: profiling on both vendors
#
# **Nine exercises.** Four read what profilers write, two turn counters into a verdict, one finds six planted faults
# from the files of your own runs, one mends a kernel until its counters are right, and the last says which change made
# a program slower.
#
# - **First**: lesson 13. It has the ideas; each statement says what else it needs.
# - **Time**: four parts. As a guess, not from a stopwatch: 40, 45, 60 and 90 minutes.
# - **Files are texts here**: an answer gets the content of a file, or rows that were read from one, and returns plain
#   data. `json`, `csv`, `re`, `statistics`, NumPy and pandas are allowed.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it.
#   `hint("13.read_trace")` gives three hints of growing strength. `solution("13.read_trace")` asks first.

# %% imports tags=["setup"]
import csv
import json
import math
import re
import statistics
from itertools import pairwise

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils import check, hint, lesson, progress, solution, virtual_gpu

# %% [markdown] part of idle times
# ## Part 1: is the GPU busy?
#
# Two steps. Out of a trace of either vendor you make one row for each kernel; out of spans of time you find when the
# GPU had nothing to do. At the end of the part your two functions look at a program that waits too often.
#
# A dict that you return, here and in all parts, has exactly the keys of its statement, in any order: one more is
# refused like one that is missing.
#
# Here is a tiny trace, such as torch.profiler writes on ROCm, and the example of the first exercise.
#
# <details><summary>Where the form of these files comes from</summary>
#
# All files of this lab are made up in the forms that the tools write: their numbers are invented, and no GPU stands
# behind them. The trace is written by [kineto](https://github.com/pytorch/kineto/tree/main/libkineto/src):
# `output_json.cpp`, for CUDA `CuptiActivity.cpp`, for ROCm `RoctracerActivity_inl.h` and, today,
# `RocprofActivity_inl.h`. That hipExtModuleLaunchKernel is given work-items says HIP's
# [hip_ext.h](https://rocm.docs.amd.com/projects/HIP/en/latest/doxygen/html/hip__ext_8h.html).
#
# </details>

# %% a tiny trace
print(lesson.tiny_file("trace.json"))

# %% [markdown] statement of read_trace
# ## 13.read_trace: one row for each kernel
#
# Write `read_trace(text)`: `text` is a whole trace file of torch.profiler, JSON, from CUDA or ROCm. It returns a list
# of dicts, one for each kernel, **in order of start**:
#
# | field | type | what |
# |---|---|---|
# | `name` | str | of the kernel |
# | `device`, `stream` | int | from the kernel's `args` (`pid` and `tid` are lanes of a viewer) |
# | `start`, `duration` | float, us | `ts` and `dur` of the kernel, as they are in the file |
# | `grid`, `block` | tuples of 3, or None | from the kernel's `args`, else from its launch's, else None |
# | `launched` | float, us, or None | `ts` of the call that launched it; None where that call is not in the file |
# | `delay` | float, us, or None | `start - launched` |
# | `op` | str or None | name of the operator of torch that it belongs to; None where the file does not say |
#
# What is in the file (key `traceEvents`; `ph` `"X"` is an event with a start and a duration, leave out all others):
#
# | `cat` | what | numbers in its `args` |
# |---|---|---|
# | `kernel` | a kernel on the GPU | `correlation`; `External id` if it belongs to an operator |
# | `cuda_runtime`, `cuda_driver` | a call on the host, of HIP too | `correlation`, if it started work or waited |
# | `cpu_op` | an operator of torch | `External id`, a number of its own |
# | all others | copies, fills, ranges, ... | maybe the same numbers; no kernels, no calls, no operators |
#
# Equal `correlation`: that call launched that kernel. The launch of a graph starts several kernels, and copies, with
# one number.
# Where kernel and call both have a grid, the kernel's counts: hipExtModuleLaunchKernel is given work-items.
# Equal `External id`: the kernel belongs to that operator, also where its call is not in the file. Both numbers are
# counted apart, so the same one may stand in both with no meaning. `ts` and `dur` are microseconds, whatever
# `displayTimeUnit` says.
#
# **A tiny example**, the file above. The kernel `scale` was launched before the profiler began:
#
# | name | device | stream | start | duration | grid | block | launched | delay | op |
# |---|---|---|---|---|---|---|---|---|---|
# | scale | 0 | 2 | 8.5 | 3.0 | (4, 1, 1) | (128, 1, 1) | None | None | None |
# | gemm | 0 | 1 | 31.0 | 12.25 | (16, 16, 1) | (256, 1, 1) | 20.125 | 10.875 | aten::mm |
#
# `hint("13.read_trace")` gives three hints.


# %% 13.read_trace tags=["answer", "13.read_trace"]
def read_trace(text: str) -> list[dict]:
    """Kernels of a trace of torch.profiler in order of start, a dict each; times in us.

    >>> rows = read_trace(lesson.tiny_file("trace.json"))
    >>> [(row["name"], row["grid"], row["delay"]) for row in rows]
    [('scale', (4, 1, 1), None), ('gemm', (16, 16, 1), 10.875)]
    """
    # BEGIN SOLUTION
    events = [e for e in json.loads(text)["traceEvents"] if e["ph"] == "X"]
    calls = {}
    ops = {}
    kernels = []
    for event in events:
        args = event["args"]
        if event["cat"] in ("cuda_runtime", "cuda_driver"):
            calls[args.get("correlation")] = event
        elif event["cat"] == "cpu_op":
            ops[args["External id"]] = event["name"]
        elif event["cat"] == "kernel":
            kernels.append(event)

    rows = []
    for kernel in sorted(kernels, key=lambda event: event["ts"]):
        args = kernel["args"]
        call = calls.get(args["correlation"])
        sizes = (args, call["args"] if call else {})
        grid, block = (
            next((tuple(place[size]) for place in sizes if size in place), None)
            for size in ("grid", "block")
        )
        rows.append(
            {
                "name": kernel["name"],
                "device": args["device"],
                "stream": args["stream"],
                "start": kernel["ts"],
                "duration": kernel["dur"],
                "grid": grid,
                "block": block,
                "launched": call["ts"] if call else None,
                "delay": kernel["ts"] - call["ts"] if call else None,
                "op": ops.get(args.get("External id")),
            }
        )
    return rows
    # END SOLUTION


# %% 13.read_trace check tags=["check", "13.read_trace"]
check("13.read_trace")

# %% [markdown] why read_trace
# **Why it matters.** The delay is the first figure of a slow program. Some microseconds in every row: the GPU waits for
# launches. Milliseconds that grow: launches wait for the GPU, and the host is far ahead, as it should be. And whoever
# writes (1, 1, 1) for a grid that the file does not have finds "kernels of one block" that never were.

# %% [markdown] statement of gpu_idle
# ## 13.gpu_idle: when the GPU waited
#
# Write `gpu_idle(spans)`. `spans` is a list of dicts, all of one GPU, in any order, maybe empty:
# `{"kind": "kernel", "stream": 7, "start": 100, "end": 250}`, where `kind` is `"kernel"` or `"copy"` and times are
# whole nanoseconds. Spans may overlap, hold each other or touch. **A span that ends before it starts or in the same
# moment is left out, as if it were not there.** Return a dict:
#
# | key | type | what |
# |---|---|---|
# | `busy` | int, ns | time in which at least one span runs, on whatever stream |
# | `idle` | int, ns | time between the first start and the last end in which none runs |
# | `gaps` | list of (int, int) | (from, to) of each stretch of idle time, in order; none of length 0 |
# | `overlap` | int, ns | time in which at least one copy and at least one kernel run: copies that cost nothing |
#
# Without spans, or where none is left: 0, 0, `[]`, 0.
#
# **A tiny example.** Times in ns, a column is 10 ns wide:
#
# ```
#               100       200       300       400
# stream 7      ###############         ###########    kernels 100-250, 340-400, 400-450
# stream 8                                ##           kernel  360-380
# stream 20               ==========                   copy    200-300
# ```
#
# busy is 200 + 110 = 310 ns, though the spans add up to 380. One gap, (300, 340), so idle is 40. Of the copy's 100 ns,
# 50 lie under a kernel: overlap is 50. `hint("13.gpu_idle")` gives three hints.


# %% 13.gpu_idle tags=["answer", "13.gpu_idle"]
def gpu_idle(spans: list[dict]) -> dict:
    """busy, idle, gaps and overlap of the spans of one GPU, in ns.

    >>> gpu_idle([{"kind": "copy", "stream": 7, "start": 5, "end": 25}])
    {'busy': 20, 'idle': 0, 'gaps': [], 'overlap': 0}
    """

    # BEGIN SOLUTION
    def stretches(kinds):
        """Stretches of time in which a span of these kinds runs."""
        found = []
        for span in sorted(spans, key=lambda span: span["start"]):
            start, end = span["start"], span["end"]
            if span["kind"] not in kinds or end <= start:
                continue
            if found and start <= found[-1][1]:
                found[-1][1] = max(found[-1][1], end)
            else:
                found.append([start, end])
        return found

    def length(pairs):
        return sum(end - start for start, end in pairs)

    every = stretches({"kernel", "copy"})
    gaps = [(a[1], b[0]) for a, b in pairwise(every)]
    apart = length(stretches({"kernel"})) + length(stretches({"copy"}))
    return {
        "busy": length(every),
        "idle": length(gaps),
        "gaps": gaps,
        "overlap": apart - length(every),
    }
    # END SOLUTION


# %% 13.gpu_idle check tags=["check", "13.gpu_idle"]
check("13.gpu_idle")

# %% [markdown] payoff of idle times
# ## The payoff: where does the time go?
#
# A small training program on a virtual GPU of each vendor: as it should be, with too many launches, and with a host
# that looks at every result. Its kernels are executed and counted; the times in its trace are **modelled**, not
# measured, and the file says so. Your `read_trace` reads the traces, your `gpu_idle` says when no kernel ran. (Your
# rows hold kernels alone, so a copy is a gap here.)
#
# Before you run it: in which of the three is the largest share of the time lost, and in which is the longest gap?

# %% own idle times
rows = {}
with lesson.when_written():
    for fault in (None, "launch_bound", "host_sync"):
        for target in ("sm_80", "gfx942"):
            trace = lesson.small_run(target, fault, seed=1).files["trace.json"]
            spans = [
                {
                    "kind": "kernel",
                    "stream": kernel["stream"],
                    "start": round(1000 * kernel["start"]),
                    "end": round(1000 * (kernel["start"] + kernel["duration"])),
                }
                for kernel in read_trace(trace)
            ]
            found = gpu_idle(spans)
            window = found["busy"] + found["idle"]
            rows[f"{target}, {fault or 'as it should be'}"] = {
                "kernels": len(spans),
                "modelled us": window / 1000,
                "idle": f"{100 * found['idle'] / window:.0f} %",
                "gaps": len(found["gaps"]),
                "mean gap, us": f"{found['idle'] / len(found['gaps']) / 1000:.1f}",
                "longest gap, us": max(b - a for a, b in found["gaps"]) / 1000,
            }
lesson.table(rows, first="program")

# %% [markdown] after the idle times
# Two programs lose a large share, and need different cures. One has many short gaps: most of its
# kernels are shorter than their launch, so fewer and larger kernels help, or a graph. The other has few gaps, and they
# are long: the host waits for a value before it launches on, and reading values less often helps. A share does not tell
# them apart; gaps do.

# %% [markdown] part of tables
# ## Part 2: which kernel, and what limits it?
#
# First the tables of counters, one vendor after the other. These are tiny ones, and the examples of the next two
# exercises: what `ncu --csv` prints, long and wide, and the two files of rocprofv3.
#
# <details><summary>Where the form of these files comes from</summary>
#
# `--csv`, `--page raw` (the wide form), `--print-units`:
# [Nsight Compute CLI](https://docs.nvidia.com/nsight-compute/NsightComputeCli/index.html); the columns from files that
# people have published. rocprofv3's columns: `generateCSV.cpp` in
# [rocm-systems](https://github.com/ROCm/rocm-systems/tree/develop/projects/rocprofiler-sdk), and its options:
# [using rocprofv3](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html).
# FETCH_SIZE and WRITE_SIZE: `counter_defs.yaml`, in the same project.
#
# </details>

# %% tiny tables
for name in ("ncu.csv", "ncu_wide.csv", "kernel_trace.csv", "counters.csv"):
    print(f"----- {name}\n{lesson.tiny_file(name)}")

# %% [markdown] statement of read_ncu
# ## 13.read_ncu: counters of NVIDIA
#
# Write `read_ncu(text)`: `text` is everything that `ncu --csv` printed. It returns a list of dicts, one for each
# launch, in the order in which they first appear:
#
# | field | type | what |
# |---|---|---|
# | `process`, `id` | int | `Process ID` and `ID`. Each process counts its IDs from 0: both together name a launch |
# | `kernel` | str | `Kernel Name` |
# | `grid`, `block` | tuples of 3, or None | `Grid Size` in blocks, `Block Size` in threads; None without the column |
# | `metrics` | dict | name of a metric -> float in the base unit, or None |
#
# **Around the table.** ncu's messages (`==PROF== ...`) and whatever the program prints stand before the table, between
# its rows and after it, commas and quotes included. Lines of the table begin with a quote `"`, no other line does. The
# first of them is the header. Where there is no table (`==WARNING== No kernels were profiled.`), the result is `[]`.
#
# **Two forms.** *Long*: there is a column `Metric Name`, and each row has one metric with its `Metric Unit` and its
# `Metric Value`. A row with an empty `Metric Name` holds the advice of a rule: leave it out; it may be a cell short.
# *Wide*: each column with `__` in its name is a metric, and the first row below the header holds the units. Other
# columns come and go with the version (ranges, `Kernel Time`): read columns by name. Cells are in quotes and hold
# commas.
#
# **Units.** A value is multiplied by the factor of its own unit:
#
# | unit | base | factor |
# |---|---|---|
# | `nsecond` `ns`, `usecond` `us`, `msecond` `ms`, `second` `s` | ns | 1, 1e3, 1e6, 1e9 |
# | `byte`, `Kbyte`, `Mbyte`, `Gbyte` | bytes | 1, 1e3, 1e6, 1e9 |
# | any other, or empty (`%`, `sector`, `Gbyte/second`, `Kbyte/block`, ...) | as it is | 1 |
#
# Commas in a value separate thousands (`"12,582,912"`). A value `n/a` or an empty one is None.
#
# **A tiny example.** Both files of ncu above give the same row: process 4242, id 0, `saxpy(int, float, float *)`, grid
# (4096, 1, 1), block (256, 1, 1), metrics `{"dram__bytes.sum": 12500000.0, "gpu__time_duration.sum": 11584.0}`.
#
# `hint("13.read_ncu")` gives three hints.


# %% 13.read_ncu tags=["answer", "13.read_ncu"]
def read_ncu(text: str) -> list[dict]:
    """Launches in what `ncu --csv` printed, a dict each; times in ns, sizes in bytes.

    >>> read_ncu(lesson.tiny_file("ncu.csv")) == read_ncu(lesson.tiny_file("ncu_wide.csv"))
    True
    >>> read_ncu(lesson.tiny_file("ncu.csv"))[0]["metrics"]["dram__bytes.sum"]
    12500000.0
    """
    # BEGIN SOLUTION
    factors = {"Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "second": 1e9, "s": 1e9}
    for letter, factor in (("u", 1e3), ("m", 1e6)):
        factors |= {f"{letter}second": factor, f"{letter}s": factor}

    def number(value, unit):
        if value in ("", "n/a"):
            return None
        return float(value.replace(",", "")) * factors.get(unit, 1)

    def sizes(cell):
        return (
            tuple(int(size) for size in cell.strip("()").split(",")) if cell else None
        )

    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(lines))
    units = rows.pop(0) if rows and "Metric Name" not in rows[0] else {}
    found = {}
    for row in rows:
        launch = found.setdefault(
            (row["Process ID"], row["ID"]),
            {
                "process": int(row["Process ID"]),
                "id": int(row["ID"]),
                "kernel": row["Kernel Name"],
                "grid": sizes(row.get("Grid Size")),
                "block": sizes(row.get("Block Size")),
                "metrics": {},
            },
        )
        if units:
            values = {name: (row[name], units[name]) for name in row if "__" in name}
        else:
            values = {row["Metric Name"]: (row["Metric Value"], row["Metric Unit"])}
        launch["metrics"] |= {
            name: number(*pair) for name, pair in values.items() if name
        }
    return list(found.values())
    # END SOLUTION


# %% 13.read_ncu check tags=["check", "13.read_ncu"]
check("13.read_ncu")

# %% [markdown] why read_ncu
# **Why it matters.** Scripts that read ncu by position, or drop its units, give numbers and no error: a kernel 1,000
# times as fast as it is. And the last launch of a kernel is often not the one you mean: the first runs with cold
# caches, and shapes change from launch to launch.

# %% [markdown] statement of read_rocprof
# ## 13.read_rocprof: counters of AMD
#
# Write `read_rocprof(trace, counters)`: the texts of `..._kernel_trace.csv` and `..._counter_collection.csv` of
# rocprofv3. It returns a list of dicts, one for each row of the trace, **in order of start**:
#
# | field | type | what |
# |---|---|---|
# | `kernel` | str | `Kernel_Name` |
# | `start` | int, ns | `Start_Timestamp` |
# | `duration` | int, ns, or None | `End_Timestamp` less `Start_Timestamp`; None if that is negative |
# | `grid` | tuple of 3 | blocks: `ceil(Grid_Size / Workgroup_Size)` along X, Y, Z. **`Grid_Size` counts work-items** |
# | `block` | tuple of 3 | `Workgroup_Size_X`, `_Y`, `_Z` |
# | `waves` | int | blocks × `ceil(threads of a block / 64)`, as if all blocks were full |
# | `read`, `written` | float, bytes, or None | of `FETCH_SIZE` and `WRITE_SIZE`, in KiB; None where not collected |
# | `counters` | dict | all other counters of this dispatch, name -> float; `{}` where there are none |
#
# The GPUs are CDNA: a wave has 64 lanes. A block of 96 threads has two waves. A KiB is 1,024 bytes. An end that was not
# recorded is 0 in the file, and a clock that was set back puts one just before its start.
#
# **The join.** Both files have `Dispatch_Id`, one for each dispatch. Traces of early 2024 have no such column: join
# those by `Correlation_Id`, which both files have. (Elsewhere it does not do: all dispatches of a graph share one.) The
# file of counters has a row for each dispatch and counter, in any order. A row that stands there twice is the same
# figure again. Dispatches with no row in the trace are left out; a trace without rows gives `[]`. Columns differ
# between versions: read them by name.
#
# **A tiny example**, from the two files above:
#
# | start | duration | grid | block | waves | read | written | counters |
# |---|---|---|---|---|---|---|---|
# | 1000000 | 12000 | (16, 1, 1) | (256, 1, 1) | 64 | 2560.0 | None | {"SQ_INSTS_VALU": 640.0} |
# | 1012000 | 3500 | (11, 2, 1) | (96, 1, 1) | 44 | None | None | {} |
#
# The second has 1000 × 2 work-items. Along X these are 10.4 blocks of 96, so 11, along Y 2; each block has 2 waves.
# `hint("13.read_rocprof")` gives three hints.


# %% 13.read_rocprof tags=["answer", "13.read_rocprof"]
def read_rocprof(trace: str, counters: str) -> list[dict]:
    """Dispatches of rocprofv3 in order of start, a dict each; times in ns, sizes in bytes.

    >>> trace, counters = map(lesson.tiny_file, ("kernel_trace.csv", "counters.csv"))
    >>> [(row["grid"], row["read"]) for row in read_rocprof(trace, counters)]
    [((16, 1, 1), 2560.0), ((11, 2, 1), None)]
    """
    # BEGIN SOLUTION
    table = csv.DictReader(trace.splitlines())
    key = "Dispatch_Id" if "Dispatch_Id" in table.fieldnames else "Correlation_Id"
    counted = {}
    for row in csv.DictReader(counters.splitlines()):
        values = counted.setdefault(row[key], {})
        values[row["Counter_Name"]] = float(row["Counter_Value"])

    rows = []
    for row in sorted(table, key=lambda row: int(row["Start_Timestamp"])):
        start, end = int(row["Start_Timestamp"]), int(row["End_Timestamp"])
        items, block = (
            [int(row[f"{what}_Size_{axis}"]) for axis in "XYZ"]
            for what in ("Grid", "Workgroup")
        )
        grid = [-(-items[axis] // block[axis]) for axis in range(3)]
        values = counted.get(row[key], {})
        traffic = {
            field: values[name] * 1024 if name in values else None
            for field, name in (("read", "FETCH_SIZE"), ("written", "WRITE_SIZE"))
        }
        rows.append(
            {
                "kernel": row["Kernel_Name"],
                "start": start,
                "duration": end - start if end >= start else None,
                "grid": tuple(grid),
                "block": tuple(block),
                "waves": math.prod(grid) * -(-math.prod(block) // 64),
                **traffic,
                "counters": {
                    name: value
                    for name, value in values.items()
                    if name not in ("FETCH_SIZE", "WRITE_SIZE")
                },
            }
        )
    return rows
    # END SOLUTION


# %% 13.read_rocprof check tags=["check", "13.read_rocprof"]
check("13.read_rocprof")

# %% [markdown] payoff of both tables
# **Why it matters.** Now the tables of both vendors are rows of one kind. Below, one step of the small program on both:
# your `read_ncu` reads one, your `read_rocprof` the other. The counters are those of virtual GPUs, the times modelled.
#
# Before you run it: the same kernels with the same blocks of 128 threads. What should the ratio of waves be, and that
# of loads? Which kernel should take longest?

# %% own tables of both vendors
rows = {}
with lesson.when_written():
    files = {
        target: lesson.small_run(target, steps=1).files
        for target in ("sm_80", "gfx942")
    }
    nvidia = read_ncu(files["sm_80"]["counters.csv"])
    amd = read_rocprof(
        files["gfx942"]["kernel_trace.csv"], files["gfx942"]["counters.csv"]
    )
    for left, right in zip(nvidia, amd, strict=True):
        metrics = left["metrics"]
        rows[left["kernel"]] = {
            "grid": str(left["grid"]),
            "same on AMD": left["grid"] == right["grid"],
            "warps": metrics["smsp__warps_launched.sum"],
            "waves": right["waves"],
            "loads of warps": metrics["smsp__inst_executed_op_global_ld.sum"],
            "loads of waves": right["counters"]["SQ_INSTS_VMEM_RD"],
            "sm_80, us": metrics["gpu__time_duration.sum"] / 1000,
            "gfx942, us": right["duration"] / 1000,
        }
lesson.table(rows, first="kernel")

# %% [markdown] part of limits
# ## Part 3: what limits it?
#
# Counters become two verdicts: where a kernel stands under its roof, and whether more waves would help.

# %% [markdown] statement of roofline_points
# ## 13.roofline_points: which kernel would gain most?
#
# A list of launches with raw counters, as the tool of one vendor gives them. Write
# `roofline_points(kernels, peak, bandwidth)`: a point for each kernel **name**, what bounds it, and the kernel that
# would gain most of the whole run if it reached its roof. The run computes in float32; `peak` is in FLOP/s,
# `bandwidth` in bytes/s.
#
# A dict in `kernels` is one launch: `name`, and the counters of **one** vendor's tool.
#
# | AMD, rocprofv3, CDNA | unit |
# |---|---|
# | `Start_Timestamp`, `End_Timestamp` | ns |
# | `SQ_INSTS_VALU_ADD_F32`, `..._MUL_F32`, `..._FMA_F32` | instructions of waves of 64 lanes, all lanes on |
# | `SQ_INSTS_VALU_MFMA_MOPS_F32` | 512 FLOP each, on the matrix units |
# | `FETCH_SIZE`, `WRITE_SIZE` | 1024 bytes, fractions possible |
#
# | NVIDIA, ncu | unit |
# |---|---|
# | `gpu__time_duration.sum` | ns |
# | `smsp__sass_thread_inst_executed_op_{fadd,fmul,ffma}_pred_on.sum` | instructions of **threads** that were on |
# | `sm__inst_executed_pipe_tensor.sum` | instructions of warps on the tensor cores; FLOP of each unknown |
# | `dram__bytes_read.sum`, `dram__bytes_write.sum` | bytes |
#
# A fused multiply-add is two FLOP. A counter that was not collected is `None`. A sum that needs it is unknown,
# `None`, and so is what follows from that sum. FLOP are unknown too where a launch of the kernel used the tensor
# cores, or may have.
#
# The result is a dict. `"points"`: a list of dicts, one for each name, in any order:
#
# | field | |
# |---|---|
# | `name` | as in the launches |
# | `flop`, `bytes`, `seconds` | of **all launches together**; a launch's time is from its start to its end |
# | `intensity` | FLOP for a byte |
# | `share` | least seconds / `seconds`, where least seconds are those that the roof allows (below) |
# | `bound` | `"neither"` below a share of 0.5; else `"memory"` left of the ridge, `"compute"` from it on |
# | `gain` | seconds that the run would save if the kernel reached its roof; below 0 where a cache helped |
#
# The roof is the lower of two ceilings, `peak` and intensity x `bandwidth`; the ridge is the intensity at which
# they meet. Neither the arithmetic nor the traffic of a kernel can take less time than its ceiling allows.
#
# `"first"`: the name with the largest known `gain`, even if it is below 0; `None` where none is known. `bytes` and
# `seconds` are never 0, FLOP may be: a copy has a roof too.
#
# **A small example.** `gemv` on AMD, launched twice, with `peak` 1e12 and `bandwidth` 2e12:
#
# | | ns | ADD | MUL | FMA | MOPS | FETCH_SIZE | WRITE_SIZE |
# |---|---|---|---|---|---|---|---|
# | first | 1000 to 2000 | 10 | 5 | 1000 | 0 | 1024 | 1 |
# | second | 4000 to 4500 | 0 | 5 | 1000 | 0 | 511 | 0 |
#
# 64 · (20 + 2 · 2000) = 257,280 FLOP, 1536 · 1024 = 1,572,864 bytes, 1.5 µs. At peak the arithmetic takes 0.257 µs,
# at full bandwidth the bytes take 0.786 µs. So the share is 0.524, the gain 0.714 µs; 0.164 FLOP for a byte are
# left of the ridge at 0.5: `"memory"`.
#
# **A puzzle.** The two launches have 0.123 and 0.245 FLOP for a byte. Why is the kernel's intensity not the mean of
# the two?


# %% 13.roofline_points tags=["answer", "13.roofline_points"]
def roofline_points(kernels: list[dict], peak: float, bandwidth: float) -> dict:
    """A point for each kernel name, and the name that would gain most.

    kernels: launches with raw counters; peak: FLOP/s; bandwidth: bytes/s
    """
    # BEGIN SOLUTION
    amd, nvidia = "SQ_INSTS_VALU_", "smsp__sass_thread_inst_executed_op_"
    tensor = "sm__inst_executed_pipe_tensor.sum"
    of_flop = {f"{amd}ADD_F32": 64, f"{amd}MUL_F32": 64, f"{amd}FMA_F32": 128}
    of_flop[f"{amd}MFMA_MOPS_F32"] = 512
    for op, each in {"fadd": 1, "fmul": 1, "ffma": 2}.items():
        of_flop[f"{nvidia}{op}_pred_on.sum"] = each
    of_bytes = {"FETCH_SIZE": 1024, "WRITE_SIZE": 1024}
    of_bytes |= {"dram__bytes_read.sum": 1, "dram__bytes_write.sum": 1}
    of_ns = {"gpu__time_duration.sum": 1, "End_Timestamp": 1, "Start_Timestamp": -1}

    def total(rows, weights):
        counts = [(row[c], weights[c]) for row in rows for c in weights if c in row]
        if any(count is None for count, _ in counts):
            return None
        return sum(count * weight for count, weight in counts)

    launches = {}
    for row in kernels:
        launches.setdefault(row["name"], []).append(row)
    points = []
    for name, rows in launches.items():
        flop, moved = total(rows, of_flop), total(rows, of_bytes)
        seconds = total(rows, of_ns) * 1e-9
        if any(row.get(tensor, 0) != 0 for row in rows):
            flop = None
        point = {"name": name, "flop": flop, "bytes": moved, "seconds": seconds}
        if flop is None or moved is None:
            point |= dict.fromkeys(("intensity", "share", "bound", "gain"))
        else:
            least = max(flop / peak, moved / bandwidth)
            point["intensity"] = flop / moved
            point["share"] = least / seconds
            point["bound"] = "memory" if flop / moved < peak / bandwidth else "compute"
            if least / seconds < 0.5:
                point["bound"] = "neither"
            point["gain"] = seconds - least
        points.append(point)
    gains = {p["name"]: p["gain"] for p in points if p["gain"] is not None}
    return {"points": points, "first": max(gains, key=gains.get, default=None)}
    # END SOLUTION


# %% tags=["check"]
check("13.roofline_points")

# %% [markdown] why roofline_points
# **Why it matters.** A list of kernels sorted by time says where time goes, and one sorted by share says what is
# badly written. Neither says what to do on Monday: seconds above the roof do. Three things your function cannot
# know. `peak` is one number, and a kernel that runs in another format has another roof. `FETCH_SIZE` is counted
# where the L2 passes its misses on to Infinity Fabric ([L2
# cache](https://rocm.docs.amd.com/projects/rocprofiler-compute/en/amd-staging/conceptual/l2-cache.html)); the
# Infinity Cache of MI300X lies beyond, so a share of HBM's bandwidth may pass 1. And AMD counts a wave's
# instruction as 64 lanes even where some are off: its FLOP are an upper bound.
#
# <details><summary>The puzzle</summary>
#
# The first launch moved 1025 units of 1024 bytes and the second 511, so the first weighs twice as much. Only the
# ratio of sums, 0.164, times the bytes gives the FLOP again; the mean of ratios, 0.184, gives nothing.
#
# </details>

# %% [markdown] statement of occupancy_from_counters
# ## 13.occupancy_from_counters: raise the limit, or fill what there is?
#
# Occupancy is waves on an SM or CU, as a share of those that it can hold. What *could* be resident follows from the
# launch; what *was* resident, only a counter knows. Write `occupancy_from_counters(kernels, limits)`: both numbers
# for each kernel, what limits the first, and what to do.
#
# `limits` is a dict of one target. Two of them (source: `TARGETS` and `CHIPS` of the library, each figure with its
# own; docs/facts.md has the list):
#
# | | MI300X | H100 | |
# |---|---|---|---|
# | `target`, `units` | `"gfx942"`, 304 | `"sm_90"`, 132 | name; CUs or SMs of the chip |
# | `lanes` | 64 | 32 | of a wave or warp |
# | `simds`, `waves_per_simd` | 4, 8 | 4, 16 | parts of a unit, and waves that one part holds |
# | `registers`, `granule` | 512, 8 | 512, 8 | of one part for each lane, handed out in multiples |
# | `shared_per_unit`, `shared_granule` | 65,536, 512 | 233,472, 128 | bytes of LDS or shared memory, in multiples |
# | `shared_reserved` | 0 | 1,024 | bytes that the system adds to each block's, before rounding |
# | `blocks_per_unit` | `None` | 32 | most blocks of a unit; `None`: never the first to run out |
#
# `kernels` is a list of dicts, all of one vendor, one for each kernel:
#
# | AMD, rocprofv3 | |
# |---|---|
# | `VGPR_Count`, `Accum_VGPR_Count` | registers of a lane; from gfx90a on both come from one file |
# | `LDS_Block_Size`, `Workgroup_Size` | bytes, threads of a block |
# | `Grid_Size` | **work-items** of the grid; the last block may be part full |
# | `SQ_WAVE_CYCLES` | waves that were resident, summed over all CUs and cycles, **in units of four cycles** (gfx9) |
# | `GRBM_GUI_ACTIVE` | cycles in which the GPU worked (of several XCDs the largest number); 0: it did not run |
#
# | NVIDIA, ncu | |
# |---|---|
# | `launch__registers_per_thread`, `launch__block_size` | of a lane; threads of a block |
# | `launch__shared_mem_per_block_static`, `..._dynamic` | bytes of a block: both together |
# | `launch__grid_size` | **blocks** of the grid |
# | `sm__warps_active.avg.pct_of_peak_sustained_active` | achieved occupancy in %, as it is; maybe `None` |
#
# The result is a list of dicts, one for each kernel, in any order:
#
# | field | |
# |---|---|
# | `name` | |
# | `blocks` | int, blocks that one unit holds at a time: the fewest that any resource allows |
# | `limited_by` | list of **all** resources that allow no more, in any order |
# | `theoretical`, `achieved` | in %; `achieved` is `None` where its counter is unknown or did not run |
# | `verdict` | see below |
#
# The resources are `"waves"` (slots), `"registers"`, `"shared memory"` and `"blocks"`. Each is counted on its own,
# registers as if there were any number of slots; LDS of 0 bytes limits nothing. A wave lives on one part and takes
# its registers there; the waves of a block are spread over the parts.
#
# The **verdict**, the first that holds:
#
# | | |
# |---|---|
# | `"unknown"` | `achieved` is unknown |
# | `"grid"` | `achieved` is below 0.8 times `theoretical`, and `filled` is below 0.8 |
# | `"imbalance"` | `achieved` is below 0.8 times `theoretical`: some waves live much longer than others |
# | `"raise"` | `theoretical` is below 50 %: what stands in `limited_by` has to give way |
# | `"leave"` | the rest |
#
# A grid has too few blocks, or its last round is nearly empty. `filled`: all units together hold so many blocks at
# a time. The grid needs so many *rounds* of them, say 1.1, which take the time of 2 whole ones. `filled` is the
# rounds over the whole rounds: 0.55.
#
# **A small example**, on MI300X: 64 + 36 registers, 20,480 bytes, 320 threads, 2,918,400 work-items,
# `SQ_WAVE_CYCLES` 109,440,000, `GRBM_GUI_ACTIVE` 100,000. A block has 5 waves. 100 registers are handed out as 104,
# so a part holds 4 waves and the CU 16: 3 blocks. LDS: 3 blocks. Slots: 6. So 3 blocks or 15 of 32 waves:
# `theoretical` 46.875 %, limited by registers and shared memory. The GPU held 4 · 109,440,000 / 100,000 = 4,377.6
# waves on average, 14.4 on a CU: `achieved` 45 %. The verdict is `"raise"`.
#
# **A puzzle.** How many registers must a lane give up here before a fourth block fits, and is that enough?


# %% 13.occupancy_from_counters tags=["answer", "13.occupancy_from_counters"]
def occupancy_from_counters(kernels: list[dict], limits: dict) -> list[dict]:
    """Blocks of a unit, what limits them, both occupancies in %, and what to do."""

    # BEGIN SOLUTION
    def up(value, granule):
        return -(-value // granule) * granule

    slots = limits["simds"] * limits["waves_per_simd"]
    found = []
    for row in kernels:
        if "VGPR_Count" in row:
            registers = row["VGPR_Count"] + row["Accum_VGPR_Count"]
            shared, threads = row["LDS_Block_Size"], row["Workgroup_Size"]
            grid = -(-row["Grid_Size"] // threads)
            active = row["GRBM_GUI_ACTIVE"]
            achieved = None
            if active:
                waves = 4 * row["SQ_WAVE_CYCLES"] / active / limits["units"]
                achieved = 100 * waves / slots
        else:
            registers = row["launch__registers_per_thread"]
            shared = sum(
                row[f"launch__shared_mem_per_block_{kind}"]
                for kind in ("static", "dynamic")
            )
            threads, grid = row["launch__block_size"], row["launch__grid_size"]
            achieved = row["sm__warps_active.avg.pct_of_peak_sustained_active"]
        waves = -(-threads // limits["lanes"])
        of_part = limits["registers"] // up(registers, limits["granule"])
        allowed = {
            "waves": slots // waves,
            "registers": of_part * limits["simds"] // waves,
        }
        taken = up(shared + limits["shared_reserved"], limits["shared_granule"])
        if taken:
            allowed["shared memory"] = limits["shared_per_unit"] // taken
        if limits["blocks_per_unit"] is not None:
            allowed["blocks"] = limits["blocks_per_unit"]
        blocks = min(allowed.values())
        theoretical = 100 * blocks * waves / slots
        rounds = grid / (blocks * limits["units"])
        if achieved is None:
            verdict = "unknown"
        elif achieved < 0.8 * theoretical:
            verdict = "grid" if rounds / math.ceil(rounds) < 0.8 else "imbalance"
        else:
            verdict = "raise" if theoretical < 50 else "leave"
        found.append(
            {
                "name": row["name"],
                "blocks": blocks,
                "limited_by": [name for name in allowed if allowed[name] == blocks],
                "theoretical": theoretical,
                "achieved": achieved,
                "verdict": verdict,
            }
        )
    return found
    # END SOLUTION


# %% tags=["check"]
check("13.occupancy_from_counters")

# %% [markdown] why occupancy_from_counters
# **Why it matters.** Much work goes into registers of kernels whose grid is too small to notice. The two counters are
# cousins, not twins: NVIDIA divides by the cycles in which an SM had a warp, AMD by all cycles in which the GPU
# worked. With a grid that leaves half of the units empty, NVIDIA's number stays and AMD's halves. ncu prints its own
# limits (`launch__occupancy_limit_registers` and its kin); rocprofv3 has none, so there you work them out. Mind what a
# file has done to its numbers: MI300X counts `GRBM_GUI_ACTIVE` on each of its eight XCDs, and the tool's own formula
# takes the largest of them, not the sum (`OccupancyPercent` in
# [counter_defs.yaml](https://github.com/ROCm/rocprofiler-sdk/blob/amd-mainline/source/share/rocprofiler-sdk/counter_defs.yaml)).
#
# <details><summary>The puzzle</summary>
#
# Four blocks have 20 waves, five on each part: 512 // 5 = 102, handed out in eights: 96. So a lane must give up
# four of its 100. It is not enough: LDS allows three blocks too, and 16,384 bytes a block would be needed for four.
# Both have to give way.
#
# </details>

# %% [markdown] part of diagnosing
# ## Part 4: find it, mend it, say what changed
#
# `lesson.planted(number)` runs a small training program on a virtual GPU and keeps what profilers would have written: a
# trace, and counters in the form of `ncu` or rocprofv3. One layer, `a = max(0, x w)`, learns an invented task, by six
# kernels a step: `forward`, `activation`, `loss_gradient`, `transpose`, `weight_gradient`, `update`. Behind each number
# is a target, sizes, and one of six faults, or none. Neither a file nor a kernel is named after it. The loss is the
# same with and without: a fault costs time and nothing else.
#
# Counts are exact: the kernels' machine code was executed. Times are modelled, on a GPU with one SM or CU, and the
# files say so. The kernels are in `gpu_utils/exercises/u13_profiling/kernels/step.cu`; look at them
# afterwards.

# %% your first planted run
run = lesson.planted(3)
print(run.target, "left", ", ".join(run.files), "with the losses", run.losses)
run.profile.table()

# %% [markdown] by eye
# Look at it as the lesson did. Is the GPU busy? Then: which kernel has a figure that the others do not have? Take more
# numbers, 1, 2, 3, ..., and write down for each what you think it is, and which figure says so. Then compare: after
# `run.save("profiles/3")` the command `./w2w profile --html report.html profiles/3/*` says what it finds.
#
# What you found by eye, now as a function.

# %% [markdown] statement of diagnose
# ## 13.diagnose: which fault, and where?
#
# `diagnose(events, kernels)` gets what the readers made of a run's files, and returns `(fault, kernel)`:
#
# | fault | what was done | kernel |
# |---|---|---|
# | `"uncoalesced"` | neighbouring lanes load or store addresses that lie far apart | its name |
# | `"bank_conflicts"` | lanes of a wave want different words of one bank, again and again | its name |
# | `"spills"` | values live in local memory or scratch in place of registers | its name |
# | `"low_occupancy"` | a block asks for so much that only a few waves fit | its name |
# | `"launch_bound"` | the host launches many small pieces, and the GPU waits for it | `None` |
# | `"host_sync"` | the host waits for each kernel, looks at a number, and then the GPU waits for it | `None` |
# | `"none"` | nothing | `None` |
#
# At most one fault is planted, in one kernel, in all its launches.
#
# - `events`: a list of dicts in the order of their starts. `kind` is "kernel", "copy", "launch" or "sync"; `name`;
#   `lane` is a stream, or a thread of the host; `start` and `end` are in ns.
# - `kernels`: a list of dicts, one for each launch, with these columns of the one table:
#
# | both | `name`, `duration` in ns, `grid` in blocks, `block` in threads, `waves`, `registers` |
# |---|---|
# | | `shared_bytes`, `scratch_bytes`, `occupancy_limit` in % |
# | NVIDIA | `load_requests`, `load_sectors`, `store_requests`, `store_sectors` |
# | | `shared_passes`, `conflict_passes` |
# | AMD | `load_instructions`, `store_instructions`, `cache_lines` (of loads and stores together) |
# | | `shared_cycles`, `conflict_cycles` |
#
# A figure that the vendor's tool does not have is `None`. Runs differ in target, sizes and steps, so a threshold on a
# total will fail; a ratio carries over. All global loads and stores of these kernels are of 4 bytes a lane, and some
# read rows of 16 floats, which on AMD are twice the lines that would do. Even a sound kernel has a few conflicts, or
# does not fill the unit to the last wave.
#
# **A small example.** Two launches of `update`, one after the other, 8,000 ns each, and a host that launches the second
# one while the first runs. Each: 100 load requests, 400 load sectors, 50 store requests, 200 store sectors, no shared
# memory, no scratch, `occupancy_limit` 100. Busy, four sectors each, full: `("none", None)`. With 3,200 load sectors
# in place of 400: `("uncoalesced", "update")`.
#
# `hint("13.diagnose")` gives three hints.


# %% 13.diagnose tags=["answer", "13.diagnose"]
def diagnose(events: list[dict], kernels: list[dict]) -> tuple[str, str | None]:
    """(fault, the kernel that has it or None) of a run, from its events and kernels."""

    # BEGIN SOLUTION
    def known(row, *names):
        return sum(row[name] or 0 for name in names)

    def pieces(row):
        requests = known(row, "load_requests", "store_requests")
        asked = requests or known(row, "load_instructions", "store_instructions")
        touched = known(row, "load_sectors", "store_sectors", "cache_lines")
        return touched / asked

    def conflicts(row):
        passes = known(row, "shared_passes", "shared_cycles")
        return (
            known(row, "conflict_passes", "conflict_cycles") / passes if passes else 0
        )

    for row in kernels:
        if known(row, "scratch_bytes") > 0:
            return "spills", row["name"]
        if pieces(row) > 8:
            return "uncoalesced", row["name"]
        if conflicts(row) > 0.3:
            return "bank_conflicts", row["name"]
        if row["occupancy_limit"] < 50:
            return "low_occupancy", row["name"]
    ran = [event for event in events if event["kind"] == "kernel"]
    whole = max(event["end"] for event in ran) - ran[0]["start"]
    if sum(event["end"] - event["start"] for event in ran) > 0.8 * whole:
        return "none", None
    waits = sum(event["kind"] == "sync" for event in events)
    return ("host_sync" if waits > len(ran) / 2 else "launch_bound"), None
    # END SOLUTION


# %% tags=["check"]
check("13.diagnose")

# %% [markdown] why diagnose
# **Why it matters.** You have just written what a performance engineer does in the first ten minutes, and it works on
# two vendors. The order is the lesson's: a fault of a kernel shows in a ratio of its own row, a fault of the host in
# the gaps. On a real GPU caches soften the ratios and clocks move; the ratios stay the place to look.

# %% your diagnosis of planted runs
rows = {}
with lesson.when_written():
    for number in range(1, 9):
        run = lesson.planted(number)
        said, where = diagnose(*lesson.diagnosis_rows(run))
        told = {"you say": said, "in": where or "", "planted": run.fault or "none"}
        rows[number] = {"target": run.target, **told, "there": run.kernel or ""}
lesson.table(rows, first="number")

# %% [markdown] the given kernel of fix
# ## A slow function
#
# A linear layer with a bias and a ReLU sends its gradient back in two steps. With `dy`, the gradient of the output, and
# `y`, the output:
#
# $$ dz_{m,n} = dy_{m,n} \cdot [\,y_{m,n} > 0\,], \qquad db_n = \sum_m dz_{m,n} $$
#
# The function below does it. It is right for any sizes and strides. It is also slow, in three ways that do not show in
# its result: how its lanes lie in memory, how many launches, and how large the tile of one wave is. Read it, then see
# which figures of the profile show each, on which vendor.


# %% given and slow
@triton.jit(do_not_specialize=["first", "dy_m", "dy_n", "y_m", "y_n"])
def slow_kernel(
    dy_ptr,
    y_ptr,
    dz_ptr,
    db_ptr,
    first,
    n_rows,
    n_cols,
    dy_m,
    dy_n,
    y_m,
    y_n,
    COLS: tl.constexpr,
    ROWS: tl.constexpr,
):
    cols = first + tl.arange(0, COLS)[:, None]
    total = tl.zeros([COLS, ROWS], tl.float32)
    for start in range(0, n_rows, ROWS):
        rows = start + tl.arange(0, ROWS)[None, :]
        here = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * dy_m + cols * dy_n, mask=here, other=0.0)
        y = tl.load(y_ptr + rows * y_m + cols * y_n, mask=here, other=0.0)
        dz = tl.where(y > 0, dy, 0.0)
        tl.store(dz_ptr + rows * n_cols + cols, dz, mask=here)
        total += dz
    at = first + tl.arange(0, COLS)
    tl.store(db_ptr + at, tl.sum(total, axis=1), mask=at < n_cols)


def slow(dy: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    n_rows, n_cols = dy.shape
    dz = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    db = torch.empty(n_cols, device=dy.device)
    strides = (*dy.stride(), *y.stride())
    for first in range(0, n_cols, 8):
        slow_kernel[(1,)](
            *(dy, y, dz, db, first, n_rows, n_cols, *strides),
            COLS=8,
            ROWS=512,
            num_warps=1,
        )
    return dz, db


# %% [markdown] profile of the given kernel
# Run it on both virtual GPUs, and export what they counted as the vendors' tools would: `ncu --csv` for `sm_80`,
# `rocprofv3 --pmc ... --output-format csv` for `gfx942`. `lesson.evidence` reads these files back and makes a row for
# each kernel. What to hold it against: 32 lanes that load 32 bits each, side by side, touch 4 sectors of 32 bytes on
# `sm_80`; 64 lanes touch 2 lines of 128 bytes on `gfx942`. With 128 bits for a lane it is 4 times as much, and as good:
# so look at the bits beside it. (NVIDIA's figure is of loads, AMD's of loads and stores.)
# And a launch fills a chip only if it has a program for each SM or CU; both vendors' large chips have more than 100.

# %% the profile of the given kernel
dy, y = torch.randn(2048, 128), torch.randn(2048, 128)
for target in ("sm_80", "gfx942"):
    with virtual_gpu(target) as gpu:
        slow(dy, y)
    *_, counters = lesson.profile_files(gpu).values()
    print(counters[-600:])  # the end of what ncu and rocprofv3 would write
lesson.table(lesson.evidence(slow, dy, y), first="kernel, target")

# %% [markdown] statement of fix
# ## 13.fix: mend it
#
# Write `fix(dy, y) -> (dz, db)`, with as many kernels of your own as you need.
#
# | | |
# |---|---|
# | `dy`, `y` | float32, float16 or bfloat16, both alike; shape (rows, columns), at least one of each; any strides |
# | `dz` | contiguous, shape and type of `dy`: `dy` where `y > 0`, else 0. `y` is 0 in many places |
# | `db` | float32, shape (columns,): the sums of `dz` over the rows, summed in float32 |
#
# **The same bits in every run.** Where nothing is counted the check calls you twice, the second time with the programs
# in another order. So no sums by atomics.
#
# **Limits**: `global_sectors_per_ideal`: sectors (on `gfx942` lines) over the fewest possible, at most 1.6.
# `launches`: one or two. `blocks`: a program adds up at most 128 rows, so that there are programs for a whole chip,
# and at least as much as 16 rows of 32 columns, or all there are. `global_moved_bytes`: at most 1.15 times one read of
# `dy` and `y` and one write of `dz`. `scratch_bytes`: none, no spills; PTX has no spills before `ptxas` makes them, so
# this is counted on `gfx942`. torch may make tensors, not compute.
#
# **A small example.** dy = ((1, 2), (3, 4), (5, 6)) and y = ((1, 0), (0, 1), (2, 2)) give dz = ((1, 0), (0, 4), (5, 6))
# and db = (6, 10). If a program takes two rows, the parts of db are (1, 4) and (5, 6).
#
# **Go by one fault at a time**: change one thing, put `lesson.table(lesson.evidence(fix, dy, y))`
# into a cell, and see which number moved.


# %% 13.fix tags=["answer", "13.fix"]
@triton.jit
def fix_kernel(
    dy_ptr,
    y_ptr,
    dz_ptr,
    parts_ptr,
    n_rows,
    n_cols,
    dy_m,
    dy_n,
    y_m,
    y_n,
    rows_each,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # BEGIN SOLUTION
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    first = tl.program_id(0) * rows_each
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(first, first + rows_each, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        here = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        at_dy = rows[:, None] * dy_m + cols[None, :] * dy_n
        at_y = rows[:, None] * y_m + cols[None, :] * y_n
        dy = tl.load(dy_ptr + at_dy, mask=here, other=0.0)
        y = tl.load(y_ptr + at_y, mask=here, other=0.0)
        dz = tl.where(y > 0, dy, 0.0)
        tl.store(dz_ptr + rows[:, None] * n_cols + cols[None, :], dz, mask=here)
        total += dz
    part = parts_ptr + tl.program_id(0) * n_cols
    tl.store(part + cols, tl.sum(total, axis=0), mask=cols < n_cols)
    # END SOLUTION


@triton.jit
def add_kernel(parts_ptr, db_ptr, n_parts, n_cols, BLOCK: tl.constexpr):
    # BEGIN SOLUTION
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for part in range(n_parts):
        at = parts_ptr + part * n_cols + cols
        total += tl.load(at, mask=cols < n_cols, other=0.0)
    tl.store(db_ptr + cols, total, mask=cols < n_cols)
    # END SOLUTION


def fix(dy: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """dz = dy where y > 0, else 0; db = its sums over the rows, in float32: (dz, db)."""
    # BEGIN SOLUTION
    n_rows, n_cols = dy.shape
    dz = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    db = torch.empty(n_cols, device=dy.device)
    n_parts = triton.cdiv(n_rows, 64)
    parts = torch.empty(n_parts, n_cols, device=dy.device)
    fix_kernel[(n_parts, triton.cdiv(n_cols, 64))](
        *(dy, y, dz, parts, n_rows, n_cols, *dy.stride(), *y.stride(), 64),
        BLOCK_M=16,
        BLOCK_N=64,
    )
    add_kernel[(triton.cdiv(n_cols, 64),)](parts, db, n_parts, n_cols, BLOCK=64)
    return dz, db
    # END SOLUTION


# %% tags=["check"]
check("13.fix")

# %% [markdown] why fix
# **Why it matters.** Nothing in a result says that a kernel is slow. Each of the three faults had one number that did,
# and each number had one line to blame. Both versions beside each other:

# %% both profiles
rows = lesson.evidence(slow, dy, y)
with lesson.when_written():
    rows |= lesson.evidence(fix, dy, y)
lesson.table(rows, first="before and after")

# %% [markdown] statement of regression
# ## 13.regression: what made it slower?
#
# Yesterday's profile and today's, with a list of commits in between. Write `regression(before, after)`: the one
# change that cost most, the kernel it hit, and how many ns it lost. Both are lists of launches of the same number
# of steps, on one stream, so that no two overlap. **Rows come in any order.** Each is a dict:
#
# | | |
# |---|---|
# | `name` | as the tool wrote it |
# | `start`, `duration` | ns, int |
# | `grid` | blocks, int |
# | `memory_bytes` | read and written by this launch; `None` where it was not collected |
# | `registers`, `shared_bytes` | of a lane; of a block, int |
# | `occupancy` | achieved, %; `None` where it was not collected |
#
# **Names.** Another build writes another name for the same kernel. The *base name* is what is left when these are
# taken off: `void ` in front; everything from the first `<`, `(`, `[` or `.` on; space at the end; then `_` and
# digits at the end, once. `void gemm<float, 64>(float*, int)`, `gemm_3.kd` and `gemm [clone .kd]` are all `gemm`;
# `a_1_2` is `a_1`, and `conv3` stays `conv3`.
#
# Base names of only one of the profiles are kernels that were renamed, or split in two. They take as long as what they
# replace, so they are never the cause, and are left out of the losses below. (Their time is not idle time.) At least
# two base names are in both profiles, and the largest loss is that of one of them, or of idle, alone.
#
# **Losses**, in ns. Of a kernel: all its time in `after` minus all its time in `before`. Of the GPU's waiting,
# idle: in a profile that is the time from the first start to the last end in which no kernel runs; the loss is the
# difference.
#
# The result is `{"cause": ..., "kernel": ..., "lost": ...}`, by the first row that holds:
#
# | `cause` | when | `kernel` | `lost` |
# |---|---|---|---|
# | `"clock"` | all launches are longer by one factor (see below) | `None` | time of all launches, after - before |
# | `"none"` | the largest loss is below 0.03 of the time from first start to last end of `before`: noise | `None` | 0 |
# | `"idle"` | idle lost most | `None` | its loss |
# | `"calls"` | the kernel that lost most is launched more often | base name | its loss |
# | `"bytes"` | a launch of it moves more bytes | base name | its loss |
# | `"occupancy"` | fewer of its waves were resident | base name | its loss |
# | `"unknown"` | no column says why | base name | its loss |
#
# *One factor*: take the mean time of a launch, after / before, of each kernel that both profiles have. The smallest
# ratio is 1.05 or more, the largest at most 1.04 times the smallest.
#
# A column's *mean* is that of all launches of the kernel in one profile; it is unknown if it is `None` in any of them.
# *More bytes*: mean `memory_bytes` after is above 1.1 times that before; not if either is unknown. *Fewer waves*:
# mean `occupancy` before is above 1.1 times that after. If either is unknown, the launch says it instead: mean
# `registers` or mean `shared_bytes` after is above 1.1 times that before.
#
# **A small example**, in thousands of ns:
#
# | before | start | duration | | after | start | duration |
# |---|---|---|---|---|---|---|
# | `void gemm<64>(float*)` | 0 | 800 | | `void gemm<128>(float*)` | 0 | 820 |
# | `softmax_1` | 900 | 100 | | `softmax_2` | 920 | 100 |
# | | | | | `softmax_2` | 1030 | 100 |
#
# `gemm` lost 20, `softmax` 100, idle 10. Noise ends at 30. `softmax` is launched twice as often:
# `{"cause": "calls", "kernel": "softmax", "lost": 100_000}`. `hint("13.regression")` gives three hints.


# %% 13.regression tags=["answer", "13.regression"]
def regression(before: list[dict], after: list[dict]) -> dict:
    """What made the program slower: {"cause": word, "kernel": name or None, "lost": ns}."""

    # BEGIN SOLUTION
    def grouped(rows):
        found = {}
        for row in rows:
            name = row["name"].removeprefix("void ")
            name = re.sub(r"_\d+$", "", re.split(r"[<(\[.]", name)[0].strip())
            found.setdefault(name, []).append(row)
        return found

    def time(rows):
        return sum(row["duration"] for row in rows)

    def span(rows):
        end = max(row["start"] + row["duration"] for row in rows)
        return end - min(row["start"] for row in rows)

    def rose(rows, later, column):
        values = [[row[column] for row in each] for each in (rows, later)]
        if any(None in each for each in values):
            return None
        return statistics.fmean(values[1]) > 1.1 * statistics.fmean(values[0])

    old, new = grouped(before), grouped(after)
    lost = {name: time(new[name]) - time(old[name]) for name in old if name in new}
    ratios = [time(new[n]) / len(new[n]) / (time(old[n]) / len(old[n])) for n in lost]
    if min(ratios) >= 1.05 and max(ratios) <= 1.04 * min(ratios):
        slower = time(after) - time(before)
        return {"cause": "clock", "kernel": None, "lost": slower}
    idle = span(after) - time(after) - (span(before) - time(before))
    kernel = max(lost, key=lost.get)
    if max(idle, lost[kernel]) < 0.03 * span(before):
        return {"cause": "none", "kernel": None, "lost": 0}
    if idle > lost[kernel]:
        return {"cause": "idle", "kernel": None, "lost": idle}
    rows, later = old[kernel], new[kernel]
    fewer_waves = rose(later, rows, "occupancy")
    if fewer_waves is None:
        launch = ("registers", "shared_bytes")
        fewer_waves = any(rose(rows, later, column) for column in launch)
    if len(later) > len(rows):
        cause = "calls"
    elif rose(rows, later, "memory_bytes"):
        cause = "bytes"
    else:
        cause = "occupancy" if fewer_waves else "unknown"
    return {"cause": cause, "kernel": kernel, "lost": lost[kernel]}
    # END SOLUTION


# %% tags=["check"]
check("13.regression")

# %% [markdown] payoff of regression
# **Why it matters.** A nightly run that compares two profiles by such rules finds a regression while the commit is
# fresh. Two things are simpler here than on a chip. Memory has a clock of its own: when the GPU's falls, kernels
# that wait for memory slow down less than others, and the ratios spread. And a profile with counters is a slower
# run than one without: take times from the one, bytes and occupancy from the other.
#
# **The payoff.** Below, the small training program of the lesson runs on two virtual GPUs, sound and with a fault,
# and your function compares the profiles. Times are modelled, not measured. No counter of memory is there, so
# `memory_bytes` is what loads and stores moved between first-level cache and L2; `occupancy` is the theoretical
# one.
#
# Before you run it: bank conflicts leave calls, bytes and occupancy as they were. What must your function say?

# %% your regression
rows = {}
with lesson.when_written():
    for target in ("sm_80", "gfx942"):
        sound = lesson.launch_rows(lesson.small_run(target).profile)
        for fault in ("uncoalesced", "low_occupancy", "bank_conflicts", "host_sync"):
            run = lesson.small_run(target, fault)
            found = regression(sound, lesson.launch_rows(run.profile))
            rows[f"{fault}, {target}"] = {
                "cause": found["cause"],
                "kernel": found["kernel"] or "none",
                "lost, ns": found["lost"],
            }
lesson.table(rows, first="what was planted")

# %% [markdown] what the profiles could not say
# <details><summary>What must it say of bank conflicts?</summary>
#
# `"unknown"`, with the right kernel and the right loss: none of the columns knows banks. That is half of the
# answer, and the better half: you know where to look, and that another counter must be collected, not which line to
# change. A function that had to name one of the causes that it knows would have blamed an innocent commit.
#
# </details>

# %% [markdown] end of the lab
# ## Done
#
# From a file to a verdict, on both vendors, by functions that you wrote. Unit 14 writes kernels once for three vendors.

# %% progress
progress()
