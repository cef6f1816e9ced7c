# %% [markdown] top
# # Lab 13: profiling on both vendors
#
# **Nine exercises.** Four readers, from a trace to counters of both vendors; what limits a kernel; faults to find and
# to mend.
#
# - **First**: lesson 13. It has the ideas; each statement says what else it needs.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it.
#   `hint("13.read_trace")` gives three hints of growing strength. `solution("13.read_trace")` asks first.

# %% imports tags=["setup"]
import csv
import json
import math
from itertools import pairwise

from gpu_utils import check, hint, lesson, progress, solution

# %% [markdown] part of idle times
# ## Part 1: is the GPU busy?
#
# Two steps. Out of a trace of either vendor you make one row for each kernel; out of spans of time you find when the
# GPU had nothing to do. At the end of the part your two functions look at a program that waits too often.
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
# | `device`, `stream` | int | from the kernel's `args` |
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
# | all others | copies, fills, ranges, ... | maybe the same numbers; no kernels |
#
# Equal `correlation`: that call launched that kernel. The launch of a graph starts several kernels with one number.
# Where kernel and call both have a grid, the kernel's counts: hipExtModuleLaunchKernel is given work-items.
# Equal `External id`: the kernel belongs to that operator. Both numbers are counted apart, so the same one may stand in
# both with no meaning. `ts` and `dur` are microseconds, whatever `displayTimeUnit` says.
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
# Without spans: 0, 0, `[]`, 0.
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
# | any other, or empty (`%`, `inst`, `byte/second`, ...) | as it is | 1 |
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
# recorded is 0 in the file.
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

# %% progress
progress()
