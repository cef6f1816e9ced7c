# %% [markdown] top
# # 13 Profiling on both vendors
#
# **Afterwards you can** take any profile, of torch.profiler, Nsight Compute, Nsight Systems, rocprofv3 or rocprof, and
# answer three questions in order: is the GPU busy, which kernel, what limits it. You know which counter answers what on
# each vendor, its unit and its traps, what has no counterpart, and what profiling itself changes.
#
# **You need** units 01 (a training step), 02 (coalescing, banks, occupancy, roofline) and 06 (fused attention). No
# GPU: kernels are executed on virtual GPUs, which count exactly and have no clock. Where a text says *modelled*, times
# follow from stated rules. Nothing here has run on AMD silicon.
#
# **Time**: three sittings. Reading (text and code at 200 words a minute) takes about 20, 21 and 18 minutes, all of it
# with the predictions about 40 each (a guess). All cells together run in half a minute on a quiet CPU. Then lab 13.

# %% imports
import json
import math

import torch
import triton
import triton.language as tl
from torch import nn

from gpu_utils import CHIPS, bench, compile_for, explore, lesson, predict, virtual_gpu

# %% [markdown] three questions
# # Sitting 1: is the GPU busy?
#
# ## 1. Three questions, three kinds of tools
#
# A program is slow. Three questions find out why, on either vendor, in this order:
#
# 1. **Is the GPU busy?** If not, what is it waiting for?
# 2. **Which kernel** takes its time?
# 3. **What limits** that kernel: bytes, arithmetic, or waiting?
#
# The order matters. A kernel that becomes twice as fast saves nothing where the GPU waits for something else: you will
# see such a program in section 4. There are three kinds of tools, and each answers some of the questions:
#
# | | trace | counters | samples |
# |---|---|---|---|
# | writes down | when each call, copy, kernel began and ended | sums of a kernel: bytes, cycles | where waves are |
# | answers | 1, and 2 | 3 | 3, down to a line |
# | cannot say | why a kernel takes that long | what ran when | exact numbers |
# | price | time for each event, large files | kernels run alone, and again | support by the chip |
# | NVIDIA | `nsys` (Nsight Systems), torch.profiler | `ncu` (Nsight Compute) | `ncu`, source page |
# | AMD | `rocprofv3 --hip-trace --kernel-trace`, torch.profiler | `rocprofv3 --pmc` | `rocprofv3`, PC sampling |
#
# This sitting is about traces. Sitting 2 takes the counters, sitting 3 the samples and what each price does to a
# measurement.
#
# > **Facts: prices of tools**
# >
# > - Nsight Compute runs kernels one at a time, and one whose counters do not fit at once several times. (source:
# >   NVIDIA, [Nsight Compute Profiling Guide](https://docs.nvidia.com/nsight-compute/ProfilingGuide/), Replay)
# > - On AMD GPUs one kernel executes at a time while counters are collected. (source: AMD,
# >   [ROCprofiler-SDK, counter collection](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/api-reference/counter_collection_services.html))
# > - Stochastic sampling, by the hardware, needs `gfx942` or later on AMD. (source: ROCprofiler-SDK,
# >   how-to/using-pc-sampling.rst)
# > - torch.profiler costs more with shapes or stacks. (source:
# >   [torch.profiler](https://docs.pytorch.org/docs/stable/profiler.html))
#
# ## 2. One launch, seen from both sides
#
# The **host** is the CPU thread that runs your Python. It does not run kernels: it puts them into a **stream**, a
# line of work that the GPU takes in order. (`rocprofv3` has a queue beside it: the hardware's own line, which streams
# may share.) The call that does so is a **launch**. It returns at once, most often before the kernel has begun.
#
# torch.profiler writes both sides into one file, the *Chrome trace*: JSON, an object for each event, `ts` its start
# and `dur` its length in µs. Here is one matrix product. Its numbers are made up; its shape is that of a file from
# CUDA, and of one from ROCm, where the kernel event of some versions says little.

# %% one launch in two files
NVIDIA = """{"traceEvents": [
{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 100, "tid": 100,
 "ts": 10.0, "dur": 50.0, "args": {"External id": 1}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 100, "tid": 100,
 "ts": 20.0, "dur": 6.5, "args": {"External id": 1, "correlation": 7}},
{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7,
 "ts": 31.0, "dur": 12.0, "args": {"External id": 1, "correlation": 7, "device": 0,
  "stream": 7, "registers per thread": 64, "shared memory": 16384,
  "grid": [16, 16, 1], "block": [256, 1, 1]}}]}"""

AMD = """{"traceEvents": [
{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 100, "tid": 100,
 "ts": 10.0, "dur": 50.0, "args": {"External id": 1}},
{"ph": "X", "cat": "cuda_runtime", "name": "hipLaunchKernel", "pid": 100, "tid": 100,
 "ts": 20.0, "dur": 6.5, "args": {"External id": 1, "correlation": 7, "kernel": "gemm",
  "grid": [16, 16, 1], "block": [256, 1, 1], "shared memory": 16384}},
{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 2, "tid": 0,
 "ts": 31.0, "dur": 12.0, "args": {"External id": 1, "correlation": 7, "device": 0,
  "stream": 0, "kind": "Dispatch Kernel"}}]}"""

# %% guess launch
guess = predict(
    "13.launch",
    "How long after the start of its launch call did the kernel start? In a trace of "
    "torch, grid counts blocks: how many warps of 32 has NVIDIA's kernel, how many "
    "wavefronts of 64 AMD's?",
    delay=lesson.number("call to kernel", unit="µs"),
    warps=lesson.number("warps"),
    waves=lesson.number("wavefronts"),
)

# %% launch
nvidia, amd = (
    {event["cat"]: event for event in json.loads(text)["traceEvents"]}
    for text in (NVIDIA, AMD)
)
delay = nvidia["kernel"]["ts"] - nvidia["cuda_runtime"]["ts"]
shapes = nvidia["kernel"]["args"], amd["cuda_runtime"]["args"]  # where they stand
warps, waves = (
    math.prod(shape["grid"]) * math.prod(shape["block"]) // lanes
    for shape, lanes in zip(shapes, (32, 64), strict=True)
)
guess.reveal(
    delay=delay,
    warps=warps,
    waves=waves,
    because="31 - 20; 256 blocks of 8 warps, or of 4 wavefronts.",
)
span = {"start, µs": "ts", "length, µs": "dur"}
lesson.table(
    {e["name"]: {name: e[key] for name, key in span.items()} for e in amd.values()},
    first="event",
)

# %% [markdown] anatomy of a launch
# Read the table as a story. The operator began at 10. For 10 µs torch looked for the right kernel, checked types and
# shapes, made room for the result. The launch call took 6.5 µs. The kernel began 4.5 µs later, ran for 12, and was
# over at 43, while the operator went on until 60: torch wraps up its result, and the profiler's own time is in it. So
# this product cost the host 50 µs and the GPU 12: the host is slow.
#
# Two numbers tie the events. **`correlation`** is the same in a launch and in what it started. `External id` is that of
# the operator. Without them you see only that something ran after something else.
#
# | you look for | CUDA | ROCm |
# |---|---|---|
# | the launch | `cudaLaunchKernel`, category `cuda_runtime` | `hipLaunchKernel`, the same category |
# | a launch of Triton | `cuLaunchKernelEx` | `hipModuleLaunchKernel` |
# | grid, block | in the kernel event | there, in newer versions; else in the launch event |
# | shared memory | in the kernel event | in the launch event |
# | registers | in the kernel event | not in this file: `VGPR_Count` of `rocprofv3` |
# | occupancy | an estimate from the launch; nobody measured it | not there; see sitting 3 |
#
# > **Facts: traces of torch.profiler**
# >
# > - Kernel events of CUDA hold grid, block, registers and shared memory. (source: pytorch/kineto,
# >   libkineto/src/CuptiActivity.cpp)
# > - On ROCm the launch event holds `grid`, `block`, `shared memory`; the kernel event has grid and block where kineto
# >   uses rocprofiler-sdk. (source: pytorch/kineto, libkineto/src/RoctracerActivity_inl.h and RocprofActivity_inl.h)
# > - Triton launches through the driver's interfaces. (source: triton-lang/triton, backends/nvidia/driver.c and
# >   backends/amd/driver.c)
# > - `rocprofv3` writes `Grid_Size` in work-items, not in blocks: divide by the workgroup. (source: sample outputs in
# >   ROCm/rocprofiler-sdk, source/docs/data)
#
# ## 3. A timeline read by eye
#
# A virtual GPU counts, but has no clock. So every timeline of this sitting is **modelled**: one host thread, streams
# that work in order, and costs that are stated, not measured. `lesson.Modelled` holds them:

# %% stated costs
costs = lesson.Costs()
one = torch.ones(1)
lesson.table(
    {
        "a launch, of the host's time, µs": costs.launch / 1000,
        "a kernel, at least, µs": costs.least / 1000,
        "a call that waits, at least, µs": costs.sync / 1000,
        "a copy, before its first byte, µs": costs.latency / 1000,
        "a copy, GB/s": costs.bandwidth,
        "measured: torch's neg_() of one number on this CPU, µs": 1e6
        * bench(lambda: one.neg_(), device="cpu", seconds=0.2).median,
    }
)

# %% [markdown] how the model works
# A kernel starts when its launch call is over and its stream is free. Left out are two kernels that share the GPU, full
# streams, and other programs. The last row is real: what one operator of torch costs this CPU, with nothing to launch.
# On a GPU such a cost comes on top.
#
# > **Facts: what a launch costs**
# >
# > - A kernel of 2.9 µs on a V100 took 9.6 µs with a wait after each launch, 3.8 µs without, and 3.4 µs from a CUDA
# >   graph; making the graph took about 400 µs. (source: NVIDIA,
# >   [Getting Started with CUDA Graphs](https://developer.nvidia.com/blog/cuda-graphs/), CUDA 10.1)
#
# Here is a small program with two faults, and its timeline. The first lane holds the host's own work, the second its
# calls; below is the stream, then the times in which the GPU did nothing. A dashed call waits.


# %% a program with gaps
def program(faults):
    host = lesson.Modelled("nvidia")
    for _ in range(3):
        host.launch("forward", 30_000)  # ns on the GPU
    if faults:
        host.item()  # the loss comes back as a number
        host.work(10_000, "log")
    for _ in range(3):
        host.launch("backward", 30_000)
    if faults:
        host.work(110_000, "read the next batch")
    for _ in range(4):
        host.launch("update", 2_000)
    return host.profile()


gappy = program(faults=True)
lesson.trace_figure(gappy, causes=False)

# %% guess gaps
guess = predict(
    "13.gaps",
    "Which gap has its cause in the loss that is read? Which one in the batch? And "
    "how long is the program, to the end of its last kernel, without these faults?",
    loss=lesson.number("gap of the loss"),
    batch=lesson.number("gap of the batch"),
    length=lesson.number("without faults", unit="µs", factor=1.04),
)

# %% gaps
found = lesson.busy(gappy).devices[0].gaps
loss = next(gap for gap in found if gap.after.startswith("Memcpy"))
batch = next(gap for gap in found if gap.before == "update")
guess.reveal(
    loss=1 + found.index(loss),
    batch=1 + found.index(batch),
    length=program(faults=False).kernels[-1].end / 1000,
    because="one launch, six kernels of 30 µs and four of 2 µs: all the others are "
    "launched while these run.",
)
lesson.trace_figure(gappy)

# %% [markdown] what a timeline shows
# Without the two, even the last gaps go: the four short kernels are in the stream long before their turn. This is how a
# host should be: **ahead**. Its lead is the work that waits in the stream. A wait eats the lead, and every gap begins
# where it is used up.
#
# So read a timeline from the GPU's lanes. Find a gap, look straight up: what did the host do then? A gap under a wait,
# or just behind one, is *sync-bound*; under a row of launches *launch-bound*; under Python's own work the host is
# simply late (the table says `host launches too slowly` to both, and its last column tells which). Where the stream
# copies and no kernel runs, the program is *copy-bound*. (A copy of a few bytes that the host waits for belongs to the
# wait. `host was in a copy call` as the cause of a gap: it was busy starting one.) One section for each; the largest
# gaps have a number.
#
# ## 4. Launch-bound
#
# One change: the same 400 µs of work, in few long kernels or in many short ones. A launch costs the host 5 µs, as
# above.


# %% the same work in n kernels
def in_kernels(many, vendor="amd"):
    host = lesson.Modelled(vendor)
    for _ in range(many):
        host.launch("part", 400_000 // many)
    host.sync()
    return lesson.busy(host.profile()).devices[0], host.now / 1000


# %% guess launch bound
guess = predict(
    "13.launch_bound",
    "Down to which length of a kernel does the GPU never wait? How long does the "
    "program take with 200 kernels of 2 µs, and which share of it does the GPU work?",
    length=lesson.number("shortest kernel without gaps", unit="µs"),
    time=lesson.number("200 kernels", unit="µs", factor=1.03),
    share=lesson.number("GPU works", unit="%", factor=1.05),
)

# %% launch bound
rows, shortest = {}, None
for many in (4, 20, 40, 80, 100, 200):
    device, took = in_kernels(many)
    if not device.gaps:
        shortest = 400 / many
    rows[f"{many} of {400 / many:g} µs"] = {
        "in all, µs": took,
        "gaps": len(device.gaps),
        "GPU works, %": 100 * device.busy / device.window,
    }
guess.reveal(
    length=shortest,
    time=took,
    share=100 * device.busy / device.window,
    because="the host brings a kernel every 5 µs; 200 of them take it 1,000 µs, and "
    "2 of each 5 µs the GPU works.",
)
lesson.table(rows, first="kernels")

# %% [markdown] why the order of questions
# The border is where a kernel is as long as its launch. In real life the host's share is larger: the operator in front
# of the launch (10 µs in section 2) counts as well. Ask it of your own program: a small batch, or one token at a time,
# makes kernels short and leaves the launches as they are.
#
# Now question 2 before question 1. In the program of the next prediction a profiler's list of kernels says: `big` takes
# 60 of 140 µs, the longest by far.

# %% guess twice as fast
guess = predict(
    "13.twice_as_fast",
    "The host launches 20 kernels of 2 µs, then `big`, then 20 more of 2 µs. You "
    "make `big` twice as fast: 30 µs. How much shorter does the program become?",
    saved=lesson.number("saved", unit="µs"),
)


# %% twice as fast
def around_big(ns, graph=False):
    host = lesson.Modelled("nvidia")
    kernels = [("small", 2_000)] * 20 + [("big", ns)] + [("small", 2_000)] * 20
    if graph:
        host.graph(kernels)
    else:
        for name, time in kernels:
            host.launch(name, time)
    host.sync()
    return host.now / 1000


guess.reveal(
    saved=around_big(60_000) - around_big(30_000),
    because="41 launches take the host 205 µs; while `big` runs they pile up, and the "
    "GPU has caught up with them long before the last one.",
)
lesson.table(
    {
        "launched one by one": {
            "big = 60 µs": around_big(60_000),
            "big = 30 µs": around_big(30_000),
        },
        "as one graph": {
            "big = 60 µs": around_big(60_000, graph=True),
            "big = 30 µs": around_big(30_000, graph=True),
        },
    },
    first="in all, µs",
)

# %% [markdown] cures for launches
# Nothing: the host was the limit, before and after. Cures for launch-bound programs are fewer, longer kernels (fusion,
# as in units 04 and 06; a larger batch; `torch.compile`), and **graphs**: the kernels of a step are recorded once and
# started by one call from then on. In the second row the saved 30 µs arrive. A graph needs the same shapes and the same
# addresses each time, and no wait inside.
#
# > **Facts: graphs**
# >
# > - CUDA graphs are launched as a unit, by one submission from the CPU. (source: NVIDIA,
# >   [CUDA Graph](https://docs.nvidia.com/dl-cuda-graph/cuda-graph-basics/cuda-graph.html))
# > - HIP has the same: `hipGraphLaunch`; AMD names frameworks with several layers above a launch as the case for it.
# >   (source: AMD,
# >   [HIP graphs](https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/hip_runtime_api/hipgraph.html))
# > - In torch both are `torch.cuda.graph`, which captures what a block launches. (source:
# >   [torch.cuda.graph](https://docs.pytorch.org/docs/stable/generated/torch.cuda.graph.html))
#
# ## 5. Sync-bound
#
# `loss.item()` copies four bytes back and waits for them. The copy stands in the stream behind everything launched so
# far, so the host waits for all of it: its lead is gone. Then the GPU waits until the host has worked and launched
# again.


# %% reading the loss
def training(steps, every):
    host = lesson.Modelled("amd")
    for step in range(1, steps + 1):
        host.work(15_000, "python")  # the host's own work in a step
        for _ in range(6):
            host.launch("layer", 20_000)
        if step % every == 0:
            host.item()
    host.sync()
    return host


# %% guess sync
guess = predict(
    "13.sync",
    "A step is 15 µs of Python, 6 launches, and 120 µs of kernels; the copy of 4 "
    "bytes takes 8 µs. How long is a step without item()? With one in every step?",
    without=lesson.number("without", unit="µs a step", factor=1.02),
    each=lesson.number("with item() each step", unit="µs a step", factor=1.02),
)

# %% sync
STEPS = 60
times = {every: training(STEPS, every).now / STEPS / 1000 for every in (1, 10, STEPS)}
guess.reveal(
    without=times[STEPS],
    each=times[1],
    because="the kernels alone, 120; with a wait 15 and one launch come before them, "
    "and 8 behind: nothing runs beside anything else.",
)
names = ("in each step", "in one step of 10", "in the last step alone")
lesson.table(dict(zip(names, times.values(), strict=True)), first="item(), µs a step")

# %% the host waits
lesson.trace_figure(training(3, 1).profile())

# %% [markdown] waits in disguise
# Look at the operator lane: `aten::item` is the longest thing that the host does. It is not slow. It waits for kernels,
# and a list of operators by CPU time blames it for them. Without it the wait would stand somewhere else, or nowhere.
#
# Waits come in disguise: `.item()`, `.cpu()`, `print(loss)`, `if loss > 3`, `x[mask]` (how many rows?). One in ten
# steps costs next to nothing. `torch.cuda.set_sync_debug_mode("warn")` names the lines, on ROCm as well.
#
# > **Facts: waits**
# >
# > - `print`, `.item()`, copies to and from the GPU, `nonzero()` (which `x[mask]` needs), and control flow on a tensor
# >   of the GPU wait. (source: PyTorch,
# >   [Performance Tuning Guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html))
# > - `item()` calls `cudaMemcpyAsync`, `cudaStreamSynchronize` on CUDA; on ROCm, by the version, the same two of HIP,
# >   or `hipMemcpyWithStream`, which does both. (source: pytorch/pytorch, c10/cuda/CUDAFunctions.h, `memcpy_and_sync`)
# > - The debug mode is experimental, and does not find every wait. (source:
# >   [torch.cuda.set_sync_debug_mode](https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_sync_debug_mode.html))
#
# ## 6. Copy-bound
#
# Each step needs a batch of 4 MB from the host: 8 µs and 4,000,000 bytes / 25 GB/s, so 168 µs. Its 6 kernels take 240
# µs. There are three ways to bring it:
#
# - **Blocking**: `batch.to("cuda")` from ordinary, *pageable* memory. The call returns when the copy is done.
# - **Pinned**: memory that the system may not move, as `DataLoader(pin_memory=True)` gives it, and
#   `.to("cuda", non_blocking=True)`. The host goes on; the copy stands in the stream.
# - **Own stream**: pinned, and on a second stream, one step ahead. The kernels' stream waits for an *event*, which the
#   copy's stream reaches when the copy is over.


# %% three ways to copy
def fed(way, steps=20, vendor="nvidia"):
    host = lesson.Modelled(vendor)
    side = host.stream + 6 if way == "own stream" else host.stream
    for step in range(steps):
        if way != "own stream" or step == 0:
            host.copy(4_000_000, stream=side, blocking=way == "blocking")
        host.wait(host.record(side))  # the stream waits, not the host
        for _ in range(6):
            host.launch("layer", 40_000)
        if way == "own stream" and step + 1 < steps:
            host.copy(4_000_000, stream=side)  # the next batch, beside these kernels
    host.sync()
    return host


# %% guess copies
guess = predict(
    "13.copies",
    "How long is a step, of many? Blocking, the next launch begins after the copy.",
    blocking=lesson.number("blocking", unit="µs", factor=1.02),
    pinned=lesson.number("pinned, same stream", unit="µs", factor=1.02),
    own=lesson.number("pinned, own stream", unit="µs", factor=1.02),
)

# %% copies
ways = {}
for way in ("blocking", "pinned", "own stream"):
    short, long = fed(way, 20), fed(way, 120)
    device = lesson.busy(long.profile()).devices[0]
    ways[way] = {
        "µs a step": (long.now - short.now) / 100 / 1000,
        "GPU works, %": 100 * device.busy / device.window,
        "kernels run, %": 100 * device.kernels / device.window,
        "of the copies, beside kernels, %": 100 * device.overlapped / device.copies,
    }
guess.reveal(
    blocking=ways["blocking"]["µs a step"],
    pinned=ways["pinned"]["µs a step"],
    own=ways["own stream"]["µs a step"],
    because="240 + 168 and a launch of 5; 240 + 168; the longer of the two.",
)
lesson.table(ways, first="copy")

# %% [markdown] busy with what
# Pinning alone saves the host's time, here 5 µs of 413: in one stream things still take turns. Only the second stream
# lets a copy run *beside* kernels. And see the column *GPU works*: by our count, copies included, the blocking program
# keeps the GPU busy for 99% of the time. `nvidia-smi`, which counts kernels alone, would say 58%, and its 100% does not
# mean well used either. **Ask what it is busy with.**
#
# > **Facts: copies, and a percentage**
# >
# > - The GPU utilization of NVML and `nvidia-smi` is the share of time in which one or more kernels executed: one small
# >   kernel is enough. (source: NVIDIA,
# >   [NVML](https://docs.nvidia.com/deploy/nvml-api/structnvmlUtilization__t.html), nvmlUtilization_t)
# > - CUDA: a copy from pageable memory waits for its stream first, then passes through a staging buffer; the call
# >   returns when the buffer has been read. (source: NVIDIA,
# >   [API synchronization behavior](https://docs.nvidia.com/cuda/cuda-driver-api/api-sync-behavior.html)) The model
# >   waits for the whole copy.
# > - HIP: if host memory is not pinned, `hipMemcpyAsync` copies synchronously. (source: HIP, hip_runtime_api.h, at
# >   `hipMemcpyAsync`)
# > - `tensor.pin_memory().to(...)` in the training loop can be slower than a plain `to`: pinning is a copy, too. Pin in
# >   the `DataLoader`. (source: PyTorch,
# >   [A guide on good usage of non_blocking and pin_memory](https://pytorch.org/tutorials/intermediate/pinmem_nonblock.html))
#
# Try it. Choose a program, move the sliders. In `launch-bound` find the kernel length at which the gaps close, then
# double the launch cost. In `overlap` make the kernels so short that the copies are the limit.

# %% explore timeline
explore("timeline", "copy", kernel=20)

# %% [markdown] a real profile
# ## 7. GPT-2's step, before and after
#
# Now something real. Below is GPT-2 in small, a training step of unit 01, once with attention as unit 01 writes it (the
# scores stand in memory), once with one fused operator, as unit 06 builds it. On this machine a profile shows
# operators; with a GPU the same three lines show its kernels too:
#
# ```python
# with torch.profiler.profile() as trace:
#     step(model)
# trace.export_chrome_trace("trace.json")      # the file of section 2
# print(trace.key_averages().table(sort_by="self_cpu_time_total"))
# ```
#
# `lesson.operator_shares(call)` does this, and gives calls and time of each operator.

# %% attention twice
shape = lesson.GPT2Config(1024, n_positions=512, n_embd=128, n_layer=2, n_head=4)
models = {}
for how in ("explicit", "sdpa"):
    torch.manual_seed(0)
    models[how] = lesson.GPT2(shape, attention=how)
tokens = torch.randint(1024, (1, 512))


def gradients(how):
    models[how].zero_grad()
    lesson.batch_loss(models[how], tokens, tokens).backward()
    return models[how].wte.weight.grad


error = (gradients("explicit") - gradients("sdpa")).abs().max()
print(f"largest difference of the gradients: {error:.1e}")
print(lesson.code(lesson.causal_attention))

# %% guess attention
guess = predict(
    "13.attention",
    "`explicit` has two products `@` in each of 2 layers, and backward has two for "
    "each of them. All are calls of aten::bmm: how many are in the step, and how many "
    "with the fused operator? As many aten::addmm, the linear layers? Which is faster?",
    bmm=lesson.number("bmm, explicit"),
    left=lesson.number("bmm, fused"),
    addmm=lesson.yes_no("as many addmm as before"),
    faster=lesson.choice("fused", "explicit", "not to be told"),
)

# %% attention before and after
before = lesson.operator_shares(lambda: gradients("explicit"))
after = lesson.operator_shares(lambda: gradients("sdpa"))
SHOWN = "bmm _softmax _softmax_backward_data masked_fill_ div copy_ addmm mm"
shown = [f"aten::{name}" for name in SHOWN.split()]
shown += [name for name in after if "attention" in name]
none = {"calls": 0}
calls = {
    name: {
        "explicit": before.get(name, none)["calls"],
        "fused": after.get(name, none)["calls"],
    }
    for name in shown
}
ratio = bench(
    lambda: gradients("sdpa"), against=lambda: gradients("explicit"), device="cpu"
)
faster = "not to be told"
if ratio.low > 1 or ratio.high < 1:  # the middle half of the pairs on one side
    faster = "fused" if ratio.low > 1 else "explicit"
guess.reveal(
    bmm=calls["aten::bmm"]["explicit"],
    left=calls["aten::bmm"]["fused"],
    addmm=calls["aten::addmm"]["explicit"] == calls["aten::addmm"]["fused"],
    faster=faster,
    because="2 layers × 2 products × 3, one forward and two backward; the fused "
    "operator has a backward of its own. How sure the time is: below the table.",
)
lesson.table(
    calls,
    first="calls in a step",
    note=f"Measured on this CPU: {ratio.fn.runs} pairs of steps in turn. Explicit took "
    f"{ratio.ratio:.2f} times as long, in the middle half {ratio.low:.2f} to "
    f"{ratio.high:.2f}.",
)

# %% [markdown] what nobody wrote
# Products, softmax and mask are gone, and one operator stands in their place, with its backward. The linear layers stay
# as they are. And look at `aten::copy_`: nobody wrote one. A trace nests operators, so it knows who called them:

# %% who copies
explicit = lesson.callers(lambda: gradients("explicit"), "aten::copy_")
fused = lesson.callers(lambda: gradients("sdpa"), "aten::copy_")
lesson.table(
    {who: {"explicit": explicit[who], "fused": fused.get(who, 0)} for who in explicit},
    first="copies in a step, called by",
)

# %% [markdown] what it shows
# `masked_fill` fills a *copy* of the scores, forward and backward; dividing by a number of Python makes it a tensor;
# and heads must be laid side by side again. The fused operator hands them over in the right layout. On a GPU each copy
# of the scores would be a launch and a pass through memory. A profile shows what your code really calls.
#
# What this cannot show: times of a GPU. The ratio is this CPU's.
#
# ## 8. A program that you did not write
#
# Last, a training program that runs on a virtual GPU, and the trace that it leaves: counted there, with modelled times,
# in the file format of section 2, read by the reader that reads real ones. It may have a fault.

# %% a run with an unknown fault
run = lesson.planted(34)
lesson.trace_figure(run.profile, end=150_000, causes=False)  # the first 150 µs

# %% guess unknown fault
guess = predict(
    "13.unknown_fault",
    "What is this program bound by?",
    bound=lesson.choice("launches", "waits", "copies", "none of them"),
)

# %% unknown fault
bound = {"launch_bound": "launches", "host_sync": "waits"}
guess.reveal(
    bound=bound.get(run.fault, "none of them"),
    because="after each kernel the host reads a number (aten::isfinite), waits for it "
    "and looks at it, with nothing in the stream. The copies are those numbers.",
)
lesson.trace_figure(run.profile)

# %% [markdown] on your machine
# ## 9. The same on your machine
#
# By hand (sources: [Nsight Systems](https://docs.nvidia.com/nsight-systems/UserGuide/index.html),
# [rocprofv3](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html)):
#
# ```bash
# nsys profile --trace=cuda,nvtx -o run python train.py
# nsys export --type sqlite -o run.sqlite run.nsys-rep
#
# rocprofv3 --hip-trace --kernel-trace --memory-copy-trace \
#     --output-format csv -d run -- python train.py
# ```
#
# `./w2w profile` reads what the tools of both vendors write. It starts them, too: `rocprofv3`, `ncu` or `nsys`, and
# where there is none torch.profiler.
#
# | command | what it does |
# |---|---|
# | `./w2w profile trace.json` | busy share and gaps, the kernels, what limits each, what to try |
# | `./w2w profile trace.json --html report.html` | the same as a page: timeline with gaps, kernels, roofline |
# | `./w2w profile -- python train.py` | runs it under the tool that this machine has, and says which |
#
# It answers in the order of section 1. For the run of section 8 it begins so:
#
# ```text
# GPU 0: busy 55 % of 884 us (kernels 38.2 %, copies 16.8 %), 26 gaps
# (225 us host launches too slowly; 150 us host waited for the GPU (sync); 22.8 us host was in a copy call)
# ```
#
# If it says that the GPU is idle for half of the time, stop reading: close the gaps first.
#
# **You have** traces of both vendors, and a name for each gap: launch-bound, sync-bound, copy-bound, or a host that is
# late. In the lab: 13.read_trace, 13.gpu_idle. Next: the GPU is busy. With which kernel, and what limits it?

# %% first sitting ends
lesson.sitting("13", 1)

# %% [markdown] which kernel
# # Sitting 2: which kernel, and what limits it?
#
# ## 10. The top of the list
#
# The GPU is busy, as far as you could make it. With what? A profile has one row for each launch of a kernel. Add up
# the time of the rows by name, and put the longest sum first. That is all, and it decides where you look. (Not the
# longest launch: a short kernel that is launched often may cost more.)
#
# Here is a small training program: three steps of one layer, all by hand-written kernels, the same that section 8 ran.
# It runs on a virtual A100 (`sm_80`) and a virtual MI300X (`gfx942`). A virtual GPU has no clock. So the times are
# **modelled** from what was counted, by a stated rule, for a GPU with a single SM or CU. They are good to practise on;
# they say nothing about a chip, and nothing about which of the two is faster.

# %% launches of a step
TARGETS = "sm_80", "gfx942"
tables = {target: lesson.small_run(target).profile.table() for target in TARGETS}
by_name = {target: rows.groupby("name")["duration"] for target, rows in tables.items()}
lesson.table(
    {
        name: {"launches": len(ns), "ns of one, sm_80": by_name["sm_80"].mean()[name]}
        | {"ns of one, gfx942": ns.mean()}
        for name, ns in by_name["gfx942"]
    },
    first="kernel, modelled",
)

# %% [markdown] Amdahl
# Now suppose that you make one kernel k times as fast. Its share of the time is s; the rest, 1 - s, stays. So the whole
# becomes
#
# $$ \frac{1}{(1 - s) + s / k} $$
#
# times as fast: **Amdahl's law**. Example: s = 0.5 and k = 2 give 1 / (0.5 + 0.25) = 1.33. With s = 0.2 even
# $k = \infty$, a kernel that takes no time, gives no more than 1 / 0.8 = 1.25.

# %% guess top
guess = predict(
    "13.top",
    "gfx942: which kernel is at the top of the list, and what percentage of the time "
    "of all kernels is its own? How many times as fast are all of them together, if it "
    "becomes twice as fast? And if instead `activation` took no time at all?",
    first=lesson.choice(*by_name["gfx942"].groups, label="at the top"),
    share=lesson.number("its share", unit="%", factor=1.05),
    twice=lesson.number("the first twice as fast", factor=1.02),
    gone=lesson.number("no activation", factor=1.02),
)

# %% the list
sums = {target: each.sum() for target, each in by_name.items()}
shares = {target: ns / ns.sum() for target, ns in sums.items()}
amd = shares["gfx942"].sort_values(ascending=False)
guess.reveal(
    first=amd.index[0],
    share=100 * amd.iloc[0],
    twice=1 / (1 - amd.iloc[0] / 2),
    gone=1 / (1 - amd["activation"]),
    because="time of one x launches, over the sum; 1 / (1 - s + s/2); 1 / (1 - s).",
)
lesson.table(
    {
        name: {
            "share, sm_80, %": 100 * shares["sm_80"][name],
            "share, gfx942, %": 100 * share,
            "all, if it is twice as fast": 1 / (1 - share / 2),
            "all, if it takes no time": 1 / (1 - share),
        }
        for name, share in amd.items()
    },
    first="kernel, modelled",
    note="the last two columns: gfx942",
)

# %% [markdown] what the list tells
# The last column is the most that any work on this kernel can bring. Read it before you begin: it is cheaper than a
# week. It counts the kernels' time alone. Where the GPU is idle for a part of the step (sitting 1) the step gains less.
#
# So the list names a kernel. The next question is what limits it, and times cannot answer that. **Counters** can:
# small registers in the hardware that count events, such as bytes, instructions, conflicts.
#
# ## 11. One kernel, two profilers
#
# This kernel doubles a million floats. It is launched once on each virtual GPU, with 256 threads a block.
# `lesson.profile_files` writes down what was counted in the form in which each vendor's profiler does: Nsight Compute
# (`ncu --csv`), and rocprofv3 with `--kernel-trace` and `--pmc`. (Since ROCm 7 rocprofv3 writes a database unless
# `--output-format csv` is given.)


# %% double
@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, 2 * x, mask=at < n)


n = 1_000_000
x, y = torch.randn(n), torch.empty(n)
blocks = triton.cdiv(n, 1024)
gpus = lesson.launch_on(
    TARGETS, double_kernel, (blocks,), x, y, n, BLOCK=1024, threads=256, l2=True
)
files = {target: lesson.profile_files(gpu) for target, gpu in gpus.items()}
lesson.table(
    [
        {"target": target, "file": name, "lines": text.count("\n"), "bytes": len(text)}
        for target, texts in files.items()
        for name, text in texts.items()
    ]
)

# %% [markdown] what stands in the files
# Three things to know before you open them:
#
# - **The grid.** NVIDIA counts it in blocks. rocprofv3 copies it from the packet that the GPU's queue got, and there
#   it is in **work-items**: threads, all blocks together.
# - **Bytes.** NVIDIA's `dram__bytes_read.sum` is in bytes. AMD's `FETCH_SIZE` is in "kilobytes" of 1,024 bytes.
# - **Numbers.** ncu writes thousands separators, in quotes: a program that splits at commas breaks.
#
# A block works on 1,024 elements of 4 bytes, with 256 threads. Every element is read once, and no cache line twice.

# %% guess files
guess = predict(
    "13.two_files",
    "What stands in the files: the x of ncu's Grid Size, rocprofv3's Grid_Size_X, and "
    "FETCH_SIZE?",
    nvidia=lesson.number("Grid Size, ncu"),
    amd=lesson.number("Grid_Size_X, rocprofv3"),
    fetch=lesson.number("FETCH_SIZE", factor=1.001),
)


# %% two files
def lines(text, *words):  # the header, and those lines that have one of the words
    kept = [line for line in text.splitlines() if not line.startswith("==PROF==")]
    return [line for line in kept if any(w in line for w in ("Kernel_Name", *words))]


trace = files["gfx942"]["kernel_trace.csv"]
counters = files["gfx942"]["counter_collection.csv"]
print("ncu --csv:", *lines(files["sm_80"]["ncu.csv"], '"ID"', "dram__bytes_"), sep="\n")
print("\nrocprofv3 --kernel-trace:", *lines(trace, "double"), sep="\n")
print("\nrocprofv3 --pmc:", *lines(counters, "SQ_WAVES", "_SIZE"), sep="\n")
double = {target: lesson.read_texts(texts) for target, texts in files.items()}
guess.reveal(
    nvidia=double["sm_80"].kernels[0].value("grid")[0],
    amd=256 * double["gfx942"].kernels[0].value("grid")[0],
    fetch=double["gfx942"].kernels[0].value("memory_read") / 1024,
    because="977 blocks; 977 x 256 work-items, those of the last block too; "
    "4,000,000 / 1,024.",
)

# %% [markdown] long and wide
# This is ncu's **long** form: one row for each launch *and metric*. Whoever counts rows to count launches is off by
# the number of metrics. rocprofv3's counter file is long too. `ncu --csv --page raw` is **wide**: one row a launch, a
# column a metric, and a second header row with the units. The right end of its lines:

# %% wide form
wide = lesson.profile_files(gpus["sm_80"], wide=True)["ncu.csv"]
print(*[line[-150:] for line in lines(wide, '"ID"', '"byte"', "double")], sep="\n")

# %% [markdown] both sides read
# Read both sides into one table, with one unit for one thing, and keep where each figure came from. You write such
# readers in the lab; the course's own reads all of these files. A figure that begins with `=` was worked out from
# others, as the formula says.

# %% one table
frames = {target: profile.figures() for target, profile in double.items()}
names = ["grid", "block", "waves", "memory_read", "memory_written", "registers"]
lesson.table(
    {
        name: {
            f"{target}, {what}": frame.set_index("figure").loc[name, what]
            for target, frame in frames.items()
            for what in ("value", "source")
        }
        for name in names
    },
    first="figure",
)

# %% [markdown] passes
# How many counters can a chip hold at a time? Fewer than one asks for. The rest needs another go: a *pass*. ncu runs
# the *kernel* again, as often as it takes ("8 passes" in its output), and puts the memory back in between. rocprofv3
# runs the whole *program* again for each group: each `pmc:` line of its input file is one run. So on AMD two figures of
# one row may come from two runs. A ratio of them is safe only if the runs did the same.
#
# > **Facts: groups of counters**
# >
# > - Counters of one `--pmc` must fit in one pass; each `pmc:` line of an input file is a run of the application.
# >   (source: [Using rocprofv3](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html))
# > - ncu replays kernels by default and saves and restores the memory that they write. (source:
# >   [Nsight Compute CLI](https://docs.nvidia.com/nsight-compute/NsightComputeCli/index.html), `--replay-mode`)
# > - Grid Size of a dispatch on AMD: the total number of work-items. (source: ROCm Compute Profiler,
# >   [pipeline metrics](https://rocm.docs.amd.com/projects/rocprofiler-compute/en/develop/conceptual/pipeline-metrics.html))
#
# ## 12. Counters and counterparts
#
# Which of AMD's counters answers the question for which you know NVIDIA's metric? Here are the pairs of this sitting.
# "well": the numbers compare. "fair": they compare, if you mind the note. "loosely": only their changes compare, each
# with itself. "none": one side has nothing, and ▸ marks the row.

# %% counterparts used here
lesson.counterparts(
    "blocks",
    "warps or waves launched",
    "bytes from and to memory",
    "coalescing",
    "bank conflicts",
    "lanes that are on",
    "fp32 work",
    "matrix work",
    "occupancy possible, and its limit",
    "one bar for compute and memory",
    "work of the scalar unit",
)

# %% [markdown] no counterpart
# Two gaps hurt in practice. ncu says by itself how full an SM *could* be and what keeps more waves out; on AMD you work
# it out from registers, LDS and block size (13.occupancy_from_counters). And ncu has one bar for "how near to a limit";
# AMD's rocprofiler-compute makes a table of its own. `lesson.counterparts()` has all rows, with a few for AMD alone.
#
# The next three sections take three rows of this table, change one thing, and look at both sides.
#
# ## 13. Coalescing
#
# Each thread loads one float, `stride` elements after its neighbour's. NVIDIA counts **sectors**, 32 bytes, for each
# load of a warp: 32 lanes x 4 bytes in a row are 128 bytes, 4 sectors. More is waste. AMD counts the **lines** that
# its first-level cache looks up, 128 bytes on an MI300X: 64 lanes x 4 bytes in a row are 2 lines. This counter,
# `TCP_TOTAL_CACHE_ACCESSES`, has loads and stores together, so divide by both kinds of instructions. (`TCP_TOTAL_READ`
# counts reads alone; whether its unit is a line was not checked here.) The store here is in a row, whatever the
# stride.


# %% strided
@triton.jit
def strided_kernel(x_ptr, y_ptr, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at * stride))


# %% guess coalescing
guess = predict(
    "13.coalescing_counters",
    "Stride 8: a lane's 4 bytes lie 32 bytes after its neighbour's. What do the two "
    "ratios say? And whose ratio still grows from stride 8 to stride 32?",
    nvidia=lesson.number("A100: sectors for each load of a warp"),
    amd=lesson.number("MI300X: lines for each load or store of a wave"),
    grows=lesson.choice("A100's", "MI300X's", "both", "none", label="grows"),
)

# %% coalescing counters
rows = {}
for stride in (1, 2, 8, 32):
    x, y = torch.randn(65536 * stride), torch.empty(65536)
    found = lesson.launch_on(
        TARGETS, strided_kernel, (256,), x, y, stride, BLOCK=256, threads=256, l2=True
    )
    a, b = (
        lesson.read_texts(lesson.profile_files(g)).kernels[0] for g in found.values()
    )
    vector = b.value("load_instructions") + b.value("store_instructions")
    rows[stride] = {
        "A100, sectors / load": a.value("load_sectors") / a.value("load_requests"),
        "MI300X, lines / load or store": b.value("cache_lines") / vector,
        "A100, bytes read / float": a.value("memory_read") / 65536,
        "MI300X, bytes read / float": b.value("memory_read") / 65536,
    }
nv, am = "A100, sectors / load", "MI300X, lines / load or store"
more = [rows[32][name] > rows[8][name] for name in (nv, am)]
guess.reveal(
    nvidia=rows[8][nv],
    amd=rows[8][am],
    grows={(1, 0): "A100's", (0, 1): "MI300X's", (1, 1): "both"}.get(
        tuple(more), "none"
    ),
    because="a sector for each lane is the worst that there is, 32. A line of 128 "
    "bytes has 4 lanes: 16 lines for the load, 2 for the store, so 9 on average.",
)
lesson.table(rows, first="stride")

# %% [markdown] what coalescing counters say
# On paper both say the same: few neighbours, much waste. But the worst value is 32 there and, with the store averaged
# in, 33 here; the ideal is 4 there and 2 here. So never compare the two ratios. Compare each with its own ideal, and
# with itself before and after a change.
#
# The right half of the table is what it costs: bytes from memory for each float that is used. At stride 32 an MI300X
# fetches 128 bytes for 4. Its lines are longer, so a bad stride costs more.
#
# > **Facts: the model and a chip**
# >
# > - On an H100, Nsight Compute and the virtual GPU counted the same sectors, requests, loads and warps in 7 of 7
# >   launches, and never the same bytes from memory: those come from a model of the L2 here. (measured:
# >   H100, triton 3.6.0, driver 580.159.04, 2026-11-26; docs/benchmarks.md of the course)
# >
# > Nothing has run on AMD silicon: no counter of AMD's has been compared with a chip.
#
# ## 14. Bank conflicts
#
# The same question in shared memory. A block of 256 threads turns a tile of 32 x 32 floats: it writes rows, and reads
# columns. With rows of 32 floats a column lies in one bank (lesson 02). NVIDIA counts **passes** over shared memory
# (not the passes of section 11): a load of a warp needs one, and one more for each conflict. AMD counts **cycles** in
# which the LDS was busy, and those of them that conflicts cost. A wave has 64 lanes: its lower and its upper 32 are
# served one after the other, at best in a cycle each.

# %% turned in shared memory
SOURCE = """
__global__ void turn(const float *x, float *y, int pitch) {
    __shared__ float tile[32 * 33];
    int column = threadIdx.x % 32, first = threadIdx.x / 32;
    for (int row = first; row < 32; row += 8)
        tile[row * pitch + column] = x[row * 32 + column];
    __syncthreads();
    for (int row = first; row < 32; row += 8)
        y[row * 32 + column] = tile[column * pitch + row];
}
"""

# %% guess banks
guess = predict(
    "13.bank_counters",
    "Rows of 32 floats. How many conflicts does one load of a column cause: passes for "
    "a warp, cycles for a wave? Writes cause none; loads and writes are equally many. "
    "What share of all passes and of all cycles are conflicts?",
    passes=lesson.number("A100: conflicts of one load, in passes"),
    cycles=lesson.number("MI300X: conflicts of one load, in cycles"),
    share=lesson.number("share of all, on either", unit="%", factor=1.03),
)

# %% bank counters
rows = {}
for pitch in (32, 33):
    x, y = torch.randn(32, 32), torch.empty(32, 32)
    found = lesson.launch_cpp(TARGETS, SOURCE, "turn", 1, 256, [x, y, pitch])
    assert torch.equal(y, x.T)
    a, b = (
        lesson.read_texts(lesson.profile_files(g)).kernels[0] for g in found.values()
    )
    for name, one, lanes, conflicts, whole in (
        ("A100", a, 32, "conflict_passes", "shared_passes"),
        ("MI300X", b, 64, "conflict_cycles", "shared_cycles"),
    ):
        rows[f"{name}, rows of {pitch}"] = {
            "counted as": whole.removeprefix("shared_"),
            "all": one.value(whole),
            "conflicts": one.value(conflicts),
            "conflicts / load": one.value(conflicts) / (32 * 32 / lanes),
            "share, %": 100 * one.value(conflicts) / one.value(whole),
        }
guess.reveal(
    passes=rows["A100, rows of 32"]["conflicts / load"],
    cycles=rows["MI300X, rows of 32"]["conflicts / load"],
    share=rows["MI300X, rows of 32"]["share, %"],
    because="32 lanes in one bank: 1 pass and 31 more; twice that for 64 lanes. Of "
    "32 + 1 passes, a load and a write, 31 are conflicts.",
)
lesson.table(rows, first="")

# %% [markdown] share compares
# So "conflicts a load" is 31 on one side and 62 on the other, for the same program and the same mistake. The **share**
# is the same: compare that. Rows of 33 floats mend it on both. (The sums agree here because this model charges a cycle
# for each pass. What an MI300X charges was not measured: one more reason to compare shares.)
#
# > **Facts: what counts as a conflict**
# >
# > - A load of 16 bytes a lane takes four passes at best: 32 x 16 bytes at 128 bytes a pass. Those four count as no
# >   conflict. (source: figures of a user's profile in
# >   [NVIDIA's forum, 359822](https://forums.developer.nvidia.com/t/clarification-bank-conflicts-metric-vs-wavefronts-for-shared-memory-lds-128/359822))
# > - AMD's rate of bank conflicts: the share of active LDS cycles that went into conflicts. (source: ROCm Compute
# >   Profiler, [Local data share](https://rocm.docs.amd.com/projects/rocprofiler-compute/en/develop/conceptual/local-data-share.html))
#
# ## 15. FLOP from counters
#
# NVIDIA counts *threads*: how many threads did an addition, a multiplication, a fused multiply-add (2 FLOP). A lane
# that is off does not count. AMD counts *instructions of waves*: `SQ_INSTS_VALU_FMA_F32` and its like. The usual way to
# FLOP is times 64 (and times 2 for a fused one), as if every lane were on.
#
# In this kernel half of the 4,096 threads do 64 fused multiply-adds each, the others none. `run` says which half: with
# 1 every other thread works; with 32 it is 32 off, 32 on, and so on; with 64 it is 64 off, 64 on.

# %% some lanes
SOURCE = """
__global__ void some_lanes(float *x, float a, int run) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[at];
    if (at & run)
        for (int i = 0; i < 64; ++i) v = fmaf(v, a, 1.0f);
    x[at] = v;
}
"""

# %% guess flop
guess = predict(
    "13.flop_counters",
    "Really done: 2,048 threads x 64 x 2 = 262,144 FLOP, however long the runs. What "
    "does each side's sum say?",
    nvidia=lesson.number("A100, runs of 1"),
    amd=lesson.number("MI300X, runs of 1"),
    amd_64=lesson.number("MI300X, runs of 64"),
)

# %% flop counters
rows = {}
for run in (1, 32, 64):
    x = torch.randn(4096)
    found = lesson.launch_cpp(TARGETS, SOURCE, "some_lanes", 16, 256, [x, 0.5, run])
    on = lesson.issued(found, "fma")
    for target, gpu in found.items():
        profile = lesson.read_texts(lesson.profile_files(gpu))
        rows[f"{target}, {run}"] = {
            "fma of warps or waves": on[target]["issued"],
            "% of lanes on": on[target]["% of lanes on"],
            "FLOP from counters": profile.kernels[0].value("fp32_flop"),
        }
guess.reveal(
    nvidia=rows["sm_80, 1"]["FLOP from counters"],
    amd=rows["gfx942, 1"]["FLOP from counters"],
    amd_64=rows["gfx942, 64"]["FLOP from counters"],
    because="threads that are off count on AMD, as long as one lane of the wave is on: "
    "64 waves x 64 instructions x 64 lanes x 2.",
)
lesson.table(
    rows,
    first="target, run",
    note="NVIDIA: fadd + fmul + 2 ffma, threads. AMD: 64 (ADD + MUL + 2 FMA), waves.",
)

# %% [markdown] upper bound
# AMD's figure is an **upper bound**: exact if no lane is off, else too large. `VALUUtilization`, the percentage of
# lanes that are on, repairs it on average. With runs of 32 the two machines differ in deed, not only in counting: half
# of the warps of 32 skip the loop, and no wave of 64 does.
#
# A second trap: counters count *instructions*, not your formula. A division or an exponential becomes several, and not
# the same ones on both sides. Section 16 shows one.
#
# ## 16. The roofline from counters
#
# Bytes and FLOP of a launch give its FLOP per byte, and the roofline of lesson 02 gives what bounds it: memory to the
# left of the ridge, arithmetic to the right. Three kernels: the doubling from above; a softmax of 512 rows of 1,000
# floats, each read and written once (a row ends inside a line of 128 bytes, which two dies of an MI300X may both
# read); a product of two 512 x 512 matrices in float16, in tiles of 64 x 64. All three stand under the roof of
# float16; for the first two, far to the left, it makes no difference.


# %% softmax and product
@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + at, mask=at < n, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + tl.program_id(0) * n + at, y, mask=at < n)


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, N, 32):
        a = tl.load(a_ptr + row * N + start + tl.arange(0, 32)[None, :])
        b = tl.load(b_ptr + (start + tl.arange(0, 32)[:, None]) * N + column)
        total = tl.dot(a, b, total)
    tl.store(c_ptr + row * N + column, total.to(tl.float16))


# %% [markdown] figures of the product
# For the prediction: the product takes $2 \cdot 512^3$ = 268 million FLOP. A, B and C have 0.5 MiB each. Float16 has
# its ridge at 153 FLOP per byte on an A100 and at 247 on an MI300X.
#
# Where do the counters have those FLOP? AMD counts matrix work in units of 512 operations (`..._MFMA_MOPS_F16`).
# NVIDIA's `sm__inst_executed_pipe_tensor.sum` counts instructions, and one must know what one does: `mma.m16n8k16`,
# which Triton takes for an A100, is $2 \cdot 16 \cdot 8 \cdot 16$ = 4,096 FLOP.
#
# An A100 has, in this model, one L2, an MI300X eight, one for each die. Block i goes to die i mod 8, and the tile's row
# counts up first: so die 0 computes the first row of tiles, die 1 the second, and so on. Each die needs its own rows of
# A, and all of B. Nothing that one die's L2 has helps another's.

# %% guess roofline
guess = predict(
    "13.roofline_counters",
    "How many MiB does the product read on each? And what bounds it (FLOP over bytes "
    "read and written, against the ridge)?",
    a100=lesson.number("A100 reads", unit="MiB", factor=1.02),
    mi300x=lesson.number("MI300X reads", unit="MiB", factor=1.02),
    bound_a100=lesson.choice("memory", "compute", label="A100"),
    bound_mi300x=lesson.choice("memory", "compute", label="MI300X"),
)

# %% roofline counters
a, b = (torch.randn(512, 512, dtype=torch.float16) for _ in range(2))
c, x, y = torch.empty_like(a), torch.randn(512, 1000), torch.empty(512, 1000)
softmax = lesson.launch_on(
    TARGETS, softmax_kernel, (512,), x, y, 1000, BLOCK=1024, threads=256, l2=True
)
product = lesson.launch_on(
    TARGETS, product_kernel, (8, 8), a, b, c, 512, BLOCK=64, threads=256, l2=True
)
points, rows = {}, {}
for target, chip in zip(TARGETS, ("A100", "MI300X"), strict=True):
    roof = lesson.roofline(chip, "bf16")
    for name, found in (("double", gpus), ("softmax", softmax), ("product", product)):
        one = lesson.read_texts(lesson.profile_files(found[target])).kernels[0]
        flop = one.value("fp32_flop")
        if target == "sm_80":
            flop += 4096 * one.value("matrix_instructions")
        else:
            flop += one.value("matrix_flop")
        point = lesson.Point(f"{name}, {target}", flop, one.value("memory_bytes"))
        points[name, chip] = point
        rows[point.name] = {
            "million FLOP": flop / 1e6,
            "MiB read": one.value("memory_read") / 2**20,
            "MiB written": one.value("memory_written") / 2**20,
            "FLOP per byte": point.intensity,
            "bound": roof.bound(point.intensity),
        }
guess.reveal(
    a100=rows["product, sm_80"]["MiB read"],
    mi300x=rows["product, gfx942"]["MiB read"],
    bound_a100=rows["product, sm_80"]["bound"],
    bound_mi300x=rows["product, gfx942"]["bound"],
    because="0.5 + 0.5 MiB, or 0.5 of A and 8 x 0.5 of B. 268 million over 1.5 and "
    "over 5 MiB are 171 and 51 FLOP per byte.",
)
lesson.table(rows, first="kernel")

# %% the points on both rooflines
explore(
    "roofline", chips=["A100", "MI300X"], points=list(points.values()), dtype="bf16"
)

# %% [markdown] what the points say
# Same work, same kernel: on the A100's model arithmetic bounds the product, on the MI300X's memory. The remedy differs,
# too: larger tiles, or an order of tiles in which a die keeps to few columns (`explore("tiles")`). To be fair to AMD:
# `FETCH_SIZE` is what the L2s ask for, and on an MI300X the Infinity Cache answers a part of it, faster than the memory
# whose bandwidth makes the roof. So the product may go faster than this roof says.
#
# The softmax shows the second trap: the MI300X's counters say almost four times as many FLOP. What did the waves issue?

# %% what was issued
WORDS = {"softmax": ("fma", "div", "ex2", "exp"), "double": ("add.f32", "pk_add_f32")}
lesson.table(
    {
        f"{name}: {word}": {
            target: row["issued"] for target, row in lesson.issued(found, word).items()
        }
        for name, found in (("softmax", softmax), ("double", gpus))
        for word in WORDS[name]
    },
    first="instructions with this in their name",
)

# %% [markdown] instructions are not mathematics
# In PTX a division is one instruction, `div.full`, and an exponential one `ex2`; none of NVIDIA's three counters is for
# them. (ptxas makes others of them; what is executed here is PTX.) On gfx942 a division is a chain of several `v_div_`
# and fused multiply-adds, and the latter count. The doubling became an addition, x + x, on both sides; in PTX one for
# each float, on gfx942 one for two floats, which is counted once. Memory bounds both kernels either way: where that is
# so, a factor of four in FLOP does not matter. Near the ridge it would.
#
# ## 17. Far below the roof
#
# A roofline knows two limits. Put a measured time in, and a point stands somewhere *below* its roof. Near the roof
# there is little left to gain without other work. Far below, at 20% say, neither arithmetic nor memory is at its
# limit: the kernel **waits**, or is at a limit that this roofline does not draw: shared memory and its banks, the
# caches, the rate of instructions. Three usual reasons for waiting: too few waves to hide the latency, too little work
# for so large a chip, or a chain in which each step needs the one before.
#
# For the first there is Little's law (lesson 02): what is in flight arrives once in each latency, so bandwidth = bytes
# in flight / latency. Let each lane have asked for 16 bytes, and let an answer take 500 ns on either chip (an
# assumption). What a chip has room for:

# %% room of the chips
lesson.table(
    {
        chip: {
            "SMs or CUs": CHIPS[chip].units,
            "waves of one, at most": lesson.TARGETS[target].waves_per_unit,
            "lanes": lesson.TARGETS[target].lanes,
            "memory": CHIPS[chip].bandwidth_tb,
        }
        for chip, target in zip(("A100", "MI300X"), TARGETS, strict=True)
    },
    first="chip",
)

# %% [markdown] slots taken
# With all slots taken the A100 has SMs x 64 x 32 x 16 bytes = 3.54 MB in flight. In 500 ns that is 7.1 TB/s, more than
# three times what its memory has. No problem; but *occupancy*, the share of the slots that are taken, is rarely 100%.

# %% guess latency
guess = predict(
    "13.latency_roof",
    "Occupancy 10%. What percentage of its memory bandwidth can a long kernel reach, "
    "at 16 bytes a lane and 500 ns?",
    a100=lesson.number("A100", unit="%", factor=1.05),
    mi300x=lesson.number("MI300X", unit="%", factor=1.05),
)

# %% latency roof
lanes = {
    chip: CHIPS[chip].units.value * each
    for chip, each in (("A100", 64 * 32), ("MI300X", 32 * 64))
}
rows = {}
for percent in (5, 10, 20, 30, 50, 100):
    rows[f"{percent}%"] = {}
    for chip, many in lanes.items():
        rate = percent / 100 * many * 16 / 500e-9
        reached = min(rate / lesson.roofline(chip, "fp32").bandwidth, 1)
        rows[f"{percent}%"][f"{chip}, TB/s in flight"] = rate / 1e12
        rows[f"{percent}%"][f"{chip}, % of its memory roof"] = 100 * reached
guess.reveal(
    a100=rows["10%"]["A100, % of its memory roof"],
    mi300x=rows["10%"]["MI300X, % of its memory roof"],
    because="0.354 MB in 500 ns: 0.71 TB/s, of 2.04. 0.996 MB: 1.99 TB/s, of 5.3.",
)
lesson.table(rows, first="occupancy")

# %% [markdown] play
# At 16 bytes a lane either chip needs 27 to 29% of its slots to come to its roof; more waves than that bring nothing.
#
# Play with it. Move the occupancy, and see the point leave the roof; then give each lane more bytes, and see it come
# back. Make the kernel short (fewer bytes): from some size on one latency is all it takes, on either chip. Choose a
# kernel of this sitting in the list: it has bytes and FLOP, and no time, so it stands where it could be at best. (Each
# was counted on one target; its bytes are another's only if its L2 is alike.)

# %% explore kernels
explore("kernels", list(points.values()), occupancy=10)

# %% [markdown] second sitting done
# **You have** the three steps: a list by name, counters of the first kernel with their units, and a roof with a point
# on it or far below. And you know which numbers compare across vendors, and which only with themselves. In the lab:
# 13.read_ncu, 13.read_rocprof, 13.roofline_points. Next: why waves wait.

# %% second sitting ends
lesson.sitting("13", 2)

# %% [markdown] theoretical occupancy
# # Sitting 3: why it is slow, and what a profile does to it
#
# The third question, *what limits this kernel*, has an easy half: memory or compute, by the roofline. The other half
# are kernels that reach neither roof. Their waves wait, or there are too few of them. (A *wave* is a warp of 32 lanes
# or a wavefront of 64.)
#
# ## 18. Two numbers with one name
#
# *Theoretical occupancy*: the waves that can be resident on an SM or CU, over the slots for them. It follows from
# registers, shared memory (AMD: LDS) and block size, before anything runs; the smallest of the three decides. *Achieved
# occupancy*: the waves that were resident on average while the kernel ran. It is counted.
#
# | | NVIDIA | AMD |
# |---|---|---|
# | achieved | `sm__warps_active.avg.pct_of_peak_sustained_active` | `OccupancyPercent`, from `SQ_WAVE_CYCLES` |
# | averaged over | cycles in which the SM has work | all cycles of the kernel |
# | theoretical | `sm__maximum_warps_per_active_cycle_pct` | no counter: work it out |
# | what sets it | `launch__occupancy_limit_registers`, ... | `VGPR_Count`, `Accum_VGPR_Count`, `LDS_Block_Size` |
#
# The two counters of achieved occupancy differ in what they divide by: a CU that has nothing to do lowers AMD's figure,
# an SM that has nothing to do does not lower NVIDIA's.
#
# > **Facts: cycles of a GPU of several dies**
# >
# > - An MI300X has eight dies with CUs (XCDs), and each counts `GRBM_GUI_ACTIVE`, the cycles in which it worked. AMD's
# >   formula of OccupancyPercent takes the largest of them. (source: ROCm/rocprofiler-sdk, counter_defs.yaml)
# > - ROCm Compute Profiler divides the sum by the number of dies. (source: ROCm Compute Profiler, built-in variable
# >   GRBM_GUI_ACTIVE_PER_XCD) So look before you divide by it: a sum would make occupancy an eighth of what it is.
#
# Now change one thing. This is the matrix product of lesson 05, one tile of it.


# %% a tile of a product
@triton.jit
def tile_kernel(
    a_ptr, b_ptr, c_ptr, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + m[:, None] * K + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * BN + n[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + m[:, None] * BN + n[None, :], total)


def needs(target, size, **options):
    a, b = torch.zeros(size, 256).half(), torch.zeros(256, size).half()
    args = a, b, torch.zeros(size, size), 256
    compiled = compile_for(
        tile_kernel, target, args, BM=size, BN=size, BK=64, **options
    )
    found = lesson.resources(compiled)
    return {
        "registers": found.registers,
        "bytes of shared memory or LDS": found.shared,
        "blocks": found.occupancy.blocks,
        "waves": f"{found.occupancy.waves} of {found.occupancy.most}",
        "limited by": " and ".join(found.occupancy.limited_by),
        "spills": found.spills,
    }


rows = {
    f"{target}, num_stages={stages}": needs(target, 64, num_stages=stages)
    for target in ("sm_80", "gfx942")
    for stages in (2, 3)
}
lesson.table(rows, first="64 x 64, four waves a block")

# %% [markdown] one knob, stages
# An SM of `sm_80` has 167,936 bytes of shared memory, of which each block takes 1,024 more than it asks for; a CU of
# `gfx942` has 65,536 bytes. A lane's registers stay at 96, with which 5 blocks fit on either.

# %% guess stages
guess = predict(
    "13.stages",
    "num_stages=4 takes as many bytes more as the step from 2 to 3 took. How many "
    "blocks are resident then?",
    sm_80=lesson.number("blocks on an SM, sm_80"),
    gfx942=lesson.number("blocks on a CU, gfx942"),
)

# %% stages
for target in ("sm_80", "gfx942"):
    rows[f"{target}, num_stages=4"] = needs(target, 64, num_stages=4)
guess.reveal(
    sm_80=rows["sm_80, num_stages=4"]["blocks"],
    gfx942=rows["gfx942, num_stages=4"]["blocks"],
    because="167,936 // (49,152 + 1,024) and 65,536 // 49,152.",
)
lesson.table(dict(sorted(rows.items())), first="64 x 64, four waves a block")

# %% [markdown] achieved
# ## 19. Achieved far below theoretical
#
# Theoretical occupancy knows one unit and one moment. What the counter averages has a beginning and an end, and many
# units. Say that all blocks take equally long, and that two of them fit on each unit. Blocks then run in *rounds*, and
# the last round is seldom full. (NVIDIA's tools call rounds *waves*: `launch__waves_per_multiprocessor`. AMD has no
# such counter, and a wave there is 64 lanes.)

# %% guess tail
units = {chip: int(CHIPS[chip].units.value) for chip in ("A100", "MI300X")}
guess = predict(
    "13.tail",
    f"300 blocks, two fit on a unit. SMs or CUs: {units}. Averaged over all units and "
    "the whole kernel: achieved over theoretical occupancy?",
    a100=lesson.number("A100", unit="%", factor=1.03),
    mi300x=lesson.number("MI300X", unit="%", factor=1.03),
)

# %% tail
shares = {}
for blocks in (300, 600, 1200, 5000):
    for chip in ("A100", "MI300X"):
        places = 2 * units[chip]
        rounds = -(-blocks // places)
        shares.setdefault(f"{blocks} blocks", {})[chip] = (
            100 * blocks / (rounds * places)
        )
guess.reveal(
    a100=shares["300 blocks"]["A100"],
    mi300x=shares["300 blocks"]["MI300X"],
    because="216 places: a full round, then 84 blocks. 608 places: half a round.",
)
lesson.bars(shares, "achieved, in % of theoretical")

# %% [markdown] when more does not help
# AMD's counter averages like this. NVIDIA's leaves out the cycles in which an SM has no work, and so looks better
# where whole SMs are empty in the last round, as on the A100 above. It does not where each unit has one block of two.
# So ask for the number of blocks, too. The other reasons for a gap: blocks of unequal length, waves of a block that
# end early and hold its place until the last one is done, and launches so short that units are still being filled when
# the first ones finish. For each of them the cure is in the grid or the work, not in registers. So first ask which of
# the two numbers is low.
#
# And is more occupancy better? It hides waiting, nothing else. When every SIMD always has a wave that can go on, one
# more changes nothing: 9 waves that compute for 50 cycles and then wait for 400 keep a SIMD as busy as 18. And with
# two loads under way at once, for twice the work between two waits, 5 waves are enough. (NVIDIA counts this directly:
# `smsp__warps_eligible.avg.per_cycle_active`, the waves that could go on. AMD has no such counter.)

# %% waves that hide waiting
lesson.latency_figure(50, 400, 4, 9, 18)

# %% [markdown] registers taken away
# What hides waiting is bytes under way: waves, times loads of each. Large tiles buy the second by registers, and have
# few waves; a kernel of matrix products at 12% occupancy may be as fast as it gets. A memory-bound kernel at its
# bandwidth gains nothing either: more waves wait in a longer queue.
#
# And registers that are taken from a wave to make room for another one may be missed. Take the tile of 128 × 128. Both
# compilers can be told to use fewer registers: `maxnreg=128` for NVIDIA, `waves_per_eu=3` for AMD, where three waves on
# each SIMD leave a lane 168.

# %% needs of a large tile
squeezed = {"sm_80": {"maxnreg": 128}, "gfx942": {"waves_per_eu": 3}}
large = {
    f"{target}, as it comes": needs(target, 128, num_stages=2) for target in squeezed
}
lesson.table(large, first="128 x 128, four waves a block")

# %% guess squeezed
guess = predict(
    "13.squeezed",
    "The register limit is applied; LDS and shared memory stay. A part of an SM has "
    "512 registers for each of its lanes, a SIMD of gfx942 as well. A block of four "
    "waves has one on each of the four. How many waves are resident?",
    sm_80=lesson.number("sm_80, 128 registers"),
    gfx942=lesson.number("gfx942, 168 registers"),
)

# %% squeezed
after = {
    target: needs(target, 128, num_stages=2, **o) for target, o in squeezed.items()
}
waves = {target: int(row["waves"].split()[0]) for target, row in after.items()}
guess.reveal(
    sm_80=waves["sm_80"],
    gfx942=waves["gfx942"],
    because="512 // 128 is 4 blocks of four. 512 // 168 would be 3, but LDS of 32,768 "
    "bytes lets two in.",
)
large |= {f"{target}, fewer registers": row for target, row in after.items()}
lesson.table(dict(sorted(large.items())), first="128 x 128, four waves a block")

# %% [markdown] price of the squeeze
# On `sm_80` occupancy doubles; on `gfx942` it stays, because two limits held and one was lifted. Both pay: the column
# *spills* is bytes of a thread on NVIDIA, registers on AMD. A spilled register is stored to memory and loaded again. In
# counters this is *local memory* on NVIDIA (`launch__local_mem_per_thread`, local loads and stores), *scratch* on AMD
# (`Scratch_Size`). What `gfx942` executed for one tile:

# %% executed spills
a, b = torch.randn(128, 256).half(), torch.randn(256, 128).half()
c = torch.empty(128, 128)
executed = {}
for label, options in {
    "as it comes": {},
    "fewer registers": {"waves_per_eu": 3},
}.items():
    with virtual_gpu("gfx942") as gpu:
        tile_kernel[(1,)](a, b, c, 256, BM=128, BN=128, BK=64, num_stages=2, **options)
    total = gpu.counters.totals()
    executed[label] = {name: total[name] for name in ("instructions", "scratch_bytes")}
lesson.table(executed, first="one tile on gfx942")

# %% [markdown] local arrays
# Not all scratch is a spill. Registers have no index that is known at run time only: in C++, a local array that is
# read as `kept[i]` with such an `i` goes to the same memory, though nothing was short. The compiler's report tells the
# two apart (`.vgpr_spill_count` and "spill stores" count spills alone), the counters do not.
#
# ## 20. Why a wave waits
#
# A sampler looks, every so many cycles, at which instruction a wave stands, and why. Where does it stand when memory
# is slow? Mostly not at the load: a load is issued, and the wave goes on until it *needs* the answer. (A full memory
# pipe does hold the load itself.)


# %% two loads
@triton.jit
def mix_kernel(a_ptr, b_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + at)
    b = tl.load(b_ptr + at)
    a = a * a + 1
    tl.store(out_ptr + at, a * b)


x = torch.randn(3, 256)
mixed = {}
for target in ("sm_80", "gfx942"):
    with virtual_gpu(target) as gpu, gpu.trace() as mixed[target]:
        mix_kernel[(1,)](*x, BLOCK=256, num_warps=1)
for target, first in (("sm_80", "ld.global"), ("gfx942", "buffer_load")):
    texts = [step.text for step in mixed[target].steps]
    start = next(at for at, text in enumerate(texts) if first in text)
    print(target, *texts[start:], "", sep="\n")

# %% [markdown] the counter of waiting
# These are PTX and `gfx942`'s machine code, from the first load on. AMD's waves wait in instructions of their own:
# `vmcnt(n)` says that at most `n` of the vector memory accesses issued so far may still be under way; they finish in
# order. `lgkmcnt(n)` counts accesses to LDS and scalar loads; the latter may finish out of order, so with them code
# waits for 0. NVIDIA's code has no such instruction: the hardware holds an instruction back until its registers are
# there (the *scoreboard*).

# %% guess stands
guess = predict(
    "13.stands",
    "Memory answers after hundreds of cycles. At which instruction will a sampler find "
    "the wave most often? And in gfx942's listing: when the first v_pk_fma starts, how "
    "many of the two loads may still be under way?",
    gfx942=lesson.choice("buffer_load", "s_waitcnt", "v_pk_fma", "buffer_store"),
    sm_80=lesson.choice("ld.global", "fma", "mul", "st.global"),
    under_way=lesson.number("loads under way"),
)

# %% stands
longest, rows = {}, {}
for target, trace in mixed.items():
    found = lesson.waits(trace)  # a model: an answer takes 500 cycles, an instruction 4
    longest[target] = max(found, key=lambda wait: wait.cycles).text
    rows |= {f"{target}: {wait.text}": {"cycles": wait.cycles} for wait in found}
first = longest["gfx942"]
guess.reveal(
    gfx942=first.split()[0],
    sm_80=longest["sm_80"].split(".")[0],
    under_way=int(first.split("vmcnt(")[1][0]),
    because="the square needs a alone: vmcnt(1). On NVIDIA the reader of a is held.",
)
lesson.table(rows, first="modelled: waits of a wave that is alone")

# %% [markdown] words of both vendors
# So read a hot line backwards: the samples lie at the *consumer*, the culprit is the *load* that fills its registers.
# The words of both vendors:
#
# | the wave stands because | ncu, `smsp__pcsamp_warps_issue_stalled_...` | AMD, `Stall_Reason` |
# |---|---|---|
# | global or local memory has not answered | `long_scoreboard` | `WAITCNT` |
# | shared memory (LDS) has not answered | `short_scoreboard` | `WAITCNT` too: see which counter |
# | others of its block are not at the barrier yet | `barrier` | `BARRIER_WAIT` |
# | an instruction of fixed latency is not done | `wait` | `ALU_DEPENDENCY` |
# | the pipe takes nothing more | `math_pipe_throttle`; memory: `lg_throttle`, `mio_throttle` | `ARBITER_WIN_EX_STALL` |
# | another wave was chosen | `not_selected` | `ARBITER_NOT_WIN` |
# | its next instruction is not there | `no_instruction` | `NO_INSTRUCTION_AVAILABLE` |
#
# The pairing is ours: words in one row mean the same situation, not the same circuit. `not_selected` is good news:
# work is waiting for the hardware. A high share of one word matters only where the scheduler had *nobody* to choose.
#
# > **Facts: samplers**
# >
# > - AMD's reasons and what each means. (source: ROCm/rocm-systems, rocprofiler-sdk,
# >   [Analyzing PC sampling data on CDNA3 and CDNA4](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/develop/how-to/cdna3-cdna4-pc-sampling.html))
# > - Reasons come from stochastic sampling, which MI300 and later have; MI200 has host-trap sampling, which says where
# >   and not why. (source: ROCm Compute Profiler,
# >   [Using PC sampling](https://rocm.docs.amd.com/projects/rocprofiler-compute/en/latest/how-to/pc_sampling.html))
# > - PC sampling of rocprofv3 is a beta that must be enabled, and may freeze the hardware. (source: rocprofiler-sdk,
# >   [PC sampling method](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/docs-6.3.1/api-reference/pc_sampling.html))
# > - NVIDIA's reasons. (source: Nsight Compute, Kernel Profiling Guide, warp stall reasons)
#
# ## 21. What the profiler changes
#
# A profile is of a run that was profiled. Section 11 had the passes: kernels that run again, or a program that does.
# And under counters one kernel runs at a time: what overlapped in the timeline does not overlap there. `ncu` also sets
# the clock, and empties the caches before each pass.
#
# What does the last one cost? Here a kernel writes y, 1 MiB, and the next one reads it. The L2 of the chips that stand
# for the two targets is below; on `gfx942` each die has its own, and block i goes to the same die in both launches.


# %% a producer and its consumer
@triton.jit
def twice_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at))


sizes = {target: lesson.L2_OF_TARGET[target].sizes for target in ("sm_80", "gfx942")}
rows = {
    target: {"L2 in all, MiB": one.size / 2**20, "in so many parts": one.parts}
    for target, one in sizes.items()
}
lesson.table(rows, first="target")

# %% guess warm
guess = predict(
    "13.warm",
    "How much does the consumer read from memory, when it follows its producer as in "
    "the program, and when the caches were emptied in between?",
    follows=lesson.number("follows", unit="KiB"),
    emptied=lesson.number("emptied", unit="KiB"),
)

# %% warm
n = 2**18
x, y, z = torch.randn(n), torch.empty(n), torch.empty(n)
rows = {}
for target in ("sm_80", "gfx942"):
    with virtual_gpu(target, l2=True) as gpu:
        twice_kernel[(n // 1024,)](x, y, BLOCK=1024)
        twice_kernel[(n // 1024,)](y, z, BLOCK=1024)
    follows = lesson.l2_in_order(gpu.launches)[1]  # finds what the first one left
    emptied = lesson.l2_traffic(gpu.launches[1])  # finds nothing
    rows[target] = {
        "follows, KiB read": follows.read_bytes / 1024,
        "L2 hits, %": 100 * follows.read_hit_rate,
        "emptied, KiB read": emptied.read_bytes / 1024,
        "L2 hits then, %": 100 * emptied.read_hit_rate,
    }
guess.reveal(
    follows=rows["sm_80"]["follows, KiB read"],
    emptied=rows["sm_80"]["emptied, KiB read"],
    because="y fits, so all of it is still there; after a flush none of it is.",
)
lesson.table(rows, first="the consumer, by the model of the L2")

# %% [markdown] distortions
# By this model a fused or well-ordered program loses under `ncu` what it was built for. (The model keeps written lines
# in the L2 between kernels; it knows nothing of what an MI300X writes back so that its other dies see it.)
# `--cache-control none` leaves the caches alone: then the second pass of a replay finds *its own* data, warmer than
# in the program. Neither is the program. For times take the timeline, for causes the counters.
#
# > **Claim and fact: distortion**
# >
# > - `--cache-control` is `all` by default: caches are flushed before each pass. `--clock-control` fixes the clock, and
# >   its default differs: `base` in older manuals, `boost` in that of version 2026.1. So say which you used. (source:
# >   Nsight Compute CLI v2026.1.0, [options](https://docs.nvidia.com/nsight-compute/NsightComputeCli/index.html))
# > - While counters are collected one kernel at a time executes. (source: rocprofiler-sdk,
# >   [counter collection services](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/api-reference/counter_collection_services.html))
# > - ROCm Compute Profiler runs a program some 13 to 20 times for all of its counters. (source: design notes of
# >   rocprofiler-sdk,
# >   [Kernel replay and the downstream tools](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/develop/conceptual/kernel_replay/kernel_replay_downstream_tools.html))
#
# Kernels that wait for one another, as collectives do, can hang when they run one at a time.
#
# The timeline is not free either: torch.profiler notes each operator while the program runs. Here is a training step
# of a small model on this CPU.

# %% a step to watch
torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(8)]
model = nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(32, 64)


def step():
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


shares = lesson.operator_shares(step)
operators = sum(row["calls"] for row in shares.values())
cost = lesson.profiler_cost(step)
plain = cost["not watched"]["us a call"]
lesson.table({"operators of a step": operators, "us of a step, not watched": plain})

# %% guess overhead
guess = predict(
    "13.overhead",
    "Say that to note one operator takes 2 us. How many times as long is a step under "
    "torch.profiler.profile()? And does with_stack=True, which notes each call of "
    "Python as well, cost more?",
    profile=lesson.number("times as long", factor=1.5),
    more=lesson.yes_no("with_stack costs more"),
)

# %% overhead
guess.reveal(
    profile=cost["profile()"]["times the unwatched"],
    more=cost["with_stack=True"]["us a call"] > cost["profile()"]["us a call"],
    because="1 + 2 us x operators / us of a step; what it really takes is below.",
)
lesson.table(
    cost,
    first="seven rounds, the ways in turn",
    note="times, smallest, largest: of the rounds' own ratios, the first their median",
)

# %% [markdown] spread and permissions
# Each event costs, so a step of many small operators suffers most. Look at the spread before you believe a digit: a
# busy machine moves these ratios more than the difference between two options. With a GPU the host is slower by as
# much, so gaps in a trace look longer than they are without it. `record_shapes` and `with_stack` are documented as
# additional overhead (docstring of `torch.profiler.profile`). Record few steps, after a warm-up, and time without the
# profiler.
#
# <details><summary>When counters are refused</summary>
#
# `ERR_NVGPUCTRPERM`: NVIDIA's driver lets only administrators read counters. The cure: run as root, or with
# `CAP_SYS_ADMIN` (Docker: `--cap-add=SYS_ADMIN`), or let everybody: a file in `/etc/modprobe.d` with
# `options nvidia NVreg_RestrictProfilingToAdminUsers=0`, then load the module anew or reboot. Check it with
# `grep RmProfilingAdminOnly /proc/driver/nvidia/params`. Traces (`nsys`, torch.profiler) need none of it. (source:
# [developer.nvidia.com/ERR_NVGPUCTRPERM](https://developer.nvidia.com/ERR_NVGPUCTRPERM)) On AMD whoever may open
# `/dev/kfd` can run kernels at all; that is a group, `render` or `video` by distribution (source:
# [ROCT-Thunk-Interface](https://github.com/ROCm/ROCT-Thunk-Interface/), README). "A driver resource was unavailable"
# means that another tool holds the counters, such as DCGM.
#
# </details>
#
# ## 22. Two profiles: what changed
#
# Last week the program was faster. Two profiles of it answer in the order of the three questions. Is the GPU busier or
# idler? Which kernel's time changed, by more *calls* or by more *time of one*? And of one call: more bytes, more
# instructions, or the same work slower? Here somebody cut the batch into four parts. The timeline is modelled: a
# launch costs the host 5 µs, and a stream runs what it has in order.


# %% two modelled runs
def run(parts):
    host = lesson.Modelled("amd")
    for _ in range(20 * parts):
        for kernel in ("forward", "backward", "update"):
            host.launch(kernel, 12_000 // parts)  # ns on the GPU
    host.sync()
    return host.profile()


before, after = run(parts=1), run(parts=4)
rows = {
    name: {
        "calls": len(profile.kernels),
        "us of one": profile.kernels[0].duration / 1000,
        "us of all": sum(kernel.duration for kernel in profile.kernels) / 1000,
    }
    for name, profile in {"before": before, "after": after}.items()
}
lesson.table(rows, first="kernels, modelled")

# %% guess two profiles
guess = predict(
    "13.two_profiles",
    "The kernels take as long as before in all. What became of the time from the first "
    "kernel to the last, and how much of it is the GPU idle after the change?",
    longer=lesson.number("times as long", factor=1.1),
    idle=lesson.number("idle", unit="%", factor=1.1),
)

# %% two profiles
change = lesson.compared(before, after)
guess.reveal(
    longer=change.window[1] / change.window[0],
    idle=100 * change.idle[1] / change.window[1],
    because="a kernel of 3 µs ends before the host has launched the next, 5 µs on.",
)
rows = {
    one.name: {"what changed": one.words, "us of the difference": one.difference / 1000}
    for one in change.changes
}
rows["the GPU idle"] = {
    "what changed": "idle: {:,} -> {:,} ns".format(*change.idle),
    "us of the difference": (change.idle[1] - change.idle[0]) / 1000,
}
lesson.table(rows, first="before and after, modelled")

# %% [markdown] reading the change
# Four times the calls, a quarter of the time of each: the kernels cancel out, and what is left is idle time. No counter
# of any kernel would have found it. That is why the questions have an order. And where all kernels became slower by one
# factor, look for no commit: clocks fall when a chip is hot, or when somebody set them.
#
# ## 23. Six faults and where they show
#
# | fault | in the timeline | NVIDIA | AMD |
# |---|---|---|---|
# | lanes far apart in memory | one kernel is long | sectors a request | cache lines over `VMEM` instructions |
# | bank conflicts | one kernel is long | conflicts over passes | `SQ_LDS_BANK_CONFLICT` over `SQ_LDS_IDX_ACTIVE` |
# | spills, local arrays | one kernel is long | `launch__local_mem_per_thread`, local loads | `Scratch_Size` |
# | low occupancy | one kernel is long | `sm__warps_active`, and its limits | `OccupancyPercent`; registers, LDS |
# | bound by launches | gaps everywhere, kernels short, the host busy launching | none | none |
# | the host waits | gaps after a sync or a copy, then launches again | none | none |
#
# The first four have one row in the timeline and a number in a counter; the last two have no counter at all. What is
# *much* depends on the kernel: compare a figure with the fewest that its bytes could need, and with its neighbours. In
# the lab: 13.diagnose hides one of the six, 13.fix is a kernel with several to mend, 13.regression compares two runs.
#
# **You have** the third question answered to the cause, and know what the answer costs.

# %% [markdown] summary of the unit
# ## Summary
#
# - Ask in order: is the GPU busy, which kernel, what limits it. A timeline answers the first, sums by name the second,
#   counters the third.
# - Idle time is the window minus the union of all work. What the host did in a gap names its cause: it launched too
#   slowly, it waited, it copied. Where the host sets the pace, a kernel made twice as fast saves nothing.
# - Add up time by name; Amdahl's law says beforehand what a kernel can bring.
# - A counter without its unit is no figure: blocks or work-items, bytes or KiB, threads or waves, the cycles of one die
#   or of eight. What a tool did not say is unknown, not 0.
# - Across vendors compare what matches: ratios, each with its own ideal.
# - Occupancy: first how far achieved is below theoretical, then what limits the theoretical one.
# - A profile changes what it measures: kernels one by one, caches flushed, clocks fixed, groups of counters from
#   separate runs. Compare profiles with profiles.
#
# ## Read next
#
# - [PyTorch, performance tuning guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html).
# - [Nsight Systems, user guide](https://docs.nvidia.com/nsight-systems/UserGuide/index.html), and Nsight Compute's
#   [profiling guide](https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html).
# - [Using rocprofv3](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html).
# - ROCm Compute Profiler, [pipeline
#   metrics](https://rocm.docs.amd.com/projects/rocprofiler-compute/en/develop/conceptual/pipeline-metrics.html).
# - [Holistic Trace Analysis](https://github.com/facebookresearch/HolisticTraceAnalysis): traces of many ranks.
#
# ## Check yourself
#
# Answer first, then open.
#
# <details><summary>A launch costs 5 µs and kernels last 3 µs. How busy is the GPU, what helps?
# </summary>
#
# 60%. Fewer and longer kernels, or a graph; faster kernels do not.
# </details>
#
# <details><summary>Two kernels of 100 µs on two streams start together. How long is the GPU busy?</summary>
#
# 100 µs: busy time is a union, the sum of the durations is 200.
# </details>
#
# <details><summary>rocprofv3 shows Grid_Size_X 250,112 and Workgroup_Size_X 256. How many blocks?</summary>
#
# 977: Grid_Size counts work-items.
# </details>
#
# <details><summary>16 sectors a load on NVIDIA. Are the loads scattered?</summary>
#
# Not surely: 16 bytes a lane in a row give 16 too. The source, or the width of the load in the listing, decides.
# </details>
#
# <details><summary>All kernels take 1.12 times as long, within 2%. Which commit?</summary>
#
# Most likely none: one factor for all is the clock's, or that of another card.
# </details>
#
# **You have** a way from any profile to a cause, on both vendors. Now open [lab 13](../labs/13_profiling.ipynb).

# %% third sitting ends
lesson.sitting("13", 3)
