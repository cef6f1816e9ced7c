# %% [markdown] top
# # 13 Profiling
#
# **Afterwards you can** say whether a GPU is busy, which kernel takes its time, and what limits that kernel: with the
# tools of either vendor.
#
# **You need** units 01, 02 and 06. No GPU.

# %% imports
import json
import math

import torch

from gpu_utils import bench, explore, lesson, predict

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
# > - Sampling by the hardware needs `gfx942` or later on AMD. (source: ROCprofiler-SDK, how-to/using-pc-sampling.rst)
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
# shapes, made room for the result. The launch call took 6.5 µs. The kernel began 4.5 µs later, ran for 12, and was over
# at 43, while the operator went on until 60. So this product cost the host 50 µs and the GPU 12: the host is slow.
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
# copies and no kernel runs, the program is *copy-bound*. One section for each.
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
# Now question 2 before question 1. In this program a profiler's list of kernels says: `big` takes 60 of 140 µs, the
# longest by far.

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
# lets a copy run *beside* kernels. And see the second column: the blocking program keeps the GPU "busy" for 99% of the
# time. **Ask what it is busy with.**
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
run = lesson.planted(4)
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
    because="after each kernel the host reads a number (aten::isfinite) and waits for "
    "it. The many copies are those numbers, four bytes each.",
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
# | `./w2w profile trace.json` | which tool wrote it; busy share and gaps, the kernels, what limits each |
# | `./w2w profile trace.json --html report.html` | the same as a page: timeline with gaps, kernels, roofline |
# | `./w2w profile -- python train.py` | runs it under the tool that this machine has, and says which |
#
# It answers in the order of section 1. If it says that the GPU is idle half of the time, stop reading: close the gaps
# first.
#
# **You have** traces of both vendors, and a name for each gap: launch-bound, sync-bound, copy-bound, or a host that is
# late. In the lab: 13.read_trace, 13.gpu_idle. Next: the GPU is busy. With which kernel, and what limits it?

# %% first sitting ends
lesson.sitting("13", 1)
