# %% [markdown] top
# # 13 Profiling on both vendors
#
# **Time**: sitting 2 only (the parts are joined later).

# %% imports
import torch
import triton
import triton.language as tl

from gpu_utils import CHIPS, explore, lesson, predict

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
# Here is a small training program, three steps of a network with one hidden layer, all by hand-written kernels. It runs
# on a virtual A100 (`sm_80`) and a virtual MI300X (`gfx942`). A virtual GPU has no clock. So the times are **modelled**
# from what was counted, by a stated rule, for a GPU with a single SM or CU. They are good to practise on; they say
# nothing about a chip, and nothing about which of the two is faster.

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
# (`ncu --csv`), and rocprofv3 with `--kernel-trace` and `--pmc`.


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
# Which of AMD's counters answers the question for which you know NVIDIA's metric? Here are those of this sitting.
# "well": the numbers compare. "fair": they compare, if you mind the note. "loosely": only their changes compare, each
# with itself. "none": one side has nothing.

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
# load of a warp: 32 lanes x 4 bytes in a row are 128 bytes, 4 sectors. More is waste. AMD counts the **lines** that its
# first-level cache looks up, 128 bytes on an MI300X: 64 lanes x 4 bytes in a row are 2 lines. But no counter says lines
# of loads alone: `TCP_TOTAL_CACHE_ACCESSES` has loads and stores, so divide by both kinds of instructions. The store
# here is in a row, whatever the stride.


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
# >   H100, triton 3.6.0, driver 580.159.04, 2026-11-26, [benchmarks.md](../docs/benchmarks.md))
# >
# > Nothing has run on AMD silicon: no counter of AMD's has been compared with a chip.
#
# ## 14. Bank conflicts
#
# The same question in shared memory. A block of 256 threads turns a tile of 32 x 32 floats: it writes rows, and reads
# columns. With rows of 32 floats a column lies in one bank (lesson 02). NVIDIA counts **passes**: a load of a warp
# needs one, and one more for each conflict. AMD counts **cycles** in which the LDS was busy, and those of them that
# conflicts cost; a wave has 64 lanes, and 32 of them are served in a cycle at best.

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
    passes=lesson.number("A100: passes for a load of a warp"),
    cycles=lesson.number("MI300X: cycles for a load of a wave"),
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
# floats, each read and written once; a product of two 512 x 512 matrices in float16, in tiles of 64 x 64.


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
# there is little left to gain without other work. Far below, at 20% say, neither arithmetic nor memory is at its limit:
# the kernel **waits**. Three usual reasons: too few waves to hide the latency, too little work for so large a chip, or
# a chain in which each step needs the one before.
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
# At 16 bytes a lane either chip needs almost 30% of its slots to come to its roof; more waves than that bring nothing.
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
